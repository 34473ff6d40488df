"""Registrations of live workers, summed per grader revision, and the descriptions of graders."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from gradus.descriptions import GraderDescription, GraderInfo
from services.broker import Broker


def summarize_workers(registered: Iterable[tuple[str, GraderInfo]]) -> list[GraderInfo]:
    """One entry per grader revision out of (worker, info) pairs, `workers` and `slots` added up, sorted by revision."""
    summary: dict[str, GraderInfo] = {}
    for _, info in sorted(registered, key=lambda pair: (pair[1].grader, pair[0])):
        if known := summary.get(info.grader):
            info = info.model_copy(update={"workers": known.workers + info.workers, "slots": known.slots + info.slots})
        summary[info.grader] = info
    return list(summary.values())


async def remember_description(broker: Broker, grader: str, description: GraderDescription, ttl_s: float) -> None:
    """Keep the description of `grader`, which is name@revision. Raises QueueFault."""
    await broker.put_note(f"grader:{grader}", description.model_dump_json(), ttl_s)


async def recall_description(broker: Broker, grader: str) -> GraderDescription | None:
    """The description of name@revision; None where none is kept, or one that this release cannot read.

    Raises QueueFault.
    """
    text = await broker.get_note(f"grader:{grader}")
    try:
        return None if text is None else GraderDescription.model_validate_json(text)
    except ValidationError:
        return None
