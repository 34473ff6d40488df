"""Grading without a server: the same grader on the same machine, for `gradus grade` and `gradus tasks validate`.

No broker, no cache, no network. Identical submissions are graded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from gradus.contract import Faulted, Graded, Submission, job_id_of, with_id
from services.graders.base import Grader, usual_slots
from services.worker import grade_safely


def grade_in_order(
    grader: Grader, submissions: Iterable[Submission], rubric: str, slots: int | None = None
) -> Iterator[Graded | Faulted]:
    """One result per submission, in order, as soon as it and those before it are there."""
    slots = slots or usual_slots(grader)
    free: SimpleQueue[int] = SimpleQueue()
    for slot in range(slots):
        free.put(slot)
    revision = grader.info().grader

    def grade(submission: Submission) -> Graded | Faulted:
        slot = free.get()
        try:
            return grade_safely(grader, submission, rubric, slot)
        finally:
            free.put(slot)

    pool = ThreadPoolExecutor(slots)
    try:
        graded: dict[str, Future[Graded | Faulted]] = {}
        asked = []
        for submission in submissions:
            key = job_id_of(revision, rubric, submission)
            if key not in graded:
                graded[key] = pool.submit(grade, submission)
            asked.append((submission.id, graded[key]))
        for submission_id, future in asked:
            yield with_id(future.result(), submission_id)
    finally:
        pool.shutdown(cancel_futures=True)  # whoever stops asking, by Ctrl-C or a closed pipe, waits for no others
