"""One folder of a run or of `gradus eval`, followed: logs, completions, evaluations, settings,
state."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from gradus.folder_lock import is_abandoned
from services.dashboard.evaluations import Evaluations, bounded
from services.dashboard.files import ConfinedDirectory, Json, JsonlTail, parsed
from services.dashboard.groups import Groups
from services.dashboard.series import StepLog, finite

LOGS = ("metrics.jsonl", "sft_metrics.jsonl", "config.resolved.json", "training.log")
PLAN, FIGURES = "plan.json", ("results.json", "calls.json", "declines.json")
"""What `gradus eval` leaves first and last."""
MARKERS = (*LOGS, "completions.jsonl", PLAN, *FIGURES)
"""A folder with one of these is followed; so is one with evaluations."""
UNGRADED = ("sft", "dpo", "reward", "pretrain")
"""Stages that learn from rows or texts: they have no completions and pass no tasks."""
COMPARISONS = "comparison.json"
"""What `gradus report` found when it compared the measurements before and after, for each way of
sampling."""
SMALL_FILES = (
    "config.resolved.json",
    "environment.json",
    PLAN,
    COMPARISONS,
    "training.log",
    "final",
    *FIGURES,
)
"""Files that are read whole, again when they change; of the figures and the final model only the
date counts."""
STALLED_AFTER_S = 300.0
"""Without a new line for so long, or for so many times the time of a step, a run is said to be
stalled."""
STALLED_AFTER_STEPS = 10
LOCKS = (".lock", ".completions.jsonl.lock")
"""Held by `gradus train` and by `gradus eval` while they write."""
ENDED_AFTER_S = 10.0
"""Seconds without a new line before a lock that is not held counts: results are written after the
lock is released."""
MAX_CONFIG_BYTES = 2 << 20
LOG_BYTES = 8 << 10
LOG_LINES = 20
MAX_SETTINGS, MAX_VALUE_CHARS = 600, 500
USER_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")


class State(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    """It stopped early and said why, or it is an evaluation that can be continued."""
    REFUSED = "refused"
    """Its configuration, tasks or model could not be used."""
    CRASHED = "crashed"
    """It ended with an error, or its process is gone without a word."""
    STALLED = "stalled"
    """Its process writes nothing, or cannot be seen from here."""


class FollowedRun:
    """What is known of the run in one folder."""

    def __init__(self, confined: ConfinedDirectory, path: Path, run_id: str) -> None:
        self.id = run_id
        self.path = path
        self.version = 0
        """Grows with every change."""
        self.metrics, self.warm_start = StepLog(), StepLog()
        self.groups = Groups()
        self.config: Json = {}
        self.environment: Json = {}
        self.plan: Json = {}
        self.comparisons: list[Json] = []
        self.log_lines: list[str] = []
        self.evaluations = Evaluations(confined, path)
        self.confined = confined
        self.completions_path = path / "completions.jsonl"
        names = "metrics.jsonl", "sft_metrics.jsonl", "completions.jsonl"
        self._followed = [JsonlTail(confined, path / name) for name in names]
        self._small: dict[str, tuple[int, ...]] = {}
        """Inode, size and date in nanoseconds of each of SMALL_FILES; empty for one that is not
        there."""

    def look(self) -> tuple[bool, bool]:
        """Read on, at most a chunk of each file; whether anything changed, and whether there is
        more to read."""
        small = [self._look_at_small_file(name) for name in SMALL_FILES]
        metrics, warm_start, completions = (file.look() for file in self._followed)
        if metrics.from_start:
            self.metrics = StepLog()
        if warm_start.from_start:
            self.warm_start = StepLog()
        if completions.from_start:
            self.groups = Groups(self.group_size)
        for line in metrics.lines:
            self.metrics.add(line.record)
        for line in warm_start.lines:
            self.warm_start.add(line.record)
        for line in completions.lines:
            self.groups.add(line)
        evaluations, more = self.evaluations.look()
        changed = any((*small, metrics, warm_start, completions, evaluations))
        self.version += changed
        return changed, metrics.more or warm_start.more or completions.more or more

    def _look_at_small_file(self, name: str) -> bool:
        """Read a file that is new or changed; returns whether it is."""
        path = self.path / name
        try:
            status = os.stat(path)
            seen: tuple[int, ...] = (status.st_ino, status.st_size, status.st_mtime_ns)
        except OSError:
            seen = ()
        if seen == self._small.get(name, ()):
            return False
        self._small[name] = seen
        match name:
            case "config.resolved.json":
                self.config = self._json(path)
                self.groups.group_size = self.group_size
            case "environment.json":
                self.environment = bounded(self._json(path))
            case "plan.json":
                self.plan = bounded(self._json(path))
            case "comparison.json":
                given = self._json(path).get("comparisons")
                found = given if isinstance(given, list) else []
                self.comparisons = [bounded(one) for one in found if isinstance(one, Mapping)]
            case "training.log":
                text = self.confined.read_end(path, LOG_BYTES).decode("utf-8", "replace")
                self.log_lines = [line for line in text.split("\n") if line.strip()][-LOG_LINES:]
        return True

    def _json(self, path: Path) -> Json:
        data = self.confined.read(path, MAX_CONFIG_BYTES)
        return (parsed(data) if data else None) or {}

    @property
    def is_evaluation(self) -> bool:
        """A folder of `gradus eval`, and no run."""
        is_run = self.config or self.log_lines or self.metrics.step is not None
        return not is_run and any(self._small.get(name) for name in (PLAN, *FIGURES))

    def _written_at(self, *names: str) -> float:
        """Unix time of the newest of these small files; 0 while there is none."""
        return max(
            (found[2] / 1e9 for name in names if (found := self._small.get(name))), default=0.0
        )

    @property
    def is_set_aside(self) -> bool:
        """An earlier run of the same folder."""
        return re.fullmatch(r"previous-[0-9]+", self.path.name) is not None

    @property
    def changed_at(self) -> float:
        """When it last wrote anything, by the clock of the file system; 0 if it never did."""
        small = self._written_at("training.log", "final", *FIGURES)
        return max(small, *(file.changed_at for file in self._followed))

    @property
    def unreadable(self) -> Mapping[str, int]:
        """Lines and files that could not be read, by file."""
        found = {file.path.name: file.unreadable for file in self._followed if file.unreadable}
        return {**found, **{name: 1 for name in sorted(self.evaluations.unreadable)}}

    @property
    def group_size(self) -> int | None:
        return self._positive_option("num_generations", 100_000)

    @property
    def max_steps(self) -> int | None:
        return self._positive_option("max_steps", 10**12)

    @property
    def stage(self) -> str:
        """How it trains."""
        return str(self.config.get("stage") or "grpo")[:40]

    @property
    def grader(self) -> str:
        """The grader of the evaluation, else that of the rewards."""
        if self.is_evaluation:
            return str(self._evaluated("grader") or "")[:40]
        judged = next(iter(self.groups.graders), "").partition("@")[0]
        return str(self._setting("reward", "grader") or judged)[:40]

    @property
    def model(self) -> str:
        """The model that was measured in an evaluation, else the one that is trained."""
        return str(
            (self._evaluated("model") if self.is_evaluation else self._setting("model", "name"))
            or ""
        )[:200]

    def _evaluated(self, name: str) -> Any:
        found = self.evaluations.in_order()
        return (found[-1].given if found else self.plan).get(name)

    def _positive_option(self, name: str, most: int) -> int | None:
        """An option of the stage; those of a reward model are not in `reward`, which is about
        grading."""
        given = (
            finite(self._setting(section, name)) for section in (self.stage, f"{self.stage}_model")
        )
        return next(
            (int(value) for value in given if value is not None and 1 <= value <= most), None
        )

    def _setting(self, *names: str) -> Any:
        value: Any = self.config
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def state(self, now: float) -> tuple[State, str]:
        """The state, and why in words. `now` is Unix time."""
        if self.is_evaluation and self._written_at(*FIGURES):
            return State.FINISHED, "all its figures are there"
        last = self.log_lines[-1] if self.log_lines else ""
        metrics, _, completions = self._followed
        final_at = self._written_at("final")
        if final_at and final_at >= max(metrics.changed_at, completions.changed_at) - 1:
            return State.FINISHED, "the final model is saved"
        for line in reversed(self.log_lines[-3:]):
            if found := re.search(r" (stopped|refused|crashed): (.*)", line):
                return State(found[1]), found[2][:300]
        if " stopped " in last or "Start again with the same config" in last:
            return State.STOPPED, last[:300]
        if not self.changed_at:
            return State.FINISHED, "it holds evaluations only"
        silent_s = now - self.changed_at
        if silent_s > ENDED_AFTER_S and self._is_abandoned():
            if self.is_evaluation:
                return State.STOPPED, "its process ended; the same command resumes from here"
            return (
                State.CRASHED,
                "its process ended without a message, as after SIGKILL or without memory",
            )
        step_s = self.metrics.latest.get("step_time", 0.0)
        if silent_s > max(STALLED_AFTER_S, STALLED_AFTER_STEPS * step_s):
            return State.STALLED, "it has written nothing for a long time"
        return State.RUNNING, ""

    def _is_abandoned(self) -> bool:
        """Whether the process that wrote here is known to have ended."""
        for file in (self.confined.open(self.path / name) for name in LOCKS):
            if file is not None:
                with file:
                    return is_abandoned(file)
        return self.is_set_aside

    def missing(self) -> list[str]:
        """What is not there, and what is therefore unknown, in sentences."""
        if self.is_evaluation:
            return (
                []
                if self.evaluations.in_order()
                else ["results.json is not there: nothing was measured yet."]
            )
        found = []
        if not self.config:
            found.append(
                "config.resolved.json is not there or cannot be read: the settings are unknown."
            )
        if not self.metrics.logged and not self.warm_start.logged:
            found.append(
                "metrics.jsonl is not there or holds no steps: there are no training curves."
            )
        if self.stage not in UNGRADED:
            if not self.groups.completions:
                unknown = "parts of the reward, flags and faults of the training steps are unknown."
                found.append(f"completions.jsonl is not there or empty: {unknown}")
            measured = self.evaluations.before_and_after()
            if not measured:
                found.append(
                    "eval/ holds no evaluation: what the model can do on held-out tasks was not"
                    " measured."
                )
            elif len(measured) == 1:
                found.append(
                    "eval/ holds only one evaluation: there is nothing to compare it with."
                )
        for name, lines in self.unreadable.items():
            what = f"{lines} of its lines" if name.endswith(".jsonl") else "it"
            found.append(f"{name}: {what} could not be read and is left out.")
        return found

    def settings(self) -> list[tuple[str, str]]:
        """The resolved configuration, flat: dotted names and values, without what URLs say of
        users."""
        found: list[tuple[str, str]] = []
        waiting: list[tuple[str, Any]] = [("", self.config)]
        while waiting and len(found) < MAX_SETTINGS:
            name, value = waiting.pop(0)
            if isinstance(value, Mapping) and value:
                waiting = [
                    (f"{name}.{key}" if name else str(key), part) for key, part in value.items()
                ] + waiting
            elif name:
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                found.append((name[:200], USER_IN_URL.sub("…@", text)[:MAX_VALUE_CHARS]))
        return found
