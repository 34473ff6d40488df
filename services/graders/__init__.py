"""What a grader is, and the table of graders. Imports none of them: a worker loads its one grader by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from gradus.contract import Graded, GraderInfo, GraderName, Submission
from gradus.errors import InternalFault, UnknownGrader

GRADERS: Mapping[GraderName, str] = {
    GraderName.OCAML: "services.graders.ocaml.grader:OcamlGrader",
    GraderName.RUST: "services.graders.rust.grader:RustGrader",
    GraderName.STORY: "services.graders.story.grader:StoryGrader",
    GraderName.PREFERENCE: "services.graders.preference.grader:PreferenceGrader",
}
"""Name -> where its class is. One line here, one folder beside, one config, five cases: that is a grader."""

_OURS = ("gradus", "services")

WAITING_SLOTS: Mapping[GraderName, int] = {GraderName.STORY: 64, GraderName.PREFERENCE: 64}
"""Graders whose slots wait most of the time for a model that they share: with many it has much to batch."""


class NotNamed(InternalFault):
    """Nobody named what this grader is to judge by, and none ships with it."""


class Grader(Protocol):
    def info(self) -> GraderInfo:
        """What this grader is, for `GET /v1/graders` and the result's `grader` and `toolchain`."""
        ...

    def prove(self) -> None:
        """Attack the own sandbox and grade the own cases. Raises Fault, naming what is missing, unless all hold."""
        ...

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        """The verdict on `submission`; blocks. Calls with different slots may overlap.

        Raises Fault for a failure of ours, never for anything that the model wrote.
        """
        ...


def usual_slots(name: GraderName) -> int:
    """How many submissions a worker grades at one time unless told: one per core that it may use, or WAITING_SLOTS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return WAITING_SLOTS.get(name, cores)


def load(name: GraderName, **settings: Any) -> Grader:
    """Make the grader `name`. Raises UnknownGrader when it is not part of this version, Fault when it cannot start."""
    if name not in GRADERS:
        available = ", ".join(sorted(grader.value for grader in GRADERS))
        raise UnknownGrader(f"this version has no grader {name.value!r} yet; it has: {available}")
    module, _, attribute = GRADERS[name].partition(":")
    grader: Grader = getattr(_imported(name, module), attribute)(**settings)
    return grader


def _imported(name: GraderName, module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in _OURS:
            raise
        extra = name.value if name in WAITING_SLOTS else "worker"
        message = f"the {name.value} grader needs the package {package}: pip install 'gradus[{extra}]'"
        raise InternalFault(message, retryable=False) from None
