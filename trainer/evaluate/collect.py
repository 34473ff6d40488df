"""From a plan to its records: what is missing is written by a source and judged by a judge, both at the same time.

Everything is stored as it comes, so that a run which ends early is continued by the next. Measurements during a run
(`trainer.held_out`) and every command that asks a model take this one way.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gradus.contract import MAX_BATCH, Graded, GraderName
from gradus.descriptions import GraderDescription
from gradus.errors import Misuse
from gradus.extract import after_thinking
from gradus.feedback import repair_turn, reply
from gradus.validation import explain
from trainer.evaluate.judging import Judge
from trainer.evaluate.plan import Ask, Key, Outcome, Plan, Problem, Source, Written, asks_of, seed_of
from trainer.evaluate.store import Completions, key_of
from trainer.evaluate.verdicts import is_judged, is_passed
from trainer.prompts import Message, Prompt
from trainer.rewards import NO_VERDICT, Record, clean, outcome_of, with_opening

OnProgress = Callable[[str, int, int], None]
"""(`written` or `graded`, how many so far, of how many)."""
HANDFUL = 32
"""Completions that are sent to the judge in one call, at most."""


async def collect(
    source: Source,
    judge: Judge | None,
    problems: Sequence[Problem],
    plan: Plan,
    store: Completions,
    on_progress: OnProgress = lambda what, done, total: None,
) -> list[Record]:
    """All records of the plan in its order; those that are stored and judged already are not asked for again.

    Completions that were not written or not judged for a failure are tried again, and so are verdicts of another
    revision of the grader. Raises what source and judge raise; everything that came until then is stored.
    """
    asks = asks_of(problems, plan)
    await gather(source, judge, asks, plan, store, on_progress)
    return store.finish(ask.key for ask in asks)


async def gather(
    source: Source, judge: Judge | None, asks: Sequence[Ask], plan: Plan, store: Completions, on_progress: OnProgress
) -> None:
    """The same for some asks of the plan; what comes is in `store`, which is not finished."""
    missing = {ask.key for ask in asks if _is_unwritten(ask, store.get(ask.key))}
    written = [ask for ask in asks if ask.key not in missing]
    unjudged: list[Ask] = []
    if judge is not None and written:
        grader = (await judge.info()).grader
        unjudged = [ask for ask in written if not _is_judged(store.get(ask.key), grader)]
    work = _Work(source, judge, plan, store, on_progress, len(asks), len(written))
    work.graded = len(written) - len(unjudged)
    await work.run(asks, missing, unjudged)


def _is_unwritten(ask: Ask, record: Record | None) -> bool:
    if record is None or record["status"] == "generation_error":
        return True
    # A later turn answers what was said of the one before; where that is judged otherwise now it is no answer any more.
    return ask.said is not None and record["prompt"] != ask.said


def _is_judged(record: Record | None, grader: str | None) -> bool:
    return record is not None and record["status"] == "graded" and record["grader"] == grader


@dataclass(slots=True)
class _Work:
    """One run of a plan."""

    source: Source
    judge: Judge | None
    plan: Plan
    store: Completions
    on_progress: OnProgress
    total: int
    written: int
    graded: int = 0
    queue: asyncio.Queue[Ask | None] = field(default_factory=asyncio.Queue)

    async def run(self, asks: Sequence[Ask], missing: set[Key], unjudged: Sequence[Ask]) -> None:
        for ask in unjudged:
            self.queue.put_nowait(ask)
        tasks = [asyncio.create_task(self._grade()) for _ in range(self.judge.calls_at_once if self.judge else 0)]
        tasks.append(asyncio.create_task(self._write(asks, missing)))
        try:
            # A judge that fails must not wait for the last completion, nor the other way round.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, asks: Sequence[Ask], missing: set[Key]) -> None:
        if missing:
            async for ask, outcome in self.source.write(asks, missing):
                self.store.append([written_record(ask, outcome)])
                self.written += 1
                self.on_progress("written", self.written, self.total)
                if isinstance(outcome, Written):
                    self.queue.put_nowait(ask)
                else:
                    self._count_graded(1)
        for _ in range(self.judge.calls_at_once if self.judge else 0):
            self.queue.put_nowait(None)

    async def _grade(self) -> None:
        assert self.judge is not None
        while handful := await self._handful():
            stored = [self.store.get(ask.key) or {} for ask in handful]
            submissions = [
                submission_of(ask.problem, str(record["completion"]), str(n))
                for n, (ask, record) in enumerate(zip(handful, stored, strict=True))
            ]
            results = await self.judge.grade(submissions, self.plan.rubric)
            self.store.append(
                [{**record, **outcome_of(result)} for record, result in zip(stored, results, strict=True)]
            )
            self._count_graded(len(handful))

    async def _handful(self) -> list[Ask]:
        """What waits to be judged, at least one; nothing at the end."""
        found: list[Ask] = []
        ask = await self.queue.get()
        while ask is not None:
            found.append(ask)
            if self.queue.empty() or len(found) == min(HANDFUL, MAX_BATCH):
                return found
            ask = self.queue.get_nowait()
        if found:
            self.queue.put_nowait(None)  # this end was for the next round
        return found

    def _count_graded(self, count: int) -> None:
        if self.judge is not None:
            self.graded += count
            self.on_progress("graded", self.graded, self.total)


# ----------------------------------------------------------------------------------------------------------- records


def submission_of(problem: Problem, completion: str, submission_id: str) -> dict[str, object]:
    """What the judge gets: the completion with what its prompt had written of it."""
    given = clean(with_opening(problem.opening, completion))
    return {"id": submission_id, "prompt": clean(problem.text), "completion": given, "task": problem.task}


def written_record(ask: Ask, outcome: Outcome) -> Record:
    """A line of the completions file before anything is judged: the columns of a run's own, and how it was made."""
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
        "finish_reason": None,
        "prompt_tokens": None,
        "completion_tokens": None,
        "latency_s": None,
        "attempts": outcome.attempts,
        "written_at": round(time.time(), 3),
    }
    if ask.turn > 1:
        record["turn"] = ask.turn
    if problem.stub is not None:
        record["stub"] = problem.stub
    if isinstance(outcome, Written):
        made = ("finish_reason", "prompt_tokens", "completion_tokens", "latency_s")
        record |= {name: getattr(outcome, name) for name in made}
        record |= {"status": "written", "completion": clean(outcome.text)}
        if outcome.tool_calls:
            record["tool_calls"] = [dict(call) for call in outcome.tool_calls]
    else:
        record["error"] = {"kind": outcome.kind.value, "message": outcome.message}
    return record


# ------------------------------------------------------------------------------------------------------- later turns


def refuse_turns(description: GraderDescription, turns: int) -> None:
    """Raises Misuse for several turns with a grader whose answers are prose, which has no fences."""
    if turns > 1 and not description.fences:
        raise Misuse(
            f"--turns {turns}: answers of the grader {description.name!r} are no code, which could be repaired"
        )


async def collect_turns(
    source: Source,
    judge: Judge,
    firsts: Sequence[tuple[Ask, Record]],
    plan: Plan,
    store: Completions,
    on_progress: OnProgress = lambda what, done, total: None,
) -> list[Record]:
    """The records of all turns after the first, turn by turn, each in the order of the plan.

    Goes on where it was left; a turn is asked anew where the one before is judged otherwise now. Raises what source
    and judge raise; everything that came until then is stored.
    """
    found = firsts
    records: list[Record] = []
    for turn in range(2, plan.turns + 1):
        failed = [(ask, record) for ask, record in found if is_judged(record) and not is_passed(record)]
        asks = [ask_again(ask, record, plan, turn) for ask, record in failed]
        of_turn = lambda what, done, total, turn=turn: on_progress(f"{what}, turn {turn}", done, total)  # noqa: E731
        await gather(source, judge, asks, plan, store, of_turn)
        found = [(ask, record) for ask in asks if (record := store.get(ask.key)) is not None]
        records += [record for _, record in found]
    return store.finish(key_of(record) for record in records)


def ask_again(ask: Ask, record: Record, plan: Plan, turn: int) -> Ask:
    """What is asked after an answer that was judged and did not pass."""
    assert plan.grader is not None
    fields = {name: record[name] for name in NO_VERDICT if name != "fault"}
    try:
        verdict = Graded.model_validate({"id": "earlier", "cpu_ms": 0, "wall_ms": 0, **fields})
    except ValidationError as error:
        raise Misuse(f"{record['prompt_id']}: its stored verdict is none of ours: {explain(error)}") from None
    message = repair_turn(GraderName(plan.grader), reply(verdict))
    said = continued(ask.prompt, with_opening(plan.opening, str(record["completion"])), clean(message))
    seed = seed_of(plan.seed, ask.mode, ask.problem.id, ask.sample, turn)
    return replace(ask, turn=turn, said=said, seed=seed)


def continued(prompt: Prompt, completion: str, message: str) -> Prompt:
    """A conversation with one more answer and one more turn of the user; of a text, the same one below the other.

    Answers in chats are without thoughts, as models expect of earlier turns.
    """
    if isinstance(prompt, str):
        return f"{prompt}{completion}\n\n{message}\n\n"
    answer: Message = {"role": "assistant", "content": after_thinking(completion).lstrip("\n")}
    return [*prompt, answer, {"role": "user", "content": message}]


# --------------------------------------------------------------------------------------------------------- terminals


@contextmanager
def progress_bar(console: Console) -> Iterator[OnProgress]:
    """A bar for what is written and one for what is graded, where somebody is there to see them."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bars: dict[str, Any] = {}

        def on_progress(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done)

        yield on_progress


def say_troubles(console: Console, records: Sequence[Record]) -> None:
    """Print what was not written and not judged, in a line each: how many of which kind, and the last message."""
    for what, column in (("were not written", "error"), ("could not be judged", "fault")):
        found = [record[column] for record in records if record.get(column) is not None]
        kinds = Counter(trouble["kind"] for trouble in found).most_common()
        if found:
            counts = ", ".join(f"{count} x {kind}" for kind, count in kinds)
            line = f"gradus: {len(found)} of {len(records)} completions {what}: {counts}; the last: "
            console.print(line + found[-1]["message"], highlight=False, markup=False, soft_wrap=True)
