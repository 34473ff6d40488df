"""One folder of a run or of `gradus eval`, followed: logs, completions, evaluations, settings, state. Shows nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from services.dashboard.confined_files import ConfinedDirectory
from services.dashboard.evaluations import Evaluations, bounded
from services.dashboard.groups import Groups
from services.dashboard.jsonl_tail import Json, JsonlTail, TailUpdate, parsed
from services.dashboard.run_alerts import RunAlert, alerts_of
from services.dashboard.series import StepLog, finite

LOGS = ("metrics.jsonl", "sft_metrics.jsonl", "config.resolved.json", "training.log")
PLAN, FIGURES = "plan.json", ("results.json", "calls.json", "declines.json")
"""What `gradus eval` leaves first and last."""
MARKERS = (*LOGS, "completions.jsonl", PLAN, *FIGURES)
"""A folder with one of these is followed; so is one with evaluations."""
UNGRADED = ("sft", "dpo", "reward", "pretrain")
"""Stages that learn from rows or texts: they have no completions and pass no tasks."""
COMPARISONS = "comparison.json"
"""What `gradus report` found when it compared the measurements before and after, for each way of sampling."""
STALLED_AFTER_S = 300.0
"""Without a new line for so long, or for so many times the time of a step, a run is said to be stalled."""
STALLED_AFTER_STEPS = 10
MAX_CONFIG_BYTES = 2 << 20
LOG_BYTES = 8 << 10
LOG_LINES = 20
USER_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")


class State(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    """It said itself that it stopped, and why."""
    REFUSED = "refused"
    """Its configuration, tasks or model could not be used."""
    CRASHED = "crashed"
    """It ended with an error."""
    STALLED = "stalled"


ENDS = (State.STOPPED, State.REFUSED, State.CRASHED)


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
        self._metrics_file = JsonlTail(confined, path / "metrics.jsonl")
        self._warm_start_file = JsonlTail(confined, path / "sft_metrics.jsonl")
        self._completions_file = JsonlTail(confined, path / "completions.jsonl")
        self._small: dict[str, tuple[int, ...]] = {}
        self._log_changed_at = 0.0
        self._final_at = 0.0

    def look(self) -> tuple[bool, bool]:
        """Read on, at most a chunk of each file; whether anything changed, and whether there is more to read."""
        looks = (self._look_at_small_files, self._look_at_logs, self._look_at_completions, self.evaluations.look)
        found = [look() for look in looks]
        changed = any(one[0] for one in found)
        self.version += changed
        return changed, any(one[1] for one in found)

    # ------------------------------------------------------------------------------------------------------- files

    def _look_at_logs(self) -> tuple[bool, bool]:
        metrics, warm_start = self._metrics_file.look(), self._warm_start_file.look()
        if metrics.from_start:
            self.metrics = StepLog()
        if warm_start.from_start:
            self.warm_start = StepLog()
        for news, log in ((metrics, self.metrics), (warm_start, self.warm_start)):
            for line in news.lines:
                log.add(line.record)
        return bool(metrics or warm_start), metrics.more or warm_start.more

    def _look_at_completions(self) -> tuple[bool, bool]:
        news: TailUpdate = self._completions_file.look()
        if news.from_start:
            self.groups = Groups(self.group_size)
        for line in news.lines:
            self.groups.add(line)
        return bool(news), news.more

    def _look_at_small_files(self) -> tuple[bool, bool]:
        actions: Mapping[str, Callable[[Path, float], None] | None] = {
            "config.resolved.json": self._read_config,
            "environment.json": self._read_environment,
            PLAN: self._read_plan,
            COMPARISONS: self._read_comparisons,
            "training.log": self._read_log,
            "final": self._note_final,
            **dict.fromkeys(FIGURES),
        }
        changed = False
        for name, action in actions.items():
            path = self.path / name
            try:
                status = os.stat(path)
                seen: tuple[int, ...] = (status.st_ino, status.st_size, status.st_mtime_ns)
            except OSError:
                status, seen = None, ()
            if seen != self._small.get(name, ()):
                self._small[name] = seen
                if action is not None:
                    action(path, status.st_mtime if status else 0.0)
                changed = True
        return changed, False

    def _json(self, path: Path) -> Json:
        data = self.confined.read(path, MAX_CONFIG_BYTES)
        return (parsed(data) if data else None) or {}

    def _read_config(self, path: Path, changed_at: float) -> None:
        self.config = self._json(path)
        self.groups.group_size = self.group_size

    def _read_environment(self, path: Path, changed_at: float) -> None:
        self.environment = bounded(self._json(path))

    def _read_plan(self, path: Path, changed_at: float) -> None:
        self.plan = bounded(self._json(path))

    def _read_comparisons(self, path: Path, changed_at: float) -> None:
        given = self._json(path).get("comparisons")
        self.comparisons = (
            [bounded(one) for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
        )

    def _read_log(self, path: Path, changed_at: float) -> None:
        text = self.confined.read_end(path, LOG_BYTES).decode("utf-8", "replace")
        self.log_lines = [line for line in text.split("\n") if line.strip()][-LOG_LINES:]
        self._log_changed_at = changed_at

    def _note_final(self, path: Path, changed_at: float) -> None:
        self._final_at = changed_at

    # ------------------------------------------------------------------------------------------------------- words

    @property
    def is_evaluation(self) -> bool:
        """A folder of `gradus eval`, and no run."""
        is_run = self.config or self.log_lines or self.metrics.step is not None
        return not is_run and any(self._small.get(name) for name in (PLAN, *FIGURES))

    @property
    def _figures_at(self) -> float:
        """When `gradus eval` wrote its figures; 0 while it has not."""
        return max((found[2] / 1e9 for name in FIGURES if (found := self._small.get(name))), default=0.0)

    @property
    def is_set_aside(self) -> bool:
        """An earlier run of the same folder."""
        return re.fullmatch(r"previous-[0-9]+", self.path.name) is not None

    @property
    def changed_at(self) -> float:
        """When it last wrote anything, by the clock of the file system; 0 if it never did."""
        files = (self._metrics_file, self._warm_start_file, self._completions_file)
        return max(self._log_changed_at, self._final_at, self._figures_at, *(file.changed_at for file in files))

    @property
    def unreadable(self) -> Mapping[str, int]:
        """Lines and files that could not be read, by file."""
        files = (self._metrics_file, self._warm_start_file, self._completions_file)
        found = {file.path.name: file.unreadable for file in files if file.unreadable}
        return {**found, **{name: 1 for name in sorted(self.evaluations.unreadable)}}

    @property
    def completions_path(self) -> Path:
        return self._completions_file.path

    @property
    def group_size(self) -> int | None:
        size = finite(self._option("num_generations"))
        return int(size) if size is not None and 1 <= size <= 100_000 else None

    @property
    def max_steps(self) -> int | None:
        steps = finite(self._option("max_steps"))
        return int(steps) if steps is not None and 0 < steps <= 1e12 else None

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
        return str((self._evaluated("model") if self.is_evaluation else self._setting("model", "name")) or "")[:200]

    def _evaluated(self, name: str) -> Any:
        found = self.evaluations.in_order()
        return (found[-1].given if found else self.plan).get(name)

    def _option(self, name: str) -> Any:
        """One of the options of the stage; those of a reward model are not in `reward`, which is about grading."""
        value = self._setting(self.stage, name)
        return value if value is not None else self._setting(f"{self.stage}_model", name)

    def _setting(self, *names: str) -> Any:
        value: Any = self.config
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def alerts(self) -> list[RunAlert]:
        return alerts_of(self.metrics, self.evaluations.in_order())

    def state(self, now: float) -> tuple[State, str]:
        """The state, and why in words. `now` is Unix time."""
        if self.is_evaluation and self._figures_at:
            return State.FINISHED, "all its figures are there"
        last = self.log_lines[-1] if self.log_lines else ""
        log_at = max(self._metrics_file.changed_at, self._completions_file.changed_at)
        if self._final_at and self._final_at >= log_at - 1:
            return State.FINISHED, "the final model is saved"
        for line in reversed(self.log_lines[-3:]):
            for end in ENDS:
                if f" {end.value}: " in line:
                    return end, line.partition(f" {end.value}: ")[2][:300]
        if " stopped " in last or "Start again with the same config" in last:
            return State.STOPPED, last[:300]
        if not self.changed_at:
            return State.FINISHED, "it holds evaluations only"
        step_s = mean if (mean := self.metrics.latest.get("step_time")) else 0.0
        silent_s, patience_s = now - self.changed_at, max(STALLED_AFTER_S, STALLED_AFTER_STEPS * step_s)
        if silent_s > patience_s:
            return State.STALLED, "it has written nothing for a long time"
        return State.RUNNING, ""

    def missing(self) -> list[str]:
        """What is not there, and what is therefore unknown, in sentences."""
        if self.is_evaluation:
            return [] if self.evaluations.in_order() else ["results.json is not there: nothing was measured yet."]
        found = []
        if not self.config:
            found.append("config.resolved.json is not there or cannot be read: the settings are unknown.")
        if not self.metrics.logged and not self.warm_start.logged:
            found.append("metrics.jsonl is not there or holds no steps: there are no training curves.")
        if self.stage not in UNGRADED:
            if not self.groups.completions:
                unknown = "parts of the reward, flags and faults of the training steps are unknown."
                found.append(f"completions.jsonl is not there or empty: {unknown}")
            measured = self.evaluations.before_and_after()
            if not measured:
                found.append("eval/ holds no evaluation: what the model can do on held-out tasks was not measured.")
            elif len(measured) == 1:
                found.append("eval/ holds only one evaluation: there is nothing to compare it with.")
        for name, lines in self.unreadable.items():
            what = f"{lines} of its lines" if name.endswith(".jsonl") else "it"
            found.append(f"{name}: {what} could not be read and is left out.")
        return found

    def settings(self) -> list[tuple[str, str]]:
        """The resolved configuration, flat: dotted names and values, without what URLs say of users."""
        return list(_flat(self.config))


MAX_SETTINGS = 600
MAX_VALUE_CHARS = 500


def _flat(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    waiting: list[tuple[str, Any]] = [("", config)]
    while waiting and len(found) < MAX_SETTINGS:
        name, value = waiting.pop(0)
        if isinstance(value, Mapping) and value:
            parts = [(f"{name}.{key}" if name else str(key), part) for key, part in value.items()]
            waiting = parts + waiting
        elif name:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found.append((name[:200], USER_IN_URL.sub("…@", text)[:MAX_VALUE_CHARS]))
    return found
