"""Graders on this machine, without a service. A wing provides them (`gradus.wings`); this module
imports none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gradus.errors import Misuse
from gradus.wings import load_entry_points

if TYPE_CHECKING:
    from gradus.contract import Faulted, Graded, Submission
    from gradus.descriptions import GraderDescription, GraderInfo


class LocalGrader(Protocol):
    """One grader of this machine. `grade` proves it before the first submission."""

    def info(self) -> GraderInfo: ...

    def description(self) -> GraderDescription: ...

    def self_test(self) -> None:
        """Self-test, run once. Raises Fault when it fails."""
        ...

    def grade(
        self, submissions: Sequence[Submission], rubric: str | None = None
    ) -> Iterator[Graded | Faulted]:
        """Return one result per submission, in order. `rubric`: None is the grader's first.

        Calls must not overlap. Raises Misuse for an unknown rubric, Fault when the self-test fails.
        """
        ...


def open_local(grader: str, config: Path | None = None, slots: int | None = None) -> LocalGrader:
    """Start a grader on this machine, with its shipped configuration unless `config` names one.

    Raises Misuse when no installed wing has graders, UnknownGrader for an unknown name, Fault when
    it cannot start.
    """
    openers = load_entry_points("gradus.local")
    if not openers:
        raise Misuse(
            "no graders are installed on this machine: grade on a running service, with --url"
        )
    local: LocalGrader = openers[0](grader, config, slots)
    return local
