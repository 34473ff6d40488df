"""Attacks on reward functions of others: calls one in boxes, and says what it credits.

Each completion gets a box of its own, with the Python of this process, the folder of the function's
module and no network. Boxes here have no seccomp filter, since such functions start processes that
talk over sockets. What an answer does to the box is not watched: only rewards count.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from services.attacks import Trial
from services.sandbox import Command, ExitReason, Limits, Outcome
from services.sandbox.bubblewrap import Bubblewrap

_CHILD = "/box/target_child.py"
_SYSTEM = ("/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl")
_ENDINGS = {
    ExitReason.CPU_LIMIT: "no reward within its CPU time",
    ExitReason.WALL_IDLE: "no reward within its time",
    ExitReason.WALL_STARVED: "no reward within its time, on a busy machine",
    ExitReason.MEMORY_LIMIT: "no reward within its memory",
    ExitReason.OUTPUT_LIMIT: "no reward: it wrote too much",
}
_DATA_SOURCES = {"program": "codecontests"}
"""Names by which verl's own `default_compute_score` finds a function for a grader's tasks."""


class Shape(StrEnum):
    """How a reward function is called: `target_child.SHAPES`."""

    TRL = "trl"
    OPEN_R1 = "open-r1"
    VERL = "verl"
    NEMO_GYM = "nemo-gym"


class Word(StrEnum):
    """What became of a trial."""

    ACCEPTED = "accepted"
    REFUSED = "REFUSED"
    HELD = "held"
    CREDITED = "CREDITED"
    BROKE = "broke"
    """The function raised, ended its process or met a limit: no reward."""
    SKIPPED = "skipped"
    """The function credits no honest answer of the same language."""


@dataclass(frozen=True, slots=True)
class Reward:
    value: float | None
    """None: the function gave no reward, for the reason in `error`."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    trial: Trial
    word: Word
    reward: Reward


class Target:
    """A reward function `module:function`, called in boxes.

    Raises Misuse for a name that leads nowhere, SandboxFault where there are no boxes.
    """

    def __init__(
        self, name: str, shape: Shape, *, timeout_s: float, memory_mb: int, binds: Sequence[Path]
    ) -> None:
        self._module, _, self._function = name.partition(":")
        if not self._module or not self._function:
            raise Misuse(f"--target {name}: write it as MODULE:FUNCTION")
        self._shape = shape
        self._limits = Limits(
            cpu_s=max(1, int(timeout_s)),
            wall_s=timeout_s,
            memory_mb=memory_mb,
            processes=64,
            file_mb=64,
            scratch_mb=256,
        )
        folders = [sysconfig.get_path("purelib"), find_folder(self._module)]
        self._mounts = {folder: f"/box/path{n}" for n, folder in enumerate(dict.fromkeys(folders))}
        self._binds = (*_SYSTEM, sys.base_prefix, *(str(path.resolve()) for path in binds))
        self._sandbox = Bubblewrap(filtered=False)
        for folder in self._mounts if self._sandbox.privileged else ():
            if os.stat(folder).st_mode & 0o005 != 0o005:
                raise Misuse(f"--target: other users cannot read {folder}: chmod o+rx {folder}")

    def compute_rewards(
        self, grader: str, trials: Iterable[Trial], slots: int | None
    ) -> Iterator[Reward]:
        """Yield the reward of each trial, in order."""
        with ThreadPoolExecutor(slots or os.cpu_count()) as pool:
            yield from pool.map(lambda trial: self._compute_reward(grader, trial), trials)

    def _compute_reward(self, grader: str, trial: Trial) -> Reward:
        nonce = secrets.token_hex(16)
        request = {
            "nonce": nonce,
            "module": self._module,
            "function": self._function,
            "shape": self._shape,
            "prompt": trial.prompt,
            "completion": trial.completion,
            "columns": build_columns(grader, trial.task),
            "data_source": _DATA_SOURCES.get(grader, f"gradus/{grader}"),
        }
        command = Command(
            argv=(os.path.realpath(sys.executable), "-P", "-B", _CHILD),
            limits=self._limits,
            stdin=json.dumps(request).encode(),
            files={_CHILD: Path(__file__).with_name("target_child.py").read_bytes()},
            binds=self._binds,
            mounts=self._mounts,
            environment={
                "PATH": os.environ.get("PATH", "/usr/bin"),
                "PYTHONPATH": os.pathsep.join(self._mounts.values()),
                "HOME": "/tmp",
            },
        )
        return read_reply(self._sandbox.run(command), nonce)


def find_folder(module: str) -> str:
    """Return the folder that Python needs in its path to import a module. Raises Misuse."""
    top = module.partition(".")[0]
    spec = PathFinder.find_spec(top, [os.getcwd(), *sys.path])
    places = [spec.origin] if spec and spec.origin else []
    if spec and spec.submodule_search_locations:
        places = list(spec.submodule_search_locations)
        return str(Path(places[0]).resolve().parent)
    if not places:
        raise Misuse(f"--target: there is no module {top!r} here or among the installed ones")
    return str(Path(places[0]).resolve().parent)


def build_columns(grader: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row: the task's fields, and under the names that open-r1, verl and
    NeMo Gym read."""
    columns = dict(task)
    columns["ground_truth"] = task.get("tests") or json.dumps(task)
    if grader == "program":
        inputs = [case.get("stdin", "") for case in task["cases"]]
        outputs = [case.get("stdout", "") for case in task["cases"]]
        both = {"inputs": inputs, "outputs": outputs}
        pairs = []
        for stdin, stdout in zip(inputs, outputs, strict=True):
            pairs.append({"type": "stdin_stdout", "input": stdin, "output": stdout})
        info = {"language": task.get("language", "python"), "test_cases": pairs}
        columns.update(ground_truth=json.dumps(both), unit_tests=both, verification_info=info)
    return columns


def read_reply(outcome: Outcome, nonce: str) -> Reward:
    """Return the reward that a box reported; what else it wrote is no reward."""
    try:
        reply = json.loads(outcome.report)
    except ValueError:
        reply = None
    if isinstance(reply, dict) and reply.get("nonce") == nonce:
        return Reward(reply.get("reward"), reply.get("error", ""))
    ending = _ENDINGS.get(outcome.exit_reason)
    if ending is None:
        last = outcome.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        ending = f"its process ended with status {outcome.exit_code} {last}".rstrip()
    return Reward(None, ending[:500])


def attack_target(
    target: Target, grader: str, trials: Sequence[Trial], slots: int | None
) -> Iterator[Judgement]:
    """Yield what becomes of each trial: controls first, skipped attacks last.

    A group of which the function credits no honest answer is skipped: it is a language that the
    function does not know. Raises Misuse where that is so for all.
    """
    controls = [trial for trial in trials if trial.kind != "attack"]
    rewards = list(target.compute_rewards(grader, controls, slots))
    wrong = 0.0
    for trial, reward in zip(controls, rewards, strict=True):
        if trial.kind == "wrong":
            wrong = max(wrong, reward.value or 0.0)
    right: dict[str, float] = {}
    for trial, reward in zip(controls, rewards, strict=True):
        if trial.kind == "honest" and (reward.value or 0.0) > wrong:
            right[trial.group] = max(right.get(trial.group, 0.0), reward.value or 0.0)
    if not right:
        why = rewards[0].error or f"it gives {rewards[0].value} to both"
        raise Misuse(f"--target gives no honest answer more than a wrong one: {why}")
    for trial, reward in zip(controls, rewards, strict=True):
        yield Judgement(trial, judge(trial, reward, wrong, right), reward)
    attacks = [trial for trial in trials if trial.kind == "attack"]
    graded = [trial for trial in attacks if trial.group in right]
    for trial, reward in zip(graded, target.compute_rewards(grader, graded, slots), strict=True):
        yield Judgement(trial, judge(trial, reward, wrong, right), reward)
    for trial in attacks:
        if trial.group not in right:
            yield Judgement(trial, Word.SKIPPED, Reward(None))


def judge(trial: Trial, reward: Reward, wrong: float, right: Mapping[str, float]) -> Word:
    """Return the word for a trial: its reward is compared as a share of the way from the wrong
    answer's to the right answer's of its group."""
    if trial.group not in right:
        return Word.SKIPPED
    share = 0.0
    if reward.value is not None:
        share = (reward.value - wrong) / (right[trial.group] - wrong)
    if trial.kind == "honest":
        return Word.ACCEPTED if share >= trial.limit else Word.REFUSED
    if reward.value is None:
        return Word.BROKE
    return Word.CREDITED if share >= trial.limit else Word.HELD
