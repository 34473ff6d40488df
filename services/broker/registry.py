"""What live workers announced, summed up per grader. Keeps nothing: each broker does that itself."""

from __future__ import annotations

from collections.abc import Iterable

from gradus.contract import GraderInfo


def summed(announced: Iterable[tuple[str, GraderInfo]]) -> list[GraderInfo]:
    """One entry per grader revision out of (worker, info) pairs, `workers` and `slots` added up, sorted by name."""
    found: dict[str, GraderInfo] = {}
    for _, info in sorted(announced, key=lambda pair: (pair[1].grader, pair[0])):
        known = found.get(info.grader)
        found[info.grader] = info if known is None else _added(known, info)
    return list(found.values())


def _added(known: GraderInfo, info: GraderInfo) -> GraderInfo:
    return known.model_copy(update={"workers": known.workers + info.workers, "slots": known.slots + info.slots})
