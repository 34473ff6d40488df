"""Memory that runs out: no verdict of a starved box, and a budget that boxes wait for."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from gradus.contract import TaskSubmission
from gradus.errors import SandboxFault
from services.graders import base
from services.sandbox import ExitReason, Outcome
from services.sandbox.bubblewrap import tell_memory_apart
from services.sandbox.cancellation import CancelToken, enter_attempt, is_cautious
from services.sandbox.cgroup import Cgroup, CgroupManager, find_memory_groups
from services.sandbox.memory_budget import BoxMemory, MemoryBudget, MemoryShortage
from services.worker import grade_with_retries
from tests.memory_group import make_limited_group

CASES = yaml.safe_load((Path(__file__).parents[1] / "cases/memory/groups.yaml").read_text())
SOON_S = 20.0


def write_files(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


# ------------------------------------------------------------------------------- what kernels write


@pytest.mark.parametrize("case", CASES["budgets"], ids=lambda case: case["name"])
def test_the_budget_is_what_the_smallest_limit_leaves(case: Any, tmp_path: Path) -> None:
    write_files(tmp_path, case["files"])
    budget = MemoryBudget.measure(tmp_path)
    assert budget.size_mb == case["free_mb"]
    assert (budget._overcommit > 1) is case["overcommits"]


@pytest.mark.parametrize("case", CASES["endings"], ids=lambda case: case["name"])
def test_a_killed_box_is_told_apart_by_what_its_groups_count(case: Any, tmp_path: Path) -> None:
    group_files = {"memory.max": "2147483648\n", "memory.events": "oom 0\noom_kill 0\n"}
    before = {f"sys/fs/cgroup/{name}": text for name, text in group_files.items()}
    write_files(tmp_path, {"proc/self/cgroup": "0::/\n", **before})
    group = Cgroup([], find_memory_groups(tmp_path))
    write_files(tmp_path / "sys/fs/cgroup", case["after"])
    if case["own"] is not None:
        group.folders.append(tmp_path / "box")
        write_files(tmp_path / "box", case["own"])
    reason = ExitReason(case.get("stopped", "exited"))
    outcome = Outcome(reason, case["exit_code"], 0.1, 0.1, b"", b"", b"")
    stopped = "stopped" in case
    if case["expect"] == "shortage":
        with pytest.raises(MemoryShortage) as raised:
            tell_memory_apart(outcome, group, stopped_by_us=stopped)
        assert raised.value.retryable
    else:
        ended = tell_memory_apart(outcome, group, stopped_by_us=stopped)
        assert ended.exit_reason == case["expect"]


def test_groups_of_dead_workers_are_swept_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    write_files(tmp_path, {"proc/self/cgroup": "0::/\n"})
    place = tmp_path / "sys/fs/cgroup"
    write_files(place, {"cgroup.subtree_control": "cpu memory pids\n"})
    dead = threading.get_native_id() + (1 << 22)  # beyond the highest number of a process
    for name in (f"gradus-{dead}-0", f"gradus-{dead}-17", "gradus-1-3", "other"):
        (place / name).mkdir()
    manager = CgroupManager(tmp_path)
    folders = {path.name for path in place.iterdir() if path.is_dir()}
    assert folders == {"gradus-1-3", "other"}
    with manager.open_group(64, 8) as group:
        assert [path.name for path in group.folders] == [
            path.name
            for path in place.iterdir()
            if path.name.startswith("gradus-") and path.name != "gradus-1-3"
        ]
    assert not group.folders[0].exists()


# ------------------------------------------------------------------------------------ the budget


class Boxes:
    """A grader that has boxes."""

    def __init__(self, standing_mb: int, largest_mb: int) -> None:
        self.needs = BoxMemory(standing_mb, largest_mb)

    def get_box_memory(self) -> BoxMemory:
        return self.needs


class Visitor:
    """A box in a thread of its own, which holds its memory until `leave`."""

    def __init__(self, pool: ThreadPoolExecutor, budget: MemoryBudget, memory_mb: int) -> None:
        self.is_in = threading.Event()
        self.leave = threading.Event()
        self.done = pool.submit(self._stay, budget, memory_mb)

    def _stay(self, budget: MemoryBudget, memory_mb: int) -> None:
        with budget.reserve(memory_mb):
            self.is_in.set()
            assert self.leave.wait(SOON_S)


def has_waiting(budget: MemoryBudget, number: int) -> bool:
    """Whether so many boxes come to wait soon."""
    give_up_at = time.monotonic() + SOON_S
    while len(budget._queue) < number and time.monotonic() < give_up_at:
        time.sleep(0.01)
    return len(budget._queue) >= number


def test_boxes_wait_until_they_fit_and_none_overtakes_a_large_one() -> None:
    budget = MemoryBudget(1000)
    with ThreadPoolExecutor(8) as pool:
        first = Visitor(pool, budget, 600)
        assert first.is_in.wait(SOON_S)
        large = Visitor(pool, budget, 900)
        assert has_waiting(budget, 1)
        small = [Visitor(pool, budget, 100) for _ in range(3)]
        assert has_waiting(budget, 4)
        assert not large.is_in.is_set()
        assert not any(visitor.is_in.is_set() for visitor in small)
        first.leave.set()
        assert large.is_in.wait(SOON_S)
        assert any(visitor.is_in.wait(SOON_S) for visitor in small)
        for visitor in (large, *small):
            visitor.leave.set()


def test_a_machine_admits_more_than_fits_at_worst_until_a_cautious_box_comes(
    tmp_path: Path,
) -> None:
    write_files(tmp_path, {"proc/meminfo": "MemAvailable:    1048576 kB\n"})
    budget = MemoryBudget(1000, overcommit=4, root=tmp_path)
    with ThreadPoolExecutor(8) as pool:
        visitors = [Visitor(pool, budget, 900) for _ in range(4)]
        assert all(visitor.is_in.wait(SOON_S) for visitor in visitors)
        again = pool.submit(_reserve_cautiously, budget, 900)
        assert has_waiting(budget, 1)
        for visitor in visitors:
            assert not again.done()
            visitor.leave.set()
        assert again.result(SOON_S)


def _reserve_cautiously(budget: MemoryBudget, memory_mb: int) -> bool:
    with enter_attempt(None, brief=False, cautious=True), budget.reserve(memory_mb):
        return True


def test_a_cancelled_attempt_waits_no_longer() -> None:
    budget = MemoryBudget(100)
    token = CancelToken()

    def wait() -> None:
        with enter_attempt(token, brief=False), budget.reserve(80):
            pass

    with ThreadPoolExecutor(1) as pool, budget.reserve(80):
        waiting = pool.submit(wait)
        assert has_waiting(budget, 1)
        token.cancel()
        with pytest.raises(SandboxFault, match="was stopped"):
            waiting.result(SOON_S)
    token.close()


def test_a_small_machine_still_runs_boxes_that_may_use_more_than_it_has(tmp_path: Path) -> None:
    """A Rust compiler may use 3,072 MB and uses 124."""
    write_files(tmp_path, {"proc/meminfo": "MemAvailable:    1572864 kB\n"})
    budget = MemoryBudget(1400, overcommit=4, root=tmp_path)
    assert budget.count_slots(BoxMemory(24, 3072)) >= 2
    budget.set_aside(Boxes(24, 3072), "rust", 2)
    with budget.reserve(3072):
        pass
    assert _reserve_cautiously(budget, 3072)
    with pytest.raises(SandboxFault, match="can never run here"), budget.reserve(6000):
        pass


@pytest.mark.parametrize(
    ("slots", "needs", "why"),
    [
        (8, (80, 1024), r"8 slots of ocaml need 80 MB each .* 1024 MB .* 1300 MB.*--slots 3 or"),
        (1, (80, 1300), r"lower the limits in configs/graders.* 1380 MB"),
        (64, (24, 3072), "too little memory: 64 slots"),
    ],
)
def test_slots_that_can_never_fit_are_refused_with_the_numbers(
    slots: int, needs: tuple[int, int], why: str
) -> None:
    budget = MemoryBudget(1300)
    with pytest.raises(SandboxFault, match=why) as raised:
        budget.set_aside(Boxes(*needs), "ocaml", slots)
    assert not raised.value.retryable


def test_memory_of_standing_boxes_is_set_aside_once_for_each_grader() -> None:
    budget = MemoryBudget(3000)
    ocaml = Boxes(80, 1024)
    assert budget.set_aside(ocaml, "ocaml", 2) is None
    budget.set_aside(ocaml, "ocaml", 4)
    rust = Boxes(24, 2000)
    assert "1 fit at one time" in str(budget.set_aside(rust, "rust", 2))
    assert budget.size_mb == 3000 - 4 * 80 - 2 * 24
    del ocaml
    assert budget.size_mb == 3000 - 2 * 24


# ------------------------------------------------------------------------- in real control groups

BOX = """
import json, os, sys
from pathlib import Path
from gradus.errors import SandboxFault
from services.sandbox import Command, Limits
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.memory_budget import get_memory_budget

limit_file, script, memory_mb, lowered_mb = sys.argv[1:]
python = os.path.realpath(sys.executable)
sandbox = Bubblewrap()
get_memory_budget()
if lowered_mb != "0":
    Path(limit_file).write_text(str(int(lowered_mb) << 20))
limits = Limits(cpu_s=3, wall_s=60.0, memory_mb=int(memory_mb), scratch_mb=0)
argv = (python, "-I", "-S", "-c", script)
command = Command(argv=argv, limits=limits, binds=("/usr", os.path.realpath(sys.base_prefix)))
try:
    outcome = sandbox.run(command)
    print(json.dumps([outcome.exit_reason, outcome.exit_code]))
except SandboxFault as fault:
    print(json.dumps([type(fault).__name__, fault.retryable, fault.message]))
"""
TOUCH = "x = bytearray(b'1') * ({mb} << 20)"
CHILDREN = (
    "import os, time\nfor _ in range(4):\n  if os.fork() == 0:\n"
    "    x = bytearray(b'1') * (90 << 20); time.sleep(3); os._exit(0)\n"
)
STARVED = {
    "one process": TOUCH.format(mb=300),
    "it ends the Python way": f"import sys\ntry:\n  {TOUCH.format(mb=300)}\nfinally: sys.exit(1)",
    "a child of it": f"import os\nif os.fork() == 0: {TOUCH.format(mb=300)}\n"
    "_, status = os.wait(); os._exit(int(status != 0))",
    "after using half of its CPU limit": "import time\nwhile time.process_time() < 1.7: pass\n"
    + TOUCH.format(mb=300),
}


@pytest.mark.parametrize("privileged", [True, False])
@pytest.mark.parametrize("how", STARVED)
def test_a_box_that_others_left_no_memory_is_a_fault_to_retry(how: str, privileged: bool) -> None:
    """An ordinary user can make no control groups: there the group of the worker counts."""
    with make_limited_group(1024) as group:
        said = json.loads(group.run_python(BOX, STARVED[how], "512", "120", privileged=privileged))
    assert said[:2] == ["MemoryShortage", True], said


def test_a_box_whose_processes_meet_its_own_limit_is_at_its_memory_limit() -> None:
    with make_limited_group(1024) as group:
        said = json.loads(group.run_python(BOX, CHILDREN + "time.sleep(3)", "200", "0"))
        assert said[0] == "memory_limit", said


STANDING = """
import os, signal, sys
from services.sandbox import Command, Limits
from services.sandbox.bubblewrap import Bubblewrap
sandbox = Bubblewrap()
python = os.path.realpath(sys.executable)
serve = "import sys, time; print('0 ready', flush=True); time.sleep(300)"
argv = (python, "-I", "-S", "-c", serve)
binds = ("/usr", os.path.realpath(sys.base_prefix))
box = sandbox.open(Command(argv=argv, limits=Limits(cpu_s=None), binds=binds))
print("open", flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["ends", "killed"])
def test_no_groups_stay_when_a_worker_ends_or_the_next_one_starts(end: str) -> None:
    with make_limited_group(1024) as group:
        process = group.start([sys.executable, "-c", STANDING, "", end])
        out, err = process.communicate(timeout=60)
        assert out == "open\n", err
        folders = list(group.folder.glob("gradus-*"))
        assert bool(folders) is (end == "killed")
        group.run_python("from services.sandbox.bubblewrap import Bubblewrap\nBubblewrap()")
        assert list(group.folder.glob("gradus-*")) == []


def test_a_box_that_can_never_fit_is_a_fault_that_says_so() -> None:
    with make_limited_group(512) as group:
        said = json.loads(group.run_python(BOX, "", "600", "0"))
    assert said[:2] == ["SandboxFault", False]
    assert "a box of 600 MB can never run here" in said[2]


# ------------------------------------------------------------------------------ whole graders

GRADE = """
import json, sys
from pathlib import Path
from gradus.contract import TaskSubmission
from gradus.local import open_local
from services.graders.base import load

limit_file, name, slots, number, code, task, lowered_mb = sys.argv[1:]
kind = load(name).task
submissions = [
    TaskSubmission(id=str(n), completion=code.replace("NUMBER", str(n)),
                   task=kind.model_validate_json(task))
    for n in range(int(number))
]
grader = open_local(name, slots=int(slots))
grader.self_test()
if lowered_mb != "0":
    Path(limit_file).write_text(str(int(lowered_mb) << 20))
results = list(grader.grade(submissions))
print(json.dumps([
    [r.status, getattr(r, "reward", None), r.fault.message if r.status == "faulted" else ""]
    for r in results
]))
"""
OCAML = """let f x =
  let keep = Array.init 11 (fun _ -> Bytes.make (32*1024*1024) 'a') in
  let s = ref 0 in
  for _ = 1 to 3 do
    Array.iter (fun b -> for i = 0 to 400_000 do s := !s + Char.code (Bytes.get b (i*80)) done) keep
  done;
  if !s < 0 then 0 else x + 1 (* NUMBER *)"""
RUST = """pub fn f(x: i64) -> i64 {
    let mut table = vec![1u8; 880 * 1024 * 1024];
    let mut s: u64 = 0;
    for r in 0..6 {
        let mut i = r;
        while i < table.len() { table[i] = (i % 7) as u8; s += u64::from(table[i]); i += 512; }
    }
    if s == 42 { 0 } else { x + 1 }
}
// NUMBER"""
RUST_TASK = {
    "signature": "pub fn f(x: i64) -> i64;",
    "tests": "use solution::f;\n#[test]\nfn t() { assert_eq!(f(1), 2); }",
    "limits": {
        "cpu_s": 10
    },  # of memory that others use, too, each page costs several times as much
}
OCAML_TASK = {"tests": "let () = assert (f 1 = 2)"}


def grade_in_group(limit_mb: int, name: str, slots: int, number: int, code: str, task: Any) -> Any:
    with make_limited_group(limit_mb) as group:
        arguments = (name, str(slots), str(number), code, json.dumps(task), "0")
        printed = group.run_python(GRADE, *arguments)
        assert group.group.count_kills() == 0
    return json.loads(printed)


@pytest.mark.parametrize(
    ("limit_mb", "name", "slots", "number", "code", "task"),
    [
        pytest.param(2048, "ocaml", 8, 7, OCAML, OCAML_TASK, id="ocaml"),
        pytest.param(3400, "rust", 4, 5, RUST, RUST_TASK, id="rust", marks=pytest.mark.slow),
        pytest.param(
            2048, "ocaml", 8, 7, OCAML, {**OCAML_TASK, "public_tests": [OCAML_TASK["tests"]]},
            id="ocaml with public tests", marks=pytest.mark.slow,
        ),
        pytest.param(
            2048, "ocaml", 8, 7, OCAML, {**OCAML_TASK, "packages": ["unix"]},
            id="ocaml in boxes of its own", marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_right_answers_wait_for_memory_and_are_right(
    limit_mb: int, name: str, slots: int, number: int, code: str, task: Any
) -> None:
    """Together they would hold more than the group may."""
    results = grade_in_group(limit_mb, name, slots, number, code, task)
    assert results == [["graded", 1.0, ""]] * number


@pytest.mark.slow
def test_a_starved_child_of_a_persistent_box_is_a_fault() -> None:
    """Slow, because further attempts wait for memory that is free."""
    with make_limited_group(1600) as group:
        arguments = ("ocaml", "1", "1", OCAML, json.dumps(OCAML_TASK), "260")
        [[status, _, why]] = json.loads(group.run_python(GRADE, *arguments))
    assert (status, "for lack of memory" in why) == ("faulted", True), why


def test_a_task_that_asks_for_more_memory_than_there_is_is_a_fault_that_says_so() -> None:
    task = {**OCAML_TASK, "limits": {"memory_mb": 2048}}
    [[status, _, why]] = grade_in_group(2048, "ocaml", 2, 1, "let f x = x + 1", task)
    assert status == "faulted"
    assert "a box of 2048 MB can never run here" in why


class Starved:
    """A grader whose first attempt is starved."""

    def __init__(self) -> None:
        self.attempts: list[bool] = []

    def grade(self, submission: Any, rubric: str, slot: int) -> Any:
        self.attempts.append(is_cautious())
        if len(self.attempts) < 3:
            raise MemoryShortage
        return "verdict"


def test_an_attempt_after_a_starved_one_is_cautious() -> None:
    grader = Starved()
    submission = TaskSubmission[Any].model_construct(id="a", completion="", task=None)
    result: Any = grade_with_retries(cast(Any, grader), submission, "r", 0, brief=False)
    assert result == "verdict"
    assert grader.attempts == [False, True, True]


def test_default_slots_are_those_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = MemoryBudget(1400)
    monkeypatch.setattr(base, "get_memory_budget", lambda: budget)
    monkeypatch.setattr(base.os, "sched_getaffinity", lambda _: range(16))
    grader: Any = Boxes(80, 1024)
    grader.waiting_slots = None
    assert base.get_default_slots(grader) == 4
    assert base.get_default_slots(cast(Any, Waiting())) == 64


class Waiting:
    """A grader without boxes, whose slots wait for a model."""

    waiting_slots = 64
