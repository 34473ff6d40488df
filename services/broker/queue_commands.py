"""What operators do with a queue, from the command line and over REST: counts, cancelling, dead
letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from pydantic import ValidationError

from gradus.descriptions import grader_named
from gradus.errors import Misuse, UnknownGrader
from services.broker import Broker, DeadLetter, Job, QueueState
from services.broker.jobs import parse_payload

REQUEUED_FOR_S = 3600.0
"""Deadline of a dead letter that is queued again, in seconds from then."""


class UnknownDeadLetter(Misuse):
    """No dead letter of the grader has that job."""

    status: ClassVar[int] = 404


async def count_jobs(broker: Broker, graders: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return by grader, those with a live worker included: live workers, their slots, jobs by
    state, state of the queue."""
    live = await broker.graders()
    rows: dict[str, dict[str, Any]] = {}
    for name in sorted({*graders, *(info.name for info in live)}):
        infos = [info for info in live if info.name == name]
        workers = {
            "workers": sum(info.workers for info in infos),
            "slots": sum(info.slots for info in infos),
        }
        stats = asdict(await broker.get_queue_stats(name))
        rows[name] = workers | stats | {"state": (await broker.get_queue_state(name)).value}
    return rows


async def require_grader(broker: Broker, grader: str) -> None:
    """Check that `grader` ships, is installed here, has a live worker, or has jobs or a state of
    its own in the queue. Raises UnknownGrader."""
    try:
        grader_named(grader)
    except UnknownGrader:
        live = {info.name for info in await broker.graders()}
        stats = await broker.get_queue_stats(grader)
        state = await broker.get_queue_state(grader)
        if grader not in live and not any(asdict(stats).values()) and state is QueueState.OPEN:
            raise


async def cancel(broker: Broker, grader: str, jobs: Sequence[str], run: str) -> int:
    """Cancel `jobs`, or all jobs that `run` alone waits for. Returns their number. Raises
    Misuse."""
    if bool(jobs) == bool(run):
        raise Misuse(
            "name either jobs or a run: `gradus queue jobs` and `GET /v1/queues/{grader}/jobs` list"
            " both"
        )
    return await broker.revoke(
        grader, jobs or [job.id for job in await broker.list_unfinished(grader)], run
    )


async def get_dead_letter(broker: Broker, grader: str, job: str) -> DeadLetter:
    """Raise UnknownDeadLetter."""
    for letter in await broker.dead_letters(grader):
        if letter.job.id == job:
            return letter
    raise UnknownDeadLetter(
        "there is no dead letter of this job; `gradus queue dead-letters list` prints those"
        " there are"
    )


async def requeue(broker: Broker, grader: str, job: str) -> None:
    """Queue a dead letter again, for `REQUEUED_FOR_S`. Its verdict is cached.

    Raises Misuse for a letter that is not there or cannot be read, and QueueFull.
    """
    letter = await get_dead_letter(broker, grader, job)
    try:
        payload = parse_payload(letter.job.payload)
    except ValidationError:
        raise Misuse("this dead letter cannot be read, so no worker can grade it") from None
    payload = payload.model_copy(update={"deadline": await broker.get_time() + REQUEUED_FOR_S})
    await broker.submit([Job(job, grader, payload.model_dump_json())])
    await broker.remove_dead_letters(grader, [job])


async def purge(broker: Broker, grader: str) -> int:
    """Delete all dead letters of the grader. Returns their number."""
    jobs = [letter.job.id for letter in await broker.dead_letters(grader)]
    await broker.remove_dead_letters(grader, jobs)
    return len(jobs)
