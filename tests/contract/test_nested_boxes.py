"""Boxes within standing boxes: as closed as fresh ones, and nothing passes from one command to the
next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from gradus.errors import SandboxFault
from services.sandbox import Command, ExitReason, Limits, nested_boxes
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.cancellation import CancelToken, enter_attempt
from services.sandbox.escape_probe import find_leftovers, probe
from services.sandbox.nested_boxes import NestedBoxes, find_nested_boxes
from tests.contract.test_sandbox import as_an_ordinary_user, processes_with, python, said

LIMITS = Limits(cpu_s=2, wall_s=60.0, memory_mb=256, scratch_mb=0, output_kb=64)
SOON_S = 20.0


@pytest.fixture(scope="module")
def boxes() -> NestedBoxes:
    try:
        found = find_nested_boxes(Bubblewrap())
    except SandboxFault as fault:
        pytest.skip(fault.message)
    if not isinstance(found, NestedBoxes):
        pytest.skip("there is no C compiler")
    return found


def run_weakened(monkeypatch: pytest.MonkeyPatch, folder: Path, old: str, new: str) -> NestedBoxes:
    """Return boxes whose server lacks a protection."""
    source = nested_boxes._SOURCE.read_text()  # noqa: SLF001 - its source is its settings
    assert old in source
    weakened = folder / "nested_box.c"
    weakened.write_text(source.replace(old, new))
    monkeypatch.setattr(nested_boxes, "_SOURCE", weakened)
    found = find_nested_boxes(Bubblewrap())
    assert isinstance(found, NestedBoxes)
    return found


def test_the_probe_gets_nothing(boxes: NestedBoxes) -> None:
    assert probe(boxes) == []


def test_the_probe_gets_nothing_from_an_ordinary_user() -> None:
    script = (
        "import os, tempfile\n"
        "os.environ['GRADUS_CACHE_DIR'] = tempfile.mkdtemp()\n"
        "from services.sandbox.bubblewrap import Bubblewrap\n"
        "from services.sandbox.escape_probe import probe\n"
        "from services.sandbox.nested_boxes import find_nested_boxes\n"
        "boxes = find_nested_boxes(Bubblewrap())\n"
        "print(type(boxes).__name__, probe(boxes))"
    )
    assert as_an_ordinary_user(script) in {"NestedBoxes []", "Bubblewrap []"}


def test_a_worker_of_low_priority_serves() -> None:
    script = (
        "import os\n"
        "os.nice(5)\n"
        "from services.sandbox.bubblewrap import Bubblewrap\n"
        "from services.sandbox.escape_probe import find_leftovers\n"
        "from services.sandbox.nested_boxes import find_nested_boxes\n"
        "print(find_leftovers(find_nested_boxes(Bubblewrap()).create_unfiltered(), 'marker'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == "{}", done.stderr


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("CLONE_NEWIPC | ", "", "shmget"),
        ('  make_read_only("/box");\n', '  chmod("/box", 0777);\n', "/box/"),
    ],
    ids=["queues", "files"],
)
def test_the_probe_names_what_passes_to_the_next_command(
    boxes: NestedBoxes,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    old: str,
    new: str,
    finding: str,
) -> None:
    weak = run_weakened(monkeypatch, tmp_path, old, new).create_unfiltered()
    found = find_leftovers(weak, "marker")
    assert finding in found.get("leftovers", "")


def test_fresh_boxes_serve_where_no_standing_box_starts(
    boxes: NestedBoxes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    weakened = tmp_path / "nested_box.c"
    source = nested_boxes._SOURCE.read_text()  # noqa: SLF001 - its source is its settings
    weakened.write_text(source.replace("if (getpid() != 1)", "if (getpid() == 1)"))
    monkeypatch.setattr(nested_boxes, "_SOURCE", weakened)
    fresh = Bubblewrap()
    assert find_nested_boxes(fresh) is fresh


def test_the_times_of_devices_cannot_be_set(boxes: NestedBoxes) -> None:
    script = (
        "import os\n"
        "for path in ('/dev/null', '/dev/urandom'):\n"
        "    open(path, 'wb').write(b'x')\n"
        "    try: os.utime(path)\n"
        "    except OSError: print('no')"
    )
    assert said(boxes.run(python(script, limits=LIMITS))) == "no\nno"


def test_files_of_a_command_are_gone_with_it_and_those_of_box_change(boxes: NestedBoxes) -> None:
    script = "import glob\nprint(*sorted(glob.glob('/tmp/*') + glob.glob('/box/*')))"
    files = {"/box/program": b"1", "/tmp/input": b"2"}
    assert said(boxes.run(python(script, limits=LIMITS, files=files))) == "/box/program /tmp/input"
    again = {"/box/program": b"1"}
    assert said(boxes.run(python(script, limits=LIMITS, files=again))) == "/box/program"
    other = {"/box/other": b"3"}
    assert said(boxes.run(python(script, limits=LIMITS, files=other))) == "/box/other"
    assert said(boxes.run(python(script, limits=LIMITS))) == ""


def test_a_program_can_be_run_and_not_read(boxes: NestedBoxes) -> None:
    programs = {"/box/program": b"#!/bin/sh\necho never\n"}
    script = "try: print(open('/box/program').read())\nexcept OSError as error: print(error.errno)"
    assert said(boxes.run(python(script, limits=LIMITS, programs=programs))) == "13"


def test_a_writable_place_is_empty_for_each_command(boxes: NestedBoxes) -> None:
    limits = replace(LIMITS, scratch_mb=8)
    script = (
        "import os\nprint(os.listdir('/tmp'))\nopen('/tmp/left', 'w').write('x')\n"
        "print(os.listdir('/tmp'))"
    )
    for _ in range(2):
        assert said(boxes.run(python(script, limits=limits))) == "[]\n['left']"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("while True: pass", ExitReason.CPU_LIMIT),
        ("import os\nwhile True: os.write(1, b'x' * 4096)", ExitReason.OUTPUT_LIMIT),
        ("import time\ntime.sleep(100)", ExitReason.WALL_IDLE),
        (
            "import os, time\nfor _ in range(8):\n    if os.fork() == 0: time.sleep(100)\n"
            "while True: pass",
            ExitReason.CPU_LIMIT,
        ),
    ],
)
def test_a_limit_ends_a_command_and_the_next_one_runs(
    boxes: NestedBoxes, script: str, reason: ExitReason
) -> None:
    limits = replace(LIMITS, cpu_s=1, stall_s=0.5)
    assert boxes.run(python(script, limits=limits)).exit_reason is reason
    assert said(boxes.run(python("print(1)", limits=limits))) == "1"


def test_the_status_and_the_report_are_those_of_the_command(boxes: NestedBoxes) -> None:
    outcome = boxes.run(
        python("import os, sys\nos.write(3, sys.stdin.buffer.read())\nsys.exit(7)", limits=LIMITS)
    )
    assert (outcome.exit_code, outcome.report) == (7, b"")
    missing = boxes.run(Command(argv=("no-such-program",), limits=LIMITS, binds=("/usr",)))
    assert missing.exit_code == 127


def test_pairs_of_sockets_are_for_commands_that_ask_for_them(boxes: NestedBoxes) -> None:
    script = (
        "import socket\n"
        "for make in (socket.socketpair, lambda: socket.socketpair(socket.AF_INET),\n"
        "             lambda: socket.socket(socket.AF_UNIX), socket.socket):\n"
        "    try: print('made', bool(make()))\n"
        "    except OSError as error: print(error.errno)"
    )
    refused = "1\n1\n1\n1"
    for sandbox in (boxes, Bubblewrap()):
        command = python(script, limits=LIMITS)
        assert said(sandbox.run(command)) == refused
        paired = said(sandbox.run(replace(command, socket_pairs=True)))
        assert paired == "made True\n1\n1\n1"
        message = (
            "import socket\nleft, right = socket.socketpair()\n"
            "left.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, b'\\0\\0\\0\\0')])"
        )
        sent = sandbox.run(python(message, limits=LIMITS, socket_pairs=True))
        assert b"PermissionError" in sent.stderr


def test_many_threads_share_the_boxes(boxes: NestedBoxes) -> None:
    def double(number: int) -> int:
        command = python("print(2 * int(input()))", limits=LIMITS, stdin=str(number).encode())
        return int(said(boxes.run(command)))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(double, range(24))) == list(range(0, 48, 2))


def test_a_cancelled_command_is_a_fault_and_leaves_no_process(boxes: NestedBoxes) -> None:
    token = CancelToken()
    command = python("import time\ntime.sleep(100)", "cancelled-nested", limits=LIMITS)
    threading.Timer(0.5, token.cancel).start()
    with enter_attempt(token, brief=False), pytest.raises(SandboxFault, match="stopped"):
        boxes.run(command)
    assert processes_with("cancelled-nested") == []
    assert said(boxes.run(python("print(1)", limits=LIMITS))) == "1"


def test_a_standing_box_that_died_is_replaced(boxes: NestedBoxes) -> None:
    command = python("print(1)", limits=LIMITS)
    boxes.run(command)
    for _, box in boxes._idle:  # noqa: SLF001
        os.kill(box._init or 0, signal.SIGKILL)  # noqa: SLF001
    left = len(boxes._idle)  # noqa: SLF001
    for _ in range(left):
        try:
            assert said(boxes.run(command)) == "1"
        except SandboxFault:
            continue
    assert said(boxes.run(command)) == "1"


def test_no_box_outlives_a_worker_that_is_killed(boxes: NestedBoxes) -> None:
    script = (
        "from services.sandbox import Limits\n"
        "from services.sandbox.bubblewrap import Bubblewrap\n"
        "from services.sandbox.nested_boxes import find_nested_boxes\n"
        "from tests.contract.test_sandbox import python\n"
        "boxes = find_nested_boxes(Bubblewrap())\n"
        "boxes.run(python('import time\\ntime.sleep(100)', 'orphaned-nested',"
        " limits=Limits(scratch_mb=0, wall_s=100)))"
    )
    worker = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    give_up_at = time.monotonic() + SOON_S
    while len(processes_with("orphaned-nested")) < 1:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    worker.kill()
    worker.wait()
    while processes_with("orphaned-nested"):
        assert time.monotonic() < give_up_at + SOON_S
        time.sleep(0.05)
