"""Grading in this process: no broker, no cache, no network. Identical submissions are graded once.

`gradus.local` finds `open_local` by its entry point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from gradus.contract import Faulted, Graded, Submission, compute_job_id, replace_id
from gradus.descriptions import GraderDescription, GraderInfo
from gradus.errors import Misuse
from services.graders.base import Grader, get_default_slots, load, set_memory_aside
from services.worker import grade_with_retries


def grade_in_order(
    grader: Grader, submissions: Iterable[Submission], rubric: str, slots: int | None = None
) -> Iterator[Graded | Faulted]:
    """Yield one result per submission, in order, as soon as all before it are there. Identical ones
    are graded once."""
    slots = slots or get_default_slots(grader)
    free: SimpleQueue[int] = SimpleQueue()
    for slot in range(slots):
        free.put(slot)
    revision = grader.info().grader

    def grade(submission: Submission) -> Graded | Faulted | None:
        slot = free.get()
        try:
            return grade_with_retries(grader, submission, rubric, slot, brief=False)
        finally:
            free.put(slot)

    pool = ThreadPoolExecutor(slots)
    try:
        graded: dict[str, Future[Any]] = {}
        pending: list[tuple[str, Future[Any]]] = []
        for submission in submissions:
            key = compute_job_id(revision, rubric, submission)
            if key not in graded:
                graded[key] = pool.submit(grade, submission)
            pending.append((submission.id, graded[key]))
        for submission_id, result in pending:
            yield replace_id(result.result(), submission_id)
    finally:
        pool.shutdown(
            cancel_futures=True
        )  # after Ctrl-C or a closed pipe, queued submissions are not graded


class OfflineGrader:
    """A `gradus.local.LocalGrader`. Raises SandboxFault where the slots' boxes can never fit."""

    def __init__(self, grader: Grader, slots: int | None) -> None:
        self._grader = grader
        self._slots = slots or get_default_slots(grader)
        set_memory_aside(grader, self._slots)
        self._is_proven = False

    def info(self) -> GraderInfo:
        return self._grader.info()

    def self_test(self) -> None:
        if not self._is_proven:
            self._grader.self_test()
            self._is_proven = True

    def description(self) -> GraderDescription:
        return self._grader.description()

    def grade(
        self, submissions: Sequence[Submission], rubric: str | None = None
    ) -> Iterator[Graded | Faulted]:
        info = self.info()
        if rubric is not None and rubric not in info.rubrics:
            raise Misuse(
                f"grader '{info.name}' has no rubric {rubric!r}; it has: {', '.join(info.rubrics)}"
            )
        self.self_test()
        return grade_in_order(self._grader, submissions, rubric or info.rubrics[0], self._slots)


def open_local(grader: str, config: Path | None = None, slots: int | None = None) -> OfflineGrader:
    """Raise UnknownGrader, and Fault when the grader cannot start."""
    return OfflineGrader(load(grader, config=config), slots)
