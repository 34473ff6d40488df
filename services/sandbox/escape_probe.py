"""The sandbox attacks itself: before a worker serves, these attempts must all fail, and each names
what to fix if not.

The attacker runs in a box exactly as answers do. What is probed is what an answer could want: other
people's files, the network, other processes, the host's environment, more memory, processes, disk
or time than it was given. Does not probe the kernel for bugs.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gradus.errors import SandboxFault
from services.sandbox import Command, ExitReason, Limits, Outcome, Sandbox

_LIMITS = Limits(
    cpu_s=2,
    wall_s=20.0,
    memory_mb=256,
    processes=12,
    scratch_mb=8,
    scratch_files=1000,
    file_mb=4,
    output_kb=64,
)

_ATTACKS = r"""
import json, os, socket, sys
chosen, canary, port, marker, parent, processes, scratch_mb, scratch_files = json.loads(sys.stdin.readline())
found = {}

def attack(name):
    def run(function):
        if chosen and name not in chosen:
            return
        try:
            got = function()
        except Exception:  # whatever stops an attack: it did not get through
            got = None
        if got:
            found[name] = str(got)
    return run

@attack("files")
def _():
    return open(canary).read()

@attack("proc")
def _():
    return [name for name in ("/proc/self", "/proc/1", "/sys/kernel", "/etc/passwd", "/run") if os.path.lexists(name)]

@attack("environment")
def _():
    return sorted(set(os.environ) - {"PATH", "PWD", "LC_CTYPE"})

@attack("network")
def _():
    socket.create_connection(("127.0.0.1", port), timeout=1)
    return "connected to a port of the host"

@attack("root")
def _():
    return os.getuid() == 0 and "runs as user 0"

@attack("signals")
def _():
    os.kill(parent, 0)
    return parent != 1 and os.getpid() != parent and "can signal process %d" % parent

@attack("write")
def _():
    got = []
    for place in ("/", "/usr", "/dev", "/usr/lib", "/lib", *([] if scratch_mb else ["/tmp"])):
        try:
            if not os.statvfs(place).f_flag & os.ST_RDONLY:  # its owner included
                got.append(place)
            open(os.path.join(place, marker), "w").close()
            got.append("a file in " + place)
        except OSError:
            pass
    return got

@attack("descriptors")
def _():
    got = []
    for fd in range(4, 1 << 16):  # above the box's own limit, too: that binds new ones alone
        try:
            os.fstat(fd)
            got.append(fd)
        except OSError:
            pass
    return got

@attack("seccomp")
def _():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    got = []
    if libc.unshare(0x10000000) == 0:
        got.append("unshare a user namespace")
    if libc.ptrace(0, 0, 0, 0) == 0:
        got.append("ptrace")
    if libc.memfd_create(b"x", 0) >= 0:
        got.append("make a file in memory that counts as nobody's")
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_NETLINK):
        try:
            socket.socket(family).close()
            got.append("open a socket of family %d" % family)
        except OSError:
            pass
    return got

@attack("memory")
def _():
    bytearray(1 << 30)
    return "got 1 GiB"

@attack("disk")
def _():
    try:
        for index in range(4 * scratch_mb):
            with open("/tmp/%d" % index, "wb") as file:
                file.write(bytes(1 << 20))
    except OSError:
        return None
    return "wrote %d MiB" % (4 * scratch_mb)

@attack("file count")
def _():
    try:
        for index in range(1000000):
            os.close(os.open("/tmp/empty%d" % index, os.O_CREAT | os.O_WRONLY))
            if index > 2 * scratch_files:
                return "made %d empty files" % index
    except OSError:
        return None

@attack("processes")
def _():
    for count in range(4 * processes):
        if os.fork() == 0:
            os.setsid()
            import time
            time.sleep(60)
            os._exit(0)
    return "started %d processes" % (4 * processes)

os.write(3, json.dumps([marker, found]).encode())
"""  # noqa: E501

_LEFTOVERS = r"""
import ctypes, json, os, resource, signal, socket, sys, time
marker = sys.argv[1]
usual = int(sys.argv[2])
libc = ctypes.CDLL(None)
KEY = 4711
CREATE = 0o1666
QUEUES = {"shmget": (4096, CREATE), "msgget": (CREATE,), "semget": (1, CREATE)}
places = [os.path.join(place, marker) for place in ("/", "/tmp", "/box", "/dev", "/dev/shm", "/usr")]
address = "\0" + marker
found = []

def attempt(function, *arguments):
    try:
        return function(*arguments)
    except OSError:
        return None

found += [place for place in places if os.path.lexists(place)]
found += [name for name, (*sizes, _) in QUEUES.items() if getattr(libc, name)(KEY, *[0] * len(sizes), 0) >= 0]
found += ["process %d" % pid for pid in range(2, 300) if libc.kill(pid, 0) == 0]
found += ["descriptor %d does not block" % fd for fd in range(4) if not os.get_blocking(fd)]
if os.getpriority(os.PRIO_PROCESS, 0) != usual:
    found.append("a priority")
if resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 99:
    found.append("a limit")
if attempt(lambda: socket.socket(socket.AF_UNIX).connect(address) or True):
    found.append("a socket")

for place in places:
    attempt(lambda: open(place, "w").close())
for name, arguments in QUEUES.items():
    getattr(libc, name)(KEY, *arguments)
for pid in (1, os.getppid()):
    attempt(os.setpriority, os.PRIO_PROCESS, pid, 19)
    if pid != os.getpid():
        attempt(resource.prlimit, pid, resource.RLIMIT_NOFILE, (99, 99))
for which in (os.PRIO_PGRP, os.PRIO_USER):
    attempt(os.setpriority, which, 0, 19)
for fd in range(4):
    os.set_blocking(fd, False)
reported, reports = os.pipe()
if os.fork() == 0:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    server = attempt(socket.socket, socket.AF_UNIX)
    if server:
        attempt(server.bind, address)
        attempt(server.listen)
    os.write(3, json.dumps([marker, {"leftovers": found} if found else {}]).encode())
    os.write(reports, b".")
    time.sleep(60)
else:
    os.close(reports)
    os.read(reported, 1)  # a busy machine may let the child wait
    os._exit(0)
"""  # noqa: E501
"""Looks for what this script left when it ran before, and leaves it."""

_BELOW = frozenset({"files", "network", "signals", "write", "disk", "file count", "processes"})
"""Attacks that have to fail without the seccomp filter, too."""
_SPIN = "while True: pass"
_FLOOD = "import os\nwhile True: os.write(1, b'x' * 4096)"

_REMEDIES = {
    "files": "the box sees files of the host: only its own binds may be visible",
    "proc": "the box sees /proc, /sys, /run or /etc: nothing may mount them into it",
    "environment": "the worker's environment, secrets included, reaches the box",
    "network": "the box is not in a network namespace of its own (--unshare-net)",
    "root": (
        "the box runs as user 0: the worker needs setpriv (util-linux), or to be started as an"
        " ordinary user"
    ),
    "signals": "the box is not in a PID namespace of its own (--unshare-pid)",
    "write": (
        "more of the box than its /tmp can be written to, or that where it should not be there"
        " (--remount-ro)"
    ),
    "descriptors": "descriptors of the worker leak into the box",
    "seccomp": "no seccomp filter is in force (--seccomp; the kernel needs CONFIG_SECCOMP_FILTER)",
    "memory": "RLIMIT_AS is not in force (prlimit --as)",
    "disk": "the box's /tmp has no size limit (mount -o size)",
    "file count": (
        "the box's /tmp holds any number of files, and each costs the kernel memory (mount -o"
        " nr_inodes)"
    ),
    "processes": (
        "RLIMIT_NPROC is not in force: the box's user must not be user 0 of the host (prlimit"
        " --nproc)"
    ),
    "leftovers": "what one command leaves, the next one in the box finds (nested_box.c)",
    "survivors": "processes outlive their box (--unshare-pid, --die-with-parent)",
    "cpu": "RLIMIT_CPU is not in force (prlimit --cpu)",
    "output": "output is not limited",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One attack that got through."""

    attack: str
    got: str

    def __str__(self) -> str:
        return f"{self.attack}: {_REMEDIES[self.attack]} (the probe got: {self.got})"


def probe(sandbox: Sandbox) -> list[Finding]:
    """Attack `sandbox`; what got through, so an empty list is good news.

    Raises SandboxFault when boxes cannot be made at all, with what bubblewrap said and what it
    usually means.
    """
    marker = secrets.token_hex(12)
    with (
        _create_canary(marker) as canary,
        closing(socket.create_server(("127.0.0.1", 0))) as server,
    ):
        port = server.getsockname()[1]

        def attack(sandbox: Sandbox, chosen: Iterable[str], limits: Limits) -> dict[str, str]:
            arguments = [
                canary,
                port,
                marker,
                os.getpid(),
                limits.processes,
                limits.scratch_mb,
                limits.scratch_files,
            ]
            outcome = sandbox.run(
                _build_python_command(
                    _ATTACKS, json.dumps([[*chosen], *arguments]), marker, limits=limits
                )
            )
            return _parse_answer(outcome, marker)

        # The filter stops much of what the layers below must stop by themselves: they are tried
        # without it.
        breaches = attack(sandbox.create_unfiltered(), _BELOW, _LIMITS)
        breaches |= attack(sandbox.create_unfiltered(), {"write"}, replace(_LIMITS, scratch_mb=0))
        breaches |= attack(sandbox, (), _LIMITS)
        breaches |= find_leftovers(sandbox.create_unfiltered(), marker)
        breaches |= find_leftovers(sandbox, marker)
    findings = [Finding(name, got) for name, got in breaches.items()]
    findings += [Finding("survivors", f"process {pid}") for pid in _find_processes(marker)]
    patient = replace(_LIMITS, cpu_s=1, wall_s=60.0)  # on a busy machine a second of CPU is a while
    spun, flooded = (
        sandbox.run(_build_python_command(_SPIN, limits=patient)),
        sandbox.run(_build_python_command(_FLOOD)),
    )
    for name, outcome, expected_reason in (
        ("cpu", spun, ExitReason.CPU_LIMIT),
        ("output", flooded, ExitReason.OUTPUT_LIMIT),
    ):
        if outcome.exit_reason is not expected_reason:
            findings.append(Finding(name, f"{outcome.exit_reason}, exit code {outcome.exit_code}"))
    return findings


def find_leftovers(sandbox: Sandbox, marker: str) -> dict[str, str]:
    """Run a command twice that leaves what it can. Return what the second run finds."""
    breaches: dict[str, str] = {}
    usual = str(os.getpriority(os.PRIO_PROCESS, 0))  # a worker may be started by nice(1)
    for _ in range(2):
        outcome = sandbox.run(_build_python_command(_LEFTOVERS, "", marker, usual))
        breaches |= _parse_answer(outcome, marker)
    return breaches


def refuse_unless_safe(sandbox: Sandbox) -> None:
    """Raise SandboxFault, naming each missing setting, if any attack of the probe got through."""
    findings = probe(sandbox)
    if findings:
        lines = "\n".join(f"  - {finding}" for finding in findings)
        raise SandboxFault(
            f"the sandbox does not hold, so this worker refuses to serve:\n{lines}", retryable=False
        )


def _build_python_command(
    script: str, question: str = "", *argv: str, limits: Limits = _LIMITS
) -> Command:
    """Return a command that runs `script` in the interpreter that runs us, wherever that lives."""
    executable = os.path.realpath(sys.executable)
    binds = (
        "/usr",
        os.path.realpath(sys.base_prefix),
        os.path.dirname(os.path.dirname(executable)),
    )
    return Command(
        argv=(executable, "-I", "-S", "-c", script, *argv),
        limits=limits,
        stdin=question.encode() + b"\n",
        binds=binds,
    )


def _parse_answer(outcome: Outcome, marker: str) -> dict[str, str]:
    try:
        echoed, breaches = json.loads(outcome.report)
    except ValueError:
        message = (
            outcome.stderr.decode(errors="replace").strip()
            or f"nothing, exit code {outcome.exit_code}"
        )
        raise SandboxFault(
            f"no box could be made; bubblewrap said: {message}\n{_get_hint(message)}",
            retryable=False,
        ) from None
    if echoed != marker:
        raise SandboxFault(
            "the sandbox probe answered with another probe's marker", retryable=False
        )
    return {str(name): str(got) for name, got in breaches.items()}


def _get_hint(message: str) -> str:
    if (
        "new namespace" in message
        or "user namespace" in message
        or "uid map" in message
        or "unshare" in message
    ):
        return (
            "Namespaces are forbidden here. In a container: a user other than root, and"
            " security_opt seccomp=deploy/docker/seccomp-grader.json and apparmor=unconfined. On"
            " Ubuntu 24.04: sysctl kernel.apparmor_restrict_unprivileged_userns=0. On old Debian:"
            " sysctl kernel.unprivileged_userns_clone=1."
        )
    if "pivot_root" in message or "mount" in message:
        return (
            "Mounting is forbidden here. In a container: security_opt"
            " seccomp=deploy/docker/seccomp-grader.json and apparmor=unconfined; do not mount /proc"
            " into boxes."
        )
    return "See docs/operate/troubleshooting.md."


@contextmanager
def _create_canary(marker: str) -> Iterator[str]:
    """A file that every user of the host may read."""
    with tempfile.TemporaryDirectory(prefix="gradus-canary-") as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "canary"
        path.write_text(marker)
        path.chmod(0o644)
        yield str(path)


def _find_processes(marker: str) -> list[int]:
    """Return processes of the host that carry `marker` in their command line, as the attacker and
    its children do."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    pids.append(int(entry.name))
            except OSError:
                continue  # gone, or not ours to look at
    return pids
