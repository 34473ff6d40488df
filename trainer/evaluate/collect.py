"""From a plan to its records: what is missing is written by a source and judged by a judge, both at the same time.

Everything is stored as it comes, so that a run which ends early is continued by the next. Makes no figures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gradus.contract import MAX_BATCH
from trainer.evaluate.asking import Ask, Key, Outcome, Plan, Source, Written, asks_of
from trainer.evaluate.judging import Judge
from trainer.evaluate.measure import Problem
from trainer.evaluate.store import Completions
from trainer.rewards import NO_VERDICT, Record, clean, outcome_of, with_opening

OnProgress = Callable[[str, int, int], None]
"""(`written` or `graded`, how many so far, of how many)."""
HANDFUL = 32
"""Completions that are sent to the judge at once, at most."""
GRADING_AT_ONCE = 2


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
    grader = (await judge.info()).grader if judge is not None else None
    missing = {ask.key for ask in asks if _is_unwritten(ask, store.get(ask.key))}
    written = [ask for ask in asks if ask.key not in missing]
    unjudged = [] if judge is None else [ask for ask in written if not _is_judged(store.get(ask.key), grader)]
    work = _Work(source, judge, plan, store, on_progress, len(asks), len(asks) - len(missing))
    work.graded = len(asks) - len(missing) - len(unjudged)
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
        tasks = [asyncio.create_task(self._grade()) for _ in range(GRADING_AT_ONCE if self.judge else 0)]
        tasks.append(asyncio.create_task(self._write(asks, missing)))
        try:
            # A judge that fails must not wait for the last completion, nor the other way round.
            await _first_failure(tasks)
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
        for _ in range(GRADING_AT_ONCE):
            self.queue.put_nowait(None)

    async def _grade(self) -> None:
        assert self.judge is not None
        while handful := await self._handful():
            submissions = [submission_of(ask.problem, self._text(ask), str(n)) for n, ask in enumerate(handful)]
            results = await self.judge.grade(submissions, self.plan.rubric)
            stored = [self.store.get(ask.key) or {} for ask in handful]
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

    def _text(self, ask: Ask) -> str:
        record = self.store.get(ask.key)
        return str(record["completion"]) if record else ""

    def _count_graded(self, count: int) -> None:
        if self.judge is not None:
            self.graded += count
            self.on_progress("graded", self.graded, self.total)


async def _first_failure(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for all; the first exception ends the wait."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


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
