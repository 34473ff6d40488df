"""One folder of a run or of `gradus eval`, followed: logs, completions, evaluations, settings,
state."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from gradus.folder_lock import is_abandoned
from services.dashboard.evaluations import MAX_CHARS, Evaluations, bound_value
from services.dashboard.files import (
    ConfinedDirectory,
    Identity,
    Json,
    JsonlTail,
    parse_object,
    read_identity,
)
from services.dashboard.groups import Groups
from services.dashboard.series import StepLog, to_finite, to_list, to_mapping

CONFIG, ENVIRONMENT, LOG = "config.resolved.json", "environment.json", "training.log"
FOLLOWED = ("metrics.jsonl", "sft_metrics.jsonl", "completions.jsonl")
PLAN = "plan.json"
# Files that `gradus eval` writes at its end; it writes the plan first.
FIGURES = ("results.json", "calls.json", "declines.json")
# A folder with one of these is followed; so is one with evaluations.
MARKERS = (*FOLLOWED, CONFIG, LOG, PLAN, *FIGURES)
# Stages that learn from rows or texts: they have no completions and pass no tasks.
UNGRADED = ("sft", "dpo", "reward", "pretrain")
# Comparisons by `gradus report` of the measurements before and after, one per way of sampling.
COMPARISONS = "comparison.json"
# Files that are read whole, again when one changes. Of figures and the final model only the date is
# used.
SMALL_FILES = (CONFIG, ENVIRONMENT, PLAN, COMPARISONS, LOG, "final", *FIGURES)
# Seconds without a new line after which a run counts as stalled, at least as long as
# STALLED_AFTER_STEPS steps take.
STALLED_AFTER_S = 300.0
STALLED_AFTER_STEPS = 10
# Files that `gradus train` and `gradus eval` lock while they write.
LOCKS = (".lock", ".completions.jsonl.lock")
# Seconds without a new line before a lock that is not held counts: results are written after the
# lock is released.
ENDED_AFTER_S = 10.0
MAX_CONFIG_BYTES = 2 << 20
LOG_BYTES = 8 << 10
LOG_LINES = 20
MAX_SETTINGS = 600
USER_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")


def has_run(folder: Path, files: Iterable[str]) -> bool:
    """Return whether the folder, with these files, is one of a run or an evaluation."""
    return not set(MARKERS).isdisjoint(files) or any((folder / "eval").glob("*.json"))


class State(StrEnum):
    """State of a run, by the rules of docs/operate/dashboard.md."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    REFUSED = "refused"
    CRASHED = "crashed"
    STALLED = "stalled"


class FollowedRun:
    """The run in one folder, as its files tell."""

    def __init__(self, confined: ConfinedDirectory, path: Path, run_id: str) -> None:
        self.id = run_id
        self.path = path
        self.version = 0  # grows with every change; set by `Runs`
        self.metrics = StepLog()
        self.warm_start = StepLog()
        self.groups = Groups()
        self.config: Json = {}
        self.environment: Json = {}
        self.plan: Json = {}
        self.comparisons: list[Json] = []
        self.log_lines: list[str] = []
        self.evaluations = Evaluations(confined, path)
        self.confined = confined
        self.completions_path = path / "completions.jsonl"
        self._followed = [JsonlTail(confined, path / name) for name in FOLLOWED]
        self._small: dict[str, Identity] = {}  # by name, of existing SMALL_FILES

    def read_changes(self) -> tuple[bool, bool]:
        """Read new lines, at most a chunk of each file. Returns whether anything changed, and
        whether there is more to read."""
        is_changed = self._read_small_files()
        has_more = False
        logs: tuple[StepLog | Groups, ...] = (self.metrics, self.warm_start, self.groups)
        for log, file in zip(logs, self._followed, strict=True):
            update = file.read_changes()
            if update.from_start:
                log.clear()
            for line in update.lines:
                log.add(line)
            is_changed |= bool(update)
            has_more |= update.has_more
        is_changed |= self.evaluations.read_changes()
        return is_changed, has_more

    def _read_small_files(self) -> bool:
        """Read all small files if one is new, changed or gone. Returns whether one is."""
        identities = {name: read_identity(self.path / name) for name in SMALL_FILES}
        small_files = {}
        for name, identity in identities.items():
            if identity is not None:
                small_files[name] = identity
        if small_files == self._small:
            return False
        self._small = small_files
        self.config = self._read_json(CONFIG)
        self.groups.group_size = self.group_size
        self.environment = bound_value(self._read_json(ENVIRONMENT))
        self.plan = bound_value(self._read_json(PLAN))
        comparisons = to_list(bound_value(self._read_json(COMPARISONS)).get("comparisons"))
        self.comparisons = [entry for entry in comparisons if isinstance(entry, dict)]
        log = self.confined.read_end(self.path / LOG, LOG_BYTES).decode("utf-8", "replace")
        self.log_lines = [line for line in log.split("\n") if line.strip()][-LOG_LINES:]
        return True

    def _read_json(self, name: str) -> Json:
        return parse_object(self.confined.read(self.path / name, MAX_CONFIG_BYTES) or b"") or {}

    @property
    def is_evaluation(self) -> bool:
        """Whether this is a folder of `gradus eval` and not of a run."""
        is_run = self.config or self.log_lines or self.metrics.step is not None
        return not is_run and bool(self._small.keys() & {PLAN, *FIGURES})

    def _get_last_write_time(self, *names: str) -> float:
        """Return the Unix time of the newest of these small files; 0 while there is none."""
        dates_ns = [self._small[name][2] for name in names if name in self._small]
        return max(dates_ns, default=0) / 1e9

    @property
    def changed_at(self) -> float:
        """Unix time of the last write, by the clock of the file system; 0 before the first."""
        times = [file.changed_at for file in self._followed]
        return max(self._get_last_write_time(LOG, "final", *FIGURES), *times)

    @property
    def group_size(self) -> int | None:
        return self._get_positive_option("num_generations", 100_000)

    @property
    def max_steps(self) -> int | None:
        return self._get_positive_option("max_steps", 10**12)

    @property
    def stage(self) -> str:
        return str(self.config.get("stage") or "grpo")[:40]

    @property
    def grader(self) -> str:
        """The grader of the evaluation, else that of the rewards."""
        if self.is_evaluation:
            return str(self._get_evaluation_value("grader") or "")[:40]
        judged = next(iter(self.groups.graders), "").partition("@")[0]
        return str(self._get_setting("reward", "grader") or judged)[:40]

    @property
    def model(self) -> str:
        """The model that was measured in an evaluation, else the one that is trained."""
        name = self._get_setting("model", "name")
        if self.is_evaluation:
            name = self._get_evaluation_value("model")
        return str(name or "")[:200]

    def _get_evaluation_value(self, name: str) -> Any:
        for evaluation in self.evaluations.list_by_step()[-1:]:
            return evaluation.content.get(name)
        return self.plan.get(name)

    def _get_positive_option(self, name: str, maximum: int) -> int | None:
        """Return an option of the stage; those of a reward model are not in `reward`, which is
        about grading."""
        for section in (self.stage, f"{self.stage}_model"):
            value = to_finite(self._get_setting(section, name))
            if value is not None and 1 <= value <= maximum:
                return int(value)
        return None

    def _get_setting(self, *names: str) -> Any:
        value: Any = self.config
        for name in names:
            value = to_mapping(value).get(name)
        return value

    def get_state(self, now: float) -> tuple[State, str]:
        """Return the state, and its reason in words. `now` is Unix time."""
        if self.is_evaluation and self._get_last_write_time(*FIGURES):
            return State.FINISHED, "all its figures are written"
        metrics, _, completions = self._followed
        final_at = self._get_last_write_time("final")
        if final_at and final_at >= max(metrics.changed_at, completions.changed_at) - 1:
            return State.FINISHED, "the final model is saved"
        for line in reversed(self.log_lines[-3:]):
            match = re.search(r" (stopped|refused|crashed): (.*)", line)
            if match:
                return State(match[1]), match[2][:300]
        for line in self.log_lines[-1:]:
            if " stopped " in line or "Start again with the same config" in line:
                return State.STOPPED, line[:300]
        changed_at = self.changed_at or self._get_last_write_time(CONFIG)
        if not changed_at:
            return State.FINISHED, "it holds evaluations only"
        silent_s = now - changed_at
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
        for name in LOCKS:
            file = self.confined.open(self.path / name)
            if file is not None:
                with file:
                    return is_abandoned(file)
        return False

    def list_missing(self) -> list[str]:
        """Return a sentence about each file that is missing or cannot be read."""
        measured = bool(self.evaluations.select_before_and_after())
        presence = {"results.json": measured}
        if not self.is_evaluation:
            is_logged = self.metrics.step is not None or self.warm_start.step is not None
            presence = {CONFIG: bool(self.config), "metrics.jsonl": is_logged}
            if self.stage not in UNGRADED:
                presence |= {"completions.jsonl": self.groups.completions > 0, "eval/": measured}
        sentences = []
        for name in presence:
            if not presence[name]:
                sentences.append(f"{name} is not there, or holds nothing.")
        for file in self._followed:
            if file.unreadable:
                sentences.append(
                    f"{file.path.name}: {file.unreadable} of its lines could not be read."
                )
        broken = self.evaluations.unreadable
        return sentences + [f"{name}: it could not be read and is left out." for name in broken]

    def list_settings(self) -> list[tuple[str, str]]:
        """Return the resolved configuration, flat: dotted names and values, without user names and
        passwords in URLs."""
        rows = []
        for name, value in islice(_flatten("", bound_value(self.config)), MAX_SETTINGS):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            rows.append((name[:200], USER_IN_URL.sub("…@", text)[:MAX_CHARS]))
        return rows


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _flatten(f"{name}.{key}" if name else str(key), part)
    elif name:
        yield name, value
