"""Boxes: what they give, what they keep from whom is inside, and that the probe names every
protection that is gone."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import SandboxFault
from services.sandbox import (
    BoxLost,
    Command,
    ExitReason,
    Limits,
    Outcome,
    bubblewrap,
)
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.cgroup import Cgroup, CgroupManager
from services.sandbox.escape_probe import Finding, probe, refuse_unless_safe
from services.sandbox.persistent_box import PersistentBox
from services.worker_metrics import WorkerMetrics

PYTHON = os.path.realpath(sys.executable)
BINDS = ("/usr", os.path.realpath(sys.base_prefix))
LIMITS = Limits(
    cpu_s=2, wall_s=60.0, memory_mb=256, scratch_mb=8, file_mb=4, output_kb=64, report_kb=64
)
SOON_S = 20.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""

Edit = Callable[[list[str]], list[str]]


@pytest.fixture(scope="module")
def sandbox() -> Bubblewrap:
    try:
        box = Bubblewrap()
    except SandboxFault as fault:
        pytest.skip(fault.message)
    return box


def python(script: str, *argv: str, limits: Limits = LIMITS, **more: Any) -> Command:
    """A command that runs `script` in a box."""
    return Command(
        argv=(PYTHON, "-I", "-S", "-c", script, *argv), limits=limits, binds=BINDS, **more
    )


def said(outcome: Outcome) -> str:
    assert outcome.stderr == b"", outcome.stderr
    return outcome.stdout.decode().strip()


def processes_with(marker: str) -> list[int]:
    """Processes of the host that have `marker` among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def soon(happened: Callable[[], bool]) -> bool:
    give_up_at = time.monotonic() + SOON_S
    while not happened():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)
    return True


# ------------------------------------------------------------------------------------------- probe


def names(findings: list[Finding]) -> Counter[str]:
    return Counter(finding.attack for finding in findings)


def test_the_probe_gets_nothing_here(sandbox: Bubblewrap) -> None:
    assert probe(sandbox) == []


class Weakened(Bubblewrap):
    """Boxes that lack something: options of bubblewrap edited, or limits raised."""

    edit: Edit = staticmethod(lambda argv: argv)
    limits: dict[str, Any] = {}
    prefix: tuple[str, ...] = ()
    leaks: int | None = None
    loops_s: float | None = None
    """Wall seconds of the probe's endless loop, in place of 60."""

    def __init__(self, *, filtered: bool = True) -> None:
        super().__init__(filtered=filtered and type(self).filtered)
        self._groups = type(
            "NoGroups", (), {"open_group": staticmethod(_no_group)}
        )()  # so that rlimits are seen to matter

    filtered = True

    def run(self, command: Command) -> Outcome:
        if self.leaks:
            os.dup2(0, self.leaks, inheritable=True)
        changed = {"cpu_s": 1, **self.limits}
        if self.loops_s and "while True: pass" in command.argv:
            changed["wall_s"] = self.loops_s
        return super().run(
            replace(
                command, limits=replace(command.limits, **changed), argv=self.prefix + command.argv
            )
        )

    def _build_bwrap_argv(self, command: Command) -> list[str]:
        return type(self).edit(super()._build_bwrap_argv(command))


@contextmanager
def _no_group(memory_mb: int, processes: int, scratch_mb: int) -> Iterator[Cgroup]:
    yield Cgroup([], [])


def weakened(**what: Any) -> Bubblewrap:
    edit = what.pop("edit", None)
    made: type[Bubblewrap] = type(
        "Weakened", (Weakened,), {**what, **({"edit": staticmethod(edit)} if edit else {})}
    )
    return made()


def without(*options: str) -> Edit:
    return lambda argv: [word for word in argv if word not in options]


def before(mark: str, *added: str) -> Edit:
    def edit(argv: list[str]) -> list[str]:
        place = argv.index(mark)
        return [*argv[:place], *added, *argv[place:]]

    return edit


def both(*edits: Edit) -> Edit:
    def edit(argv: list[str]) -> list[str]:
        for one in edits:
            argv = one(argv)
        return argv

    return edit


def without_remount(argv: list[str]) -> list[str]:
    place = argv.index("--remount-ro")
    return argv[:place] + argv[place + 2 :]


def as_user_0(argv: list[str]) -> list[str]:
    if os.geteuid() != 0:
        return before("--chdir", "--uid", "0")(argv)
    return [word for index, word in enumerate(argv) if not _within(argv, index)]


def _within(argv: list[str], index: int) -> bool:
    """Is this word part of the call of setpriv?"""
    start = next(place for place, word in enumerate(argv) if word.endswith("setpriv"))
    end = next(place for place, word in enumerate(argv) if word.endswith("prlimit"))
    return start <= index < end


HOST_FOLDER = os.environ.get("TMPDIR", "/tmp")
TO_NOWHERE = (
    "import os, sys; os.dup2(os.open('/dev/null', 1), 1); os.execv(sys.argv[1], sys.argv[1:])"
)

HOST_IN_SIGHT = both(
    before("--chdir", "--ro-bind", HOST_FOLDER, HOST_FOLDER, "--proc", "/proc"),
    before("--chdir", "--setenv", "TOKEN", "x"),
)
NO_LIMITS = {
    "memory_mb": 8192,
    "scratch_mb": 4096,
    "scratch_files": 1 << 20,
    "processes": 1 << 16,
    "cpu_s": None,
}

WEAKENED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "files of the host, its /proc and a variable kept, without --remount-ro": (
        {"edit": both(without_remount, HOST_IN_SIGHT)},
        {"files", "proc", "environment", "write"},
    ),
    "without prlimit and a size of /tmp": (
        {"limits": NO_LIMITS, "loops_s": 1.0},
        {"memory", "disk", "file count", "write", "processes", "cpu"},
    ),
    "with output that nobody reads": (
        {"prefix": (PYTHON, "-I", "-S", "-c", TO_NOWHERE)},
        {"output"},
    ),
}


@pytest.mark.parametrize("what", WEAKENED)
def test_the_probe_names_what_is_missing_and_nothing_else(sandbox: Bubblewrap, what: str) -> None:
    attributes, expected = WEAKENED[what]
    assert set(names(probe(weakened(**attributes)))) == expected


def test_the_probe_names_boxes_of_user_0(sandbox: Bubblewrap) -> None:
    assert names(probe(weakened(edit=as_user_0)))["root"] == 1


def test_the_probe_names_processes_that_outlive_their_box(sandbox: Bubblewrap) -> None:
    """Only one of the probe's runs can have survivors, because such a run lasts as long as it
    may."""
    shared = without("--unshare-pid", "--as-pid-1")
    whole = Bubblewrap(filtered=False)
    found = probe(weakened(edit=shared, limits={"wall_s": 4.0}, create_unfiltered=lambda _: whole))
    for finding in found:
        if finding.attack == "survivors":
            os.kill(int(finding.got.removeprefix("process ")), signal.SIGKILL)
    assert names(found)["survivors"] > 0


@pytest.mark.parametrize("least", [60, 300])
def test_the_probe_names_descriptors_that_leak(sandbox: Bubblewrap, least: int) -> None:
    # a free number: any fixed one may be a standing box's by now
    ours = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, least)
    try:
        assert names(probe(weakened(leaks=ours))) == {"descriptors": 1}
    finally:
        os.close(ours)


def test_a_worker_whose_sandbox_does_not_hold_is_told_every_remedy_and_no_other(
    sandbox: Bubblewrap,
) -> None:
    open_to_the_net = weakened(edit=without("--unshare-net"), filtered=False)
    with pytest.raises(
        SandboxFault, match="(?s)refuses to serve.*--unshare-net.*--seccomp"
    ) as raised:
        refuse_unless_safe(open_to_the_net)
    assert not raised.value.retryable
    assert re.findall(r"(?m)^  - ([\w ]+):", raised.value.message) == ["network", "seccomp"]


def test_where_no_box_can_be_made_the_probe_repeats_what_bubblewrap_said(
    sandbox: Bubblewrap,
) -> None:
    broken = weakened(edit=before("--chdir", "--ro-bind", "/nonexistent/place", "/place"))
    with pytest.raises(SandboxFault, match="no box could be made; bubblewrap said: .*nonexistent"):
        probe(broken)


def as_an_ordinary_user(script: str) -> str:
    """What `script` prints, in a process of its own that is not user 0."""
    person = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--bounding-set=-all",
    ]
    if os.geteuid() != 0:
        person = []
    elif shutil.which("setpriv") is None:
        pytest.skip("setpriv (util-linux) is not installed")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for interpreter in ("/usr/bin/python3", sys.executable):
        able = subprocess.run(
            [*person, interpreter, "-c", "import enum; enum.StrEnum"],
            capture_output=True,
            check=False,
        )
        if able.returncode == 0:
            break
    else:
        pytest.skip("no Python 3.11 that another user may run")
    done = subprocess.run(
        [*person, interpreter, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_ordinary_user_gets_boxes_that_hold_as_well() -> None:
    script = (
        "from services.sandbox.bubblewrap import Bubblewrap\n"
        "from services.sandbox.escape_probe import probe\n"
        "print(probe(Bubblewrap()))"
    )
    assert as_an_ordinary_user(script) == "[]"


# ---------------------------------------------------------------------- what a box gives


def test_standard_input_arrives_whole_and_ends(sandbox: Bubblewrap) -> None:
    data = os.urandom(1 << 20)
    count = (
        "import sys, hashlib; d = sys.stdin.buffer.read(); print(hashlib.sha256(d).hexdigest(),"
        " len(d))"
    )
    assert (
        said(sandbox.run(python(count, stdin=data)))
        == f"{hashlib.sha256(data).hexdigest()} {1 << 20}"
    )


def test_output_errors_and_report_come_apart(sandbox: Bubblewrap) -> None:
    outcome = sandbox.run(
        python(
            "import os; os.write(1, b'out'); os.write(2, b'err'); os.write(3, bytes(range(256)))"
        )
    )
    assert (outcome.stdout, outcome.stderr, outcome.report) == (b"out", b"err", bytes(range(256)))
    assert (outcome.exit_reason, outcome.exit_code) == (ExitReason.EXITED, 0)


def test_the_exit_code_is_passed_on(sandbox: Bubblewrap) -> None:
    assert sandbox.run(python("raise SystemExit(7)")).exit_code == 7


def test_a_command_that_does_not_exist_proves_nothing(sandbox: Bubblewrap) -> None:
    outcome = sandbox.run(
        Command(argv=("/usr/bin/no-such-program",), limits=LIMITS, binds=("/usr",))
    )
    assert (outcome.report, outcome.stdout) == (b"", b"")
    assert outcome.exit_code != 0


def test_files_are_there_and_cannot_be_changed(sandbox: Bubblewrap) -> None:
    script = (
        "import os\nprint(open('/box/a').read(), open('/box/deep/b', 'rb').read())\nfor act in"
        " (lambda: open('/box/a', 'w'), lambda: os.remove('/box/a'), lambda: open('/box/new',"
        " 'w'),\n            lambda: os.chmod('/box/a', 0o777), lambda: os.rename('/box/a',"
        " '/box/c')):\n    try:\n        act(); print('changed')\n    except OSError:\n       "
        " pass\n"
    )
    assert (
        said(sandbox.run(python(script, files={"/box/a": b"text", "/box/deep/b": b"\x00"})))
        == r"text b'\x00'"
    )


def test_a_program_can_be_run_and_neither_read_nor_made_readable(sandbox: Bubblewrap) -> None:
    script = "/box/p ran; cat /box/p; chmod 0755 /box/p; cp /box/p /tmp/p; exec 9< /box/p"
    program = Path("/usr/bin/echo").resolve().read_bytes()
    outcome = sandbox.run(
        Command(("/bin/sh", "-c", script), LIMITS, binds=BINDS, programs={"/box/p": program})
    )
    assert outcome.stdout == b"ran\n"
    assert outcome.stderr.count(b"/box/p") == 4


def test_binds_and_mounts_are_read_only(sandbox: Bubblewrap, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "seen").write_text("yes")
    script = (
        "print(open('/given/seen').read())\n"
        "for mode in ('w', 'a'):\n"
        "    try:\n        open('/given/seen', mode); print('changed')\n"
        "    except OSError:\n        pass\n"
    )
    assert said(sandbox.run(python(script, mounts={str(tmp_path): "/given"}))) == "yes"
    assert (tmp_path / "seen").read_text() == "yes"


def test_nothing_stays_from_one_box_to_the_next(sandbox: Bubblewrap) -> None:
    script = (
        "import os; print(sorted(os.listdir('/tmp')), os.getcwd()); open('/tmp/left',"
        " 'w').write('x')"
    )
    assert [said(sandbox.run(python(script))) for _ in range(2)] == ["[] /tmp", "[] /tmp"]


def test_the_environment_is_what_the_command_says(
    sandbox: Bubblewrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADUS_SECRET", "hunter2")
    script = "import os, json; print(json.dumps(dict(os.environ)))"
    seen = json.loads(said(sandbox.run(python(script, environment={"A": "b c"}))))
    assert {name: seen[name] for name in seen if name not in ("PWD", "LC_CTYPE")} == {
        "PATH": "/usr/bin",
        "A": "b c",
    }


def test_a_box_is_alone(sandbox: Bubblewrap) -> None:
    script = (
        "import os\nthere = [p for p in ('/proc', '/sys', '/etc', '/var', '/run', '/mnt', '/boot')"
        " if os.path.exists(p)]\nprint(os.getpid(), os.getuid() == 0, os.getgroups(), there)"
    )
    assert said(sandbox.run(python(script))) == "1 False [] []"


def test_sandboxes_of_one_process_give_no_two_boxes_the_same_user_or_group(
    sandbox: Bubblewrap,
) -> None:
    others = Bubblewrap(), Bubblewrap()
    if sandbox.privileged:
        users = [said(other.run(python("import os; print(os.getuid())"))) for other in others]
        assert users[0] != users[1]
    with CgroupManager().open_group(64, 8) as one, CgroupManager().open_group(64, 8) as another:
        assert not {*one.folders} & {*another.folders}


def test_a_box_has_four_descriptors_whatever_its_worker_has_open(
    sandbox: Bubblewrap, tmp_path: Path
) -> None:
    script = (
        "import os\n"
        "def is_open(fd):\n"
        "    try:\n        os.fstat(fd); return True\n"
        "    except OSError:\n        return False\n"
        "print([fd for fd in range(256) if is_open(fd)])"
    )
    files = [open(tmp_path / str(n), "w") for n in range(20)]  # noqa: SIM115
    try:
        assert said(sandbox.run(python(script, files={"/box/a": b""}))) == "[0, 1, 2, 3]"
    finally:
        for file in files:
            file.close()


# ------------------------------------------------------------------------------------------ limits


def test_time_used_up_is_the_cpu_limit_and_is_accounted_for(sandbox: Bubblewrap) -> None:
    outcome = sandbox.run(python("while True: pass", limits=replace(LIMITS, cpu_s=1)))
    assert outcome.exit_reason is ExitReason.CPU_LIMIT
    assert 0.5 < outcome.cpu_s < 3


def test_time_used_up_by_children_is_the_cpu_limit_as_well(sandbox: Bubblewrap) -> None:
    script = "import os\nos.fork()\nwhile True: pass"
    outcome = sandbox.run(python(script, limits=replace(LIMITS, cpu_s=1, wall_s=30.0)))
    assert outcome.exit_reason is ExitReason.CPU_LIMIT


def test_a_program_that_waits_for_input_that_never_comes_is_idle_and_not_starved(
    sandbox: Bubblewrap,
) -> None:
    script = "import os; r, w = os.pipe(); os.read(r, 1)"
    outcome = sandbox.run(python(script, limits=replace(LIMITS, wall_s=2.5)))
    assert outcome.exit_reason is ExitReason.WALL_IDLE
    assert outcome.cpu_s < 1.5


STALLS = (
    "os.read(os.pipe()[0], 1)",
    "[os.fork(), os.fork(), os.read(os.pipe()[0], 1)]",
    "time.sleep(300)",
    "[time.sleep(0.005) for _ in range(60_000)]",
    "[(time.sleep(0.03), sum(range(2000))) for _ in range(10_000)]",
    "[select.select([], [], [], 0.01) for _ in range(30_000)]",
    "[threading.Thread(target=time.sleep, args=[300]).start() for _ in range(3)]",
    "[(threading.Thread(target=time.sleep, args=[0.02]).start(), time.sleep(0.03))"
    " for _ in range(10_000)]",
    "os.fork() and os.wait() or [time.sleep(0.005) for _ in range(60_000)]",
)


@pytest.mark.parametrize("then", STALLS)
def test_a_run_that_sleeps_ends_at_the_stall_limit_however_it_sleeps(
    sandbox: Bubblewrap, then: str
) -> None:
    script = f"import os, select, threading, time; {then}"
    outcome = sandbox.run(python(script, limits=replace(LIMITS, wall_s=60.0, stall_s=1.0)))
    assert outcome.exit_reason is ExitReason.WALL_IDLE
    assert outcome.stalled_s >= 1.0
    assert outcome.wall_s < 30


def test_the_work_of_a_child_that_ends_while_its_box_is_read_is_no_stall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    while time.process_time() < 0.1: pass\n"
        "    print('ready', flush=True)\n"
        "    os.read(0, 1)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print('reaped', flush=True)\n"
        "os.read(0, 1)"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"

        def end_child(thread: Path) -> Iterator[int]:
            assert parent.stdin is not None
            assert parent.stdout is not None
            parent.stdin.write(b"x")
            parent.stdin.flush()
            assert parent.stdout.readline() == b"reaped\n"
            return iter(())

        monkeypatch.setattr(bubblewrap, "iter_children", end_child)
        with pytest.raises(ValueError, match="a process ended meanwhile"):
            bubblewrap._Activity.measure(parent.pid)  # noqa: SLF001 - what a look sees
        parent.stdin.write(b"x")


@pytest.mark.parametrize(
    ("start", "kernel_lists_children"),
    [
        pytest.param(
            "threading.Thread(target=work).start(); os.read(0, 1)", True, marks=pytest.mark.slow
        ),
        ("os.fork() or (work(), os._exit(0)); os.wait()", True),
        pytest.param(
            "os.fork() or (work(), os._exit(0)); os.wait()", False, marks=pytest.mark.slow
        ),
        ("[(os.fork() or (work(0.2), os._exit(0)), os.wait()) for _ in range(7)]", True),
    ],
)
def test_the_work_of_any_thread_or_process_is_no_stall(
    sandbox: Bubblewrap, monkeypatch: pytest.MonkeyPatch, start: str, kernel_lists_children: bool
) -> None:
    monkeypatch.setattr(bubblewrap, "_KERNEL_LISTS_CHILDREN", kernel_lists_children)
    script = (
        "import os, sys, threading, time\ndef work(cpu_s=1.5):\n  end = time.process_time() +"
        " cpu_s\n  while time.process_time() < end: sum(range(20000))\n"
    )
    outcome = sandbox.run(
        python(script + start, limits=replace(LIMITS, cpu_s=4, wall_s=60.0, stall_s=0.7))
    )
    assert outcome.exit_reason is ExitReason.EXITED
    assert outcome.cpu_s > 1.2


def test_a_run_that_neither_slept_nor_used_up_its_cpu_limit_was_starved(
    sandbox: Bubblewrap,
) -> None:
    limits = replace(LIMITS, cpu_s=30, wall_s=1.0, stall_s=3.0)
    outcome = sandbox.run(python("while True: pass", limits=limits))
    assert outcome.exit_reason is ExitReason.WALL_STARVED


@pytest.mark.parametrize("descriptor", [1, 2])
def test_too_much_output_is_the_output_limit_and_the_beginning_is_kept(
    sandbox: Bubblewrap, descriptor: int
) -> None:
    outcome = sandbox.run(python(f"import os\nwhile True: os.write({descriptor}, b'x' * 4096)"))
    assert outcome.exit_reason is ExitReason.OUTPUT_LIMIT
    assert len((b"", outcome.stdout, outcome.stderr)[descriptor]) == LIMITS.output_kb << 10


def test_too_much_report_is_the_output_limit(sandbox: Bubblewrap) -> None:
    outcome = sandbox.run(python("import os\nwhile True: os.write(3, b'x' * 4096)"))
    assert outcome.exit_reason is ExitReason.OUTPUT_LIMIT
    assert len(outcome.report) == LIMITS.report_kb << 10


def test_output_up_to_twice_the_limit_is_cut_and_no_offence(sandbox: Bubblewrap) -> None:
    outcome = sandbox.run(
        python(f"import os; os.write(1, b'x' * {LIMITS.output_kb << 10}); os.write(1, b'y')")
    )
    assert (outcome.exit_reason, outcome.exit_code) == (ExitReason.EXITED, 0)
    assert outcome.stdout == b"x" * (LIMITS.output_kb << 10)


def test_memory_files_and_scratch_have_an_end(sandbox: Bubblewrap) -> None:
    script = (
        "import signal\ndef fails(act):\n    try:\n        act(); return False\n    except"
        " (MemoryError, OSError):\n        return True\ndef write(name, mega): open('/tmp/' + name,"
        " 'wb').write(bytes(mega << 20))\nprint(fails(lambda: bytearray(300 << 20)), fails(lambda:"
        " bytearray(50 << 20)),\n      fails(lambda: write('a', 5)), fails(lambda: write('b', 3)),"
        " fails(lambda: write('c', 3)))"
    )
    outcome = sandbox.run(python(script))
    assert outcome.stdout.decode().split() == ["True", "False", "True", "False", "True"], outcome


MANY_FILES = (
    "import os\n"
    "made = 0\n"
    "try:\n"
    "    while made < 1_000_000:\n        MAKE; made += 1\n"
    "except OSError:\n    pass\n"
    "print(made)"
)


@pytest.mark.parametrize(
    "make",
    [
        "os.close(os.open(f'/tmp/{made}', os.O_CREAT))",
        "os.mkdir(f'/tmp/{made}')",
        "os.symlink('x' * 200, f'/tmp/{made}')",
        "os.close(os.open('/tmp/one', os.O_CREAT)); os.link('/tmp/one', f'/tmp/{made}')",
    ],
)
def test_files_folders_and_links_have_an_end(sandbox: Bubblewrap, make: str) -> None:
    outcome = sandbox.run(
        python(MANY_FILES.replace("MAKE", make), limits=replace(LIMITS, scratch_files=500))
    )
    assert 490 <= int(said(outcome)) <= 500


def test_where_there_is_no_scratch_nothing_can_be_written(sandbox: Bubblewrap) -> None:
    script = (
        "import os\n"
        "def writable(place):\n"
        "    try:\n        open(place + '/x', 'w'); return True\n"
        "    except OSError:\n        return not os.statvfs(place).f_flag & os.ST_RDONLY\n"
        "found = []\n"
        "for place, folders, _ in os.walk('/'):\n"
        "    found += [place] * writable(place)\n"
        "    if place.count('/') > 2: folders.clear()\n"  # what is mounted is above
        "print(os.getcwd(), found)"
    )
    bare = replace(LIMITS, scratch_mb=0)
    assert said(sandbox.run(python(script, limits=bare, files={"/box/a": b""}))) == "/tmp []"
    assert said(sandbox.run(python(script, files={"/box/a": b""}))) == "/tmp ['/tmp']"


# ----------------------------------------------------------------------------------------- endings

DAEMON = (
    "import os, sys, time\n"
    "for _ in range(3):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        if os.fork() == 0:\n"
    "            os.closerange(0, 256)\n"
    "            time.sleep(300)\n"
    "        os._exit(0)\n"
)


@pytest.mark.parametrize(
    ("ending", "then"),
    [
        (ExitReason.EXITED, "os.write(3, b'done')"),
        (ExitReason.OUTPUT_LIMIT, "\nwhile True: os.write(1, b'x' * 4096)"),
        (ExitReason.CPU_LIMIT, "\nwhile True: pass"),
        (ExitReason.WALL_IDLE, "time.sleep(300)"),
    ],
)
def test_nobody_survives_a_box(sandbox: Bubblewrap, ending: ExitReason, then: str) -> None:
    marker = f"survivor-{os.urandom(8).hex()}"
    wall_s = 3.0 if ending is ExitReason.WALL_IDLE else 60.0
    outcome = sandbox.run(
        python(DAEMON + then, marker, limits=replace(LIMITS, cpu_s=1, wall_s=wall_s))
    )
    assert outcome.exit_reason is ending
    assert soon(lambda: processes_with(marker) == [])


@pytest.mark.parametrize("way", ["run", "open"])
def test_what_a_killed_worker_leaves_is_gone_with_it_or_when_the_next_one_starts(
    sandbox: Bubblewrap, way: str
) -> None:
    marker = f"survivor-{os.urandom(8).hex()}"
    script = DAEMON + (
        "time.sleep(300)"
        if way == "run"
        else SERVE.replace("for line in", "time.sleep(300)\nfor line in")
    )
    worker = (
        "import sys, time\n"
        "from services.sandbox import Command, Limits\n"
        "from services.sandbox.bubblewrap import Bubblewrap\n"
        f"command = Command(argv=({PYTHON!r}, '-I', '-S', '-c', {script!r}, sys.argv[1]),"
        f" limits=Limits(wall_s=300.0), binds={BINDS!r})\n"
        f"sandbox = Bubblewrap()\nbox = sandbox.{way}(command)\n"
        "time.sleep(300)"
    )
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", worker, marker], env={**os.environ, "PYTHONPATH": root}
    )
    began = soon(lambda: len(processes_with(marker)) >= 5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert began

    def gone() -> bool:
        if os.geteuid() == 0:
            Bubblewrap()  # the next worker starts
        return processes_with(marker) == []

    assert soon(gone)


def test_a_starting_worker_leaves_the_boxes_of_others_alone(standing: PersistentBox) -> None:
    Bubblewrap()
    assert standing.ask(b"reply(b'here')\n", SOON_S).words == ("here",)


MANY_THREADS = """
import os
from concurrent.futures import ThreadPoolExecutor
from services.sandbox.bubblewrap import Bubblewrap
from tests.contract.test_sandbox import python

ECHO = "import os, sys; d = sys.stdin.buffer.read(); os.write(1, d); os.write(3, d[::-1])"
sandbox = Bubblewrap()

def gets_its_own(number):
    data = f"{number} ".encode() * 200
    outcome = sandbox.run(python(ECHO, stdin=data, files={"/box/a": data}))
    return (outcome.stdout, outcome.report) == (data, data[::-1])

gets_its_own(0)
open_before = len(os.listdir("/proc/self/fd"))
with ThreadPoolExecutor(8) as pool:
    print(all(pool.map(gets_its_own, range(48))))
print(len(os.listdir("/proc/self/fd")) - open_before)
"""


@pytest.mark.usefixtures("sandbox")
def test_many_threads_get_what_is_theirs_and_no_descriptor_is_lost() -> None:
    """Regression: a pipe that was closed twice was by then another thread's.

    In a process of its own, because what other tests left open may be closed at any time.
    """
    ended = subprocess.run(
        [sys.executable, "-c", MANY_THREADS],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.split() == ["True", "0"], ended.stderr


def test_where_tools_are_missing_the_fault_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool, path=None: None)
    with pytest.raises(
        SandboxFault, match=r"needs bwrap, prlimit.*apt-get install bubblewrap util-linux"
    ):
        Bubblewrap()


# ---------------------------------------------------------------------- standing boxes

SERVE = """
import os, sys, time
def reply(words, payload=b""):
    sys.stdout.buffer.write(b"%d %s\\n" % (len(payload), words) + payload)
    sys.stdout.buffer.flush()
reply(b"ready")
for line in sys.stdin.buffer:
    exec(line.decode())
"""


@pytest.fixture
def standing(sandbox: Bubblewrap) -> Iterator[PersistentBox]:
    box = sandbox.open(python(SERVE, limits=replace(LIMITS, cpu_s=None, report_kb=512)))
    yield box
    box.close()


def test_a_standing_box_answers_again_and_again(standing: PersistentBox) -> None:
    for number in range(5):
        exchange = standing.ask(
            f"os.write(3, b'r{number}'); reply(b'a b', b'{number}' * 3)\n".encode(), SOON_S
        )
        assert (exchange.words, exchange.payload) == (("a", "b"), f"{number}".encode() * 3)
        assert exchange.report == f"r{number}".encode()


def test_a_standing_box_takes_long_questions_and_gives_long_answers(
    standing: PersistentBox,
) -> None:
    question = b"x = len('" + b"y" * 1_000_000 + b"'); reply(b'ok', b'z' * x)\n"
    assert standing.ask(question, SOON_S).payload == b"z" * 1_000_000
    assert (
        standing.ask(b"os.write(3, b'x' * 200_000); reply(b'ok')\n", SOON_S).report
        == b"x" * 200_000
    )


@pytest.mark.parametrize(
    ("misbehaves", "wall_s", "why"),
    [
        ("os._exit(1)", SOON_S, "it died"),
        ("time.sleep(300)", 0.5, "did not answer in time"),
        ("os.write(1, b'0 a\\n0 b\\n')", SOON_S, "answered twice"),
        ("os.write(1, b'no number\\n')", SOON_S, "invalid literal"),
        ("os.write(3, b'x' * (1 << 20)); reply(b'a')", SOON_S, "reply exceeds"),
    ],
)
def test_a_standing_box_that_misbehaves_is_lost(
    standing: PersistentBox, misbehaves: str, wall_s: float, why: str
) -> None:
    with pytest.raises(BoxLost, match=why):
        standing.ask(misbehaves.encode() + b"\n", wall_s)
    with pytest.raises(BoxLost, match="it was closed"):
        standing.ask(b"reply(b'a')\n", SOON_S)


def test_a_scrape_of_the_worker_counts_boxes_that_were_lost_and_not_those_that_were_closed(
    sandbox: Bubblewrap,
) -> None:
    def told() -> float:
        return WorkerMetrics().registry.get_sample_value("gradus_worker_box_resets_total") or 0

    before = told()
    sandbox.open(python(SERVE, limits=replace(LIMITS, cpu_s=None))).close()
    assert told() == before
    with pytest.raises(BoxLost, match="it died"):
        sandbox.open(python(SERVE, limits=replace(LIMITS, cpu_s=None))).ask(
            b"os._exit(1)\n", SOON_S
        )
    assert told() == before + 1


def test_nobody_survives_a_standing_box_that_was_lost(sandbox: Bubblewrap) -> None:
    marker = f"survivor-{os.urandom(8).hex()}"
    box = sandbox.open(python(SERVE, marker, limits=replace(LIMITS, cpu_s=None)))
    with pytest.raises(BoxLost, match="did not answer in time"):
        box.ask(b"time.sleep(300)\n", 0.3)
    assert soon(lambda: processes_with(marker) == [])


def test_a_standing_box_that_never_says_that_it_is_ready_is_a_fault_with_its_last_words(
    sandbox: Bubblewrap,
) -> None:
    with pytest.raises(SandboxFault, match="(?s)did not become ready.*ZeroDivisionError"):
        sandbox.open(python("1 / 0"))


def test_nobody_survives_a_standing_box_that_is_closed(sandbox: Bubblewrap) -> None:
    marker = f"survivor-{os.urandom(8).hex()}"
    box = sandbox.open(python(DAEMON + SERVE, marker, limits=replace(LIMITS, cpu_s=None)))
    assert processes_with(marker) != []
    box.close()
    box.close()
    assert soon(lambda: processes_with(marker) == [])


def test_nobody_survives_a_standing_box_that_is_closed_while_it_does_not_listen(
    sandbox: Bubblewrap,
) -> None:
    """The end of its input ends most PID 1s by itself; this one has to be killed."""
    marker = f"survivor-{os.urandom(8).hex()}"
    deaf = SERVE.replace('reply(b"ready")', 'reply(b"ready")\ntime.sleep(300)')
    box = sandbox.open(python(DAEMON + deaf, marker, limits=replace(LIMITS, cpu_s=None)))
    assert processes_with(marker) != []
    box.close()
    try:
        assert soon(lambda: processes_with(marker) == [])
    finally:
        for pid in processes_with(marker):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_standing_box_outlives_the_last_mention_of_its_sandbox() -> None:
    """For an ordinary user a box dies with the thread that started it, which is the sandbox's."""
    script = (
        "import gc, os, sys, threading, time\n"
        "from services.sandbox import Command, Limits\n"
        "from services.sandbox.bubblewrap import Bubblewrap\n"
        "python = os.path.realpath(sys.executable)\n"
        f"command = Command(argv=(python, '-I', '-S', '-c', {SERVE!r}), limits=Limits(cpu_s=None),"
        " binds=('/usr', os.path.realpath(sys.base_prefix)))\n"
        "box = Bubblewrap().open(command)\n"
        "gc.collect()\n"
        "for thread in threading.enumerate()[1:]:\n    thread.join(1)\n"
        "time.sleep(0.5)\n"  # the kernel's part of a thread ends later
        "print(*box.ask(b\"reply(b'here')\\n\", 20.0).words)\n"
        "box.close()"
    )
    assert as_an_ordinary_user(script) == "here"


def test_questions_of_many_threads_get_their_own_answers(standing: PersistentBox) -> None:
    def one(number: int) -> bool:
        return (
            standing.ask(f"reply(b'n', b'{number}')\n".encode(), SOON_S).payload
            == f"{number}".encode()
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(64)))


def test_no_path_of_the_host_is_told_to_a_box(sandbox: Bubblewrap) -> None:
    outcome = sandbox.run(python("import sys; print(sys.argv[0], sys.orig_argv[1:3])"))
    assert re.fullmatch(r"-c \['-I', '-S'\]", said(outcome))
