"""From a plan to its records: what is missing is written by a source and judged by a judge, both at
the same time.

Everything is stored as it comes, so that a run which ends early is continued by the next.
Measurements during a run (`trainer.evaluate.held_out`) and every command that asks a model take
this one way.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gradus.contract import MAX_BATCH, Graded, GraderName
from gradus.descriptions import GraderDescription
from gradus.errors import Misuse
from gradus.extract import remove_thinking
from gradus.feedback import render_next_turn
from gradus.tasks.base import clean_text
from gradus.validation import explain
from trainer.data.prompts import Message, Prompt
from trainer.evaluate.completion_store import Completions
from trainer.evaluate.grader_backend import Judge
from trainer.evaluate.plan import (
    CompletionRequest,
    CompletionSource,
    EvalPlan,
    GeneratedCompletion,
    Key,
    Outcome,
    Problem,
    build_requests,
    compute_seed,
)
from trainer.evaluate.verdicts import is_judged, is_passed
from trainer.rewards.judge import NO_VERDICT, Record, add_opening, build_outcome

OnProgress = Callable[[str, int, int], None]
"""(`written` or `graded`, how many so far, of how many)."""
HANDFUL = 32
"""Completions that are sent to the judge in one call, at most."""


async def collect(
    source: CompletionSource,
    judge: Judge | None,
    problems: Sequence[Problem],
    plan: EvalPlan,
    store: Completions,
    on_progress: OnProgress = lambda step, done, total: None,
) -> list[Record]:
    """Return all records of the plan in its order; those that are stored and judged already are not
    asked for again.

    Completions that were not written or not judged for a failure are tried again, and so are
    verdicts of another revision of the grader. Raises what source and judge raise; everything that
    came until then is stored.
    """
    asks = build_requests(problems, plan)
    await gather(source, judge, asks, plan, store, on_progress)
    return store.finish(ask.key for ask in asks)


async def gather(
    source: CompletionSource,
    judge: Judge | None,
    asks: Sequence[CompletionRequest],
    plan: EvalPlan,
    store: Completions,
    on_progress: OnProgress,
) -> None:
    """Write and judge some asks of the plan into `store`, which stays open."""
    missing = set()
    for ask in asks:
        if _is_unwritten(ask, store.records.get(ask.key)):
            missing.add(ask.key)
    stored = [ask for ask in asks if ask.key not in missing]
    grader = (await judge.info()).grader if judge is not None and stored else None
    queue: asyncio.Queue[CompletionRequest | None] = asyncio.Queue()
    for ask in stored if judge is not None else ():
        record = store.records[ask.key]
        if record["status"] != "graded" or record["grader"] != grader:
            queue.put_nowait(ask)
    counts = {"written": len(stored), "graded": len(stored) - queue.qsize()}
    calls = judge.calls_at_once if judge is not None else 0

    def count(step: str, number: int) -> None:
        counts[step] += number
        on_progress(step, counts[step], len(asks))

    async def write() -> None:
        if missing:
            async for ask, outcome in source.write(asks, missing):
                store.append([build_record(ask, outcome)])
                count("written", 1)
                if isinstance(outcome, GeneratedCompletion):
                    queue.put_nowait(ask)
                elif judge is not None:
                    count("graded", 1)
        for _ in range(calls):
            queue.put_nowait(None)

    async def grade(judge: Judge) -> None:
        ask = await queue.get()
        while ask is not None:
            handful = [ask]
            while not queue.empty() and len(handful) < min(HANDFUL, MAX_BATCH):
                following = queue.get_nowait()
                if following is None:
                    queue.put_nowait(None)  # this end is for the next round
                    break
                handful.append(following)
            records = [store.records[request.key] for request in handful]
            submissions = []
            for n, (request, record) in enumerate(zip(handful, records, strict=True)):
                submissions.append(
                    build_submission(
                        request.problem,
                        add_opening(plan.opening, str(record["completion"])),
                        str(n),
                    )
                )
            results = await judge.grade(submissions, plan.rubric)
            verdicts = map(build_outcome, results)
            store.append(old | new for old, new in zip(records, verdicts, strict=True))
            count("graded", len(handful))
            ask = await queue.get()

    tasks = []
    for _ in range(calls):
        if judge is not None:
            tasks.append(asyncio.create_task(grade(judge)))
    tasks.append(asyncio.create_task(write()))
    try:
        # A judge that fails must not wait for the last completion, nor the other way round.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_unwritten(ask: CompletionRequest, record: Record | None) -> bool:
    if record is None or record["status"] == "generation_error":
        return True
    # A later turn answers what was said of the one before; where that is judged otherwise now it is
    # no answer any more.
    return ask.conversation is not None and record["prompt"] != ask.conversation


# ----------------------------------------------------------------------------------------- records


def build_submission(problem: Problem, completion: str, submission_id: str) -> dict[str, object]:
    """Return what the judge gets; `completion` is with what its prompt had written of it."""
    return {
        "id": submission_id,
        "prompt": clean_text(problem.text),
        "completion": clean_text(completion),
        "task": problem.task,
    }


def build_record(ask: CompletionRequest, outcome: Outcome) -> Record:
    """Return a line of the completions file before anything is judged: the columns of a run's own,
    and how it was made."""
    problem = ask.problem
    record: Record = {
        "mode": ask.mode,
        "prompt_id": problem.id,
        "kind": problem.kind,
        "difficulty": problem.difficulty,
        "sample": ask.sample,
        "prompt": ask.prompt,
        "completion": "",
        "status": "generation_error",
        **NO_VERDICT,
        "error": None,
        **{name: getattr(outcome, name, None) for name in MADE},
        "written_at": round(time.time(), 3),
    }
    if ask.turn > 1:
        record["turn"] = ask.turn
    if isinstance(outcome, GeneratedCompletion):
        record |= {"status": "written", "completion": clean_text(outcome.text)}
        if outcome.tool_calls:
            record["tool_calls"] = list(map(dict, outcome.tool_calls))
    else:
        record["error"] = {"kind": outcome.kind, "message": outcome.message}
    return record


MADE = ("finish_reason", "prompt_tokens", "completion_tokens", "latency_s")


# ---------------------------------------------------------------------- later turns


def refuse_turns(description: GraderDescription, turns: int) -> None:
    """Raise Misuse for several turns with a grader whose verdicts do not say what to repair."""
    if turns > 1 and not description.fences and description.name != "story":
        raise Misuse(
            f"{turns} turns: verdicts of the grader {description.name!r} do not say what to repair"
        )


async def collect_turns(
    source: CompletionSource,
    judge: Judge,
    problems: Sequence[Problem],
    firsts: Sequence[Record],
    plan: EvalPlan,
    store: Completions,
    on_progress: OnProgress = lambda step, done, total: None,
) -> list[Record]:
    """Return the records of all turns after the first, turn by turn, each in the order of the plan.

    Resumes where it was left; a turn is asked anew where the one before is judged otherwise now.
    Raises what source and judge raise; everything that came until then is stored.
    """
    pairs = list(zip(build_requests(problems, plan), firsts, strict=True))
    keys: list[Key] = []
    for turn in range(2, plan.turns + 1):
        asks = []
        for ask, record in pairs:
            if is_judged(record) and not is_passed(record):
                asks.append(build_next_request(ask, record, plan, turn))

        def report_turn(step: str, done: int, total: int, turn: int = turn) -> None:
            on_progress(f"{step}, turn {turn}", done, total)

        await gather(source, judge, asks, plan, store, report_turn)
        pairs = [(ask, store.records[ask.key]) for ask in asks]
        keys += [ask.key for ask in asks]
    return store.finish(keys)


def build_next_request(
    ask: CompletionRequest, record: Record, plan: EvalPlan, turn: int
) -> CompletionRequest:
    """Return what is asked after an answer that was judged and did not pass."""
    assert plan.grader is not None
    fields = {name: record[name] for name in NO_VERDICT if name != "fault"}
    try:
        verdict = Graded.model_validate({"id": "earlier", "cpu_ms": 0, "wall_ms": 0, **fields})
    except ValidationError as error:
        raise Misuse(
            f"{record['prompt_id']}: its stored verdict is invalid: {explain(error)}"
        ) from None
    completion = add_opening(plan.opening, str(record["completion"]))
    message = render_next_turn(GraderName(plan.grader), verdict, completion)
    conversation = extend_conversation(ask.prompt, completion, clean_text(message))
    seed = compute_seed(plan.seed, ask.mode, ask.problem.id, ask.sample, turn)
    return replace(ask, turn=turn, conversation=conversation, seed=seed)


def extend_conversation(prompt: Prompt, completion: str, message: str) -> Prompt:
    """Return a conversation with one more answer and one more turn of the user; of a text, the same
    one below the other.

    Answers in chats are without thoughts, as models expect of earlier turns.
    """
    if isinstance(prompt, str):
        return f"{prompt}{completion}\n\n{message}\n\n"
    answer: Message = {"role": "assistant", "content": remove_thinking(completion).lstrip("\n")}
    return [*prompt, answer, {"role": "user", "content": message}]


# --------------------------------------------------------------------------------------- terminals


@contextmanager
def show_progress_bar(console: Console) -> Iterator[OnProgress]:
    """Progress bars of written and of graded completions; hidden where the console is no
    terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bars: dict[str, Any] = {}

        def on_progress(step: str, done: int, total: int) -> None:
            if step not in bars:
                bars[step] = progress.add_task(step, total=total)
            progress.update(bars[step], completed=done)

        yield on_progress


def report_troubles(console: Console, records: Sequence[Record]) -> None:
    """Print what was not written and not judged, in a line each: how many of which kind, and the
    last message."""
    for failure, column in (("were not written", "error"), ("could not be judged", "fault")):
        troubles = []
        for record in records:
            if record.get(column) is not None:
                troubles.append(record[column])
        kinds = Counter(trouble["kind"] for trouble in troubles).most_common()
        if troubles:
            counts = ", ".join(f"{count} x {kind}" for kind, count in kinds)
            line = (
                f"gradus: {len(troubles)} of {len(records)} completions {failure}: {counts};"
                f" the last: {troubles[-1]['message']}"
            )
            console.print(line, highlight=False, markup=False, soft_wrap=True)
