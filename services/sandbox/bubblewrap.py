"""Boxes made by bubblewrap: own mount, PID, network, IPC and UTS namespaces, a read-only root, no
/proc, rlimits.

As root, bubblewrap sets the box up and the command then becomes an unprivileged user of its own; as
anybody else the box lives in a user namespace of its own. Does not talk to the command beyond its
pipes and does not judge.
"""

from __future__ import annotations

import fcntl
import math
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Protocol

from gradus.errors import SandboxFault
from services.sandbox import Command, ExitReason, Limits, Outcome
from services.sandbox.cancellation import CANCELLED, current_token
from services.sandbox.cgroup import Cgroup, CgroupManager
from services.sandbox.memory_budget import MemoryShortage, get_memory_budget
from services.sandbox.persistent_box import PersistentBox
from services.sandbox.pid1 import kill_orphans, read_init_pid
from services.sandbox.pipes import Pipe
from services.sandbox.seccomp import build_filter_program, build_permissive_filter

_FIRST_UID = 1 << 28
"""As root, every box has a user of its own: process limits count per user, over all boxes of this
machine. No distribution assigns numbers of this size to people, packages or containers by
default."""
_BOXES = count()
"""Numbers of the boxes of this process, which may have several sandboxes."""
_STATUS_FD = 4
_SECCOMP_FD = 5
_FIRST_FILE_FD = 6
_KILLED = 128 + signal.SIGKILL
_TOOLS = ("bwrap", "prlimit", "unshare", "mount", "sh")
_SCRATCH = "/sys"
"""Where the scratch of a box is mounted before the box is made: a folder that every machine has and
no box shows."""
_JOIN = (
    "{ echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null;"
    ' while [ "$1" != -- ]; do echo 0 > "$1" || exit 70; shift; done; shift;'
)
"""First of all a box joins its control groups: whom it forked before would be outside of them. And
it sees to it that boxes die before the worker does when memory runs out."""
_EXEC = ' exec "$@"'
_SERVER_CAPABILITIES = (
    "CAP_SYS_ADMIN",
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_KILL",
)
"""What a server keeps that makes boxes within its own (nested_box.c)."""
_WITH_SCRATCH = (
    f' LIBMOUNT_FORCE_MOUNT2=always "$0" -t tmpfs -o "$1" gradus {_SCRATCH} && shift &&{_EXEC}'
)
"""bubblewrap bounds the size of what it mounts, not how many files it holds: so we mount it, in a
namespace around bubblewrap's. By the old system call: containers refuse the new ones."""


@dataclass
class _Capture:
    """One pipe read from a box: `limit` bytes are kept, and past `kill_at` the box has said
    enough."""

    limit: int
    kill_at: int
    data: bytearray
    total_bytes: int = 0

    def add(self, chunk: bytes) -> None:
        self.total_bytes += len(chunk)
        self.data += chunk[: max(0, self.limit - len(self.data))]


class Bubblewrap:
    """`Sandbox` on bubblewrap. One object serves any number of threads."""

    name = "bubblewrap"

    def __init__(self, *, filtered: bool = True) -> None:
        self.privileged = os.geteuid() == 0
        needed = _TOOLS + (("setpriv",) if self.privileged else ())
        paths = {}
        for tool in needed:
            paths[tool] = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/bin:/bin")
        missing = [tool for tool, path in paths.items() if path is None]
        if missing:
            raise SandboxFault(
                f"the sandbox needs {', '.join(missing)}: install the packages bubblewrap,"
                " util-linux and mount (Debian, Ubuntu: apt-get install bubblewrap util-linux"
                " mount)",
                retryable=False,
            )
        self._tools = {tool: path for tool, path in paths.items() if path is not None}
        if self.privileged:
            kill_orphans(_FIRST_UID)
        self._groups = CgroupManager()
        # --die-with-parent means the parent *thread*: persistent boxes are children of one that
        # lives as long as we do
        self._parent = ThreadPoolExecutor(1, thread_name_prefix="boxes")
        self._is_filtered = filtered
        # What Python opens is closed in children, but what this process itself inherited is not,
        # until now.
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and os.path.exists(
                f"/proc/self/fd/{name}"
            ):  # the listing's own descriptor is gone
                os.set_inheritable(int(name), False)

    def run(self, command: Command) -> Outcome:
        with ExitStack() as stack:
            stack.enter_context(get_memory_budget().reserve(command.limits.memory_mb))
            stdin = stack.enter_context(open_sealed_file(command.stdin))
            files = []
            for data in _collect_contents(command).values():
                files.append(stack.enter_context(open_sealed_file(data)))
            out, err, report, status = pipes = [stack.enter_context(Pipe()) for _ in range(4)]
            seccomp = stack.enter_context(open_sealed_file(self.build_filter(command)))
            targets = [stdin, *(pipe.write for pipe in pipes), seccomp, *files]
            group = stack.enter_context(self.open_group(command.limits))
            started = time.monotonic()
            pid = _spawn(self._build_start_argv(command, group), targets)
            for pipe in pipes:
                pipe.close(pipe.write)
            process = stack.enter_context(closing(_FreshProcess(pid, status.read)))
            watch = Watch(command.limits, process, started)
            outcome = watch.wait_for_end(out.read, err.read, report.read)
            return tell_memory_apart(outcome, group, stopped_by_us=watch.has_killed)

    def open(self, command: Command) -> PersistentBox:
        with ExitStack() as stack:
            group = stack.enter_context(self.open_group(command.limits))

            def spawn(targets: Sequence[int]) -> int:
                with open_sealed_file(self.build_filter(command)) as seccomp:
                    argv = self._build_start_argv(command, group)
                    return self._parent.submit(_spawn, argv, [*targets, seccomp]).result()

            return PersistentBox(spawn, command.limits, stack.pop_all().close, group)

    def create_unfiltered(self) -> Bubblewrap:
        return type(self)(filtered=False)

    def start_server(self, command: Command, group: Cgroup, targets: Sequence[int]) -> int:
        """Start a box whose command makes boxes within it: it keeps what rights that takes, and is
        bound by no rlimit and no filter. Its descriptors are `targets`, the fifth for bubblewrap's
        status. Return the number of bubblewrap's process."""
        files = []
        with ExitStack() as stack:
            for data in (build_permissive_filter(), *_collect_contents(command).values()):
                files.append(stack.enter_context(open_sealed_file(data)))
            argv = self._wrap_in_group(group, self._build_box_argv(command, _SERVER_CAPABILITIES))
            argv += command.argv
            return self._parent.submit(_spawn, argv, [*targets, *files]).result()

    def build_filter(self, command: Command) -> bytes:
        """Return the filter of system calls for a command."""
        if not self._is_filtered:
            return build_permissive_filter()
        return build_filter_program(socket_pairs=command.socket_pairs)

    def draw_uid(self) -> int:
        """Return the user of the next box; 0 where boxes have the worker's, in a user namespace."""
        if not self.privileged:
            return 0
        return _FIRST_UID + (os.getpid() % (1 << 16)) * 1024 + next(_BOXES) % 1024

    def open_group(self, limits: Limits) -> AbstractContextManager[Cgroup]:
        return self._groups.open_group(limits.memory_mb, limits.processes, limits.scratch_mb)

    def _build_start_argv(self, command: Command, group: Cgroup) -> list[str]:
        argv = self._build_bwrap_argv(command)
        limits = command.limits
        if not limits.scratch_mb or limits.scratch_files is None:
            return self._wrap_in_group(group, argv)
        shell = self._tools["sh"]
        joined = [*group.list_join_files(), "--"]
        around = [
            self._tools["unshare"],
            "--mount",
            *([] if self.privileged else ["--user", "--map-root-user"]),
            "--",
        ]
        # the folder itself is one, too
        mount_options = (
            f"mode=1777,nosuid,nodev,size={limits.scratch_mb}m,nr_inodes={limits.scratch_files + 1}"
        )
        script = _JOIN + _WITH_SCRATCH
        return [*around, shell, "-c", script, self._tools["mount"], *joined, mount_options, *argv]

    def _wrap_in_group(self, group: Cgroup, argv: Sequence[str]) -> list[str]:
        shell = self._tools["sh"]
        return [shell, "-c", _JOIN + _EXEC, shell, *group.list_join_files(), "--", *argv]

    def _build_bwrap_argv(self, command: Command) -> list[str]:
        argv = self._build_box_argv(
            command, ("CAP_SETUID", "CAP_SETGID") if self.privileged else ()
        )
        if self.privileged:
            uid = str(self.draw_uid())
            argv += [
                self._tools["setpriv"],
                "--reuid",
                uid,
                "--regid",
                uid,
                "--clear-groups",
                "--no-new-privs",
            ]
            argv += ["--bounding-set=-all", "--inh-caps=-all"]
        rlimits = [f"--{name}={value}" for name, value in build_rlimits(command.limits).items()]
        return [*argv, self._tools["prlimit"], *rlimits, "--", *command.argv]

    def _build_box_argv(self, command: Command, capabilities: Sequence[str]) -> list[str]:
        argv = [
            self._tools["bwrap"],
            "--die-with-parent",
            "--new-session",
            "--as-pid-1",
            "--clearenv",
        ]
        for name, value in {"PATH": "/usr/bin", **command.environment}.items():
            argv += ["--setenv", name, value]
        argv += ["--json-status-fd", str(_STATUS_FD), "--seccomp", str(_SECCOMP_FD)]
        argv += [
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-uts",
            "--unshare-cgroup-try",
        ]
        if not self.privileged:
            argv += ["--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
        else:  # containers refuse sethostname to those without CAP_SYS_ADMIN outside the box
            argv += ["--hostname", "box"]
        argv += _build_root_options(command)
        for capability in capabilities:
            argv += ["--cap-add", capability]
        return [*argv, "--chdir", "/tmp", "--"]


def _build_root_options(command: Command) -> list[str]:
    argv = [
        "--dir",
        "/dev",
        "--dev-bind",
        "/dev/null",
        "/dev/null",
        "--dev-bind",
        "/dev/urandom",
        "/dev/urandom",
    ]
    for link in ("lib", "lib64", "bin"):
        if os.path.islink(f"/{link}"):
            argv += ["--symlink", f"usr/{link}", f"/{link}"]
        elif os.path.isdir(f"/{link}"):
            argv += ["--ro-bind", f"/{link}", f"/{link}"]
    for source, target in {**{path: path for path in command.binds}, **command.mounts}.items():
        # bubblewrap would give parents the mode they have outside, and a 0700 home would lock the
        # box out
        for parent in _list_parents(target):
            argv += ["--dir", parent]
        argv += ["--ro-bind-try", source, target]
    for index, path in enumerate(_collect_contents(command)):
        mode = "0111" if path in command.programs else "0444"
        argv += ["--perms", mode, "--ro-bind-data", str(_FIRST_FILE_FD + index), path]
    if not command.limits.scratch_mb:
        argv += ["--dir", "/tmp"]
    elif command.limits.scratch_files is None:
        argv += [
            "--perms",
            "1777",
            "--size",
            str(command.limits.scratch_mb << 20),
            "--tmpfs",
            "/tmp",
        ]
    else:
        argv += ["--bind", _SCRATCH, "/tmp"]
    return [*argv, "--remount-ro", "/"]


@lru_cache(maxsize=256)
def _list_parents(path: str) -> tuple[str, ...]:
    """Return the folders that `path` is in, outermost first, without the root."""
    return tuple(map(str, reversed(Path(path).parents[:-1])))


def _collect_contents(command: Command) -> dict[str, bytes]:
    """Return what the box gets through descriptors, in their order."""
    return {**command.files, **command.programs}


def tell_memory_apart(outcome: Outcome, group: Cgroup, *, stopped_by_us: bool) -> Outcome:
    """Return the outcome, with MEMORY_LIMIT if the box met its own limit.

    Raises MemoryShortage for a box that the kernel killed for another's use of memory.
    """
    if group.own and group.has_kills():
        if not group.has_met_limit():
            raise MemoryShortage
        return replace(outcome, exit_reason=ExitReason.MEMORY_LIMIT)
    # Without a group of its own, who was killed is not known: any bad ending may come of it.
    is_suspect = outcome.exit_code == _KILLED or (outcome.exit_code != 0 and not group.own)
    if is_suspect and not stopped_by_us and group.has_kills_around():
        raise MemoryShortage
    return outcome


def build_rlimits(limits: Limits) -> dict[str, int | str]:
    """Return the limits of each process, by the names that prlimit(1) has for them."""
    mega = 1 << 20
    return {
        # The watch stops a box at its exact limit. The kernel counts in whole ticks, on a busy
        # machine up to twice what was used: so its own limit, which also holds if the worker is
        # frozen, is wider, and who meets it has used up the box's.
        "cpu": "unlimited" if limits.cpu_s is None else 2 * limits.cpu_s + 1,
        "as": limits.memory_mb * mega,
        "nproc": limits.processes,
        "fsize": limits.file_mb * mega,
        "nofile": 256,
        "core": 0,
        "memlock": 0,
        "msgqueue": 0,
        "rtprio": 0,
    }


@contextmanager
def open_sealed_file(data: bytes) -> Iterator[int]:
    """A file in memory with `data`, at its start. Boxes get their input this way: nothing of theirs
    is on disk."""
    fd = os.memfd_create("gradus", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def _spawn(argv: list[str], targets: Sequence[int]) -> int:
    """Start `argv` with targets[n] as its descriptor n and no other descriptor of ours.

    posix_spawn and not fork: the worker has threads.
    """
    above = max(len(targets), *targets) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in targets]
    try:
        actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(moved)]
        return os.posix_spawn(
            argv[0], argv, {}, file_actions=actions, setsid=True, setsigdef=[signal.SIGPIPE]
        )
    except OSError as error:
        raise SandboxFault(f"{argv[0]} could not be started: {error}") from error
    finally:
        for fd in moved:
            os.close(fd)


_FIRST_SAMPLE_S, _SAMPLE_S = 0.02, 0.25
"""Seconds to the first look at a running box, and between two looks later; the wait doubles."""
_CORES = os.cpu_count() or 1
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_KERNEL_LISTS_CHILDREN = os.path.exists("/proc/thread-self/children")
"""The kernel is made with CONFIG_PROC_CHILDREN, as those of distributions are."""


@dataclass(frozen=True, slots=True)
class _Activity:
    """What the kernel has noted of the threads of a box, in seconds."""

    at_s: float
    """When it was read, by the monotonic clock."""
    cpu_s: float
    """CPU time of its processes, with their threads and children that have ended."""
    ended_cpu_s: float
    """The part of it whose threads have ended; how long they waited for a CPU is not known."""
    waited_s: float
    """Time in which threads were ready to run and had no CPU."""
    states: frozenset[str]
    """States of its threads: R is running or ready to run, D waiting for a disk or for memory."""

    @classmethod
    def measure(cls, init: int) -> _Activity:
        """Read all processes of a box, of which `init` is PID 1. Raises OSError and ValueError,
        also if one of them ended meanwhile."""
        ran = 0
        waited = 0
        ticks = 0
        ended_ticks = 0
        states = set()
        processes = [init]
        for process in processes:
            stat = _read_stat(f"/proc/{process}")
            ticks += sum(map(int, stat[11:15]))
            ended_ticks += _count_ended_ticks(stat)
            for thread in os.listdir(f"/proc/{process}/task"):
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    place = Path(f"/proc/{process}/task/{thread}")
                    words = (place / "schedstat").read_text().split()
                    ran += int(words[0])
                    waited += int(words[1])
                    states.add(_read_stat(place)[0])
                    processes += iter_children(place)
        if not ran:
            raise ValueError("the scheduler keeps no accounts")
        stats = [_read_stat(f"/proc/{process}") for process in processes]
        if sum(map(_count_ended_ticks, stats)) != ended_ticks:
            # its parent was read before it ended, so that its CPU time is in neither of the two
            raise ValueError("a process ended meanwhile")
        cpu_s = ticks * _TICK_S
        return cls(time.monotonic(), cpu_s, cpu_s - ran / 1e9, waited / 1e9, frozenset(states))

    def count_stall_since(self, last: _Activity, looks: int) -> float:
        """Return the seconds since `last`, so many looks ago, without CPU time and without time in
        the queue. Call it while all threads are asleep.

        At most a second for each look: while the worker got no CPU itself, or all were frozen,
        nothing is known; nor over several looks in which threads ended.
        """
        if looks > 1 and self.ended_cpu_s - last.ended_cpu_s > 2 * _TICK_S:
            return 0.0
        busy_s = self.cpu_s - last.cpu_s + self.waited_s - last.waited_s
        return min(max(0.0, self.at_s - last.at_s - busy_s), float(looks))


def _read_stat(place: str | Path) -> list[str]:
    """Return the fields of a process or thread after its name, its state first."""
    return Path(place, "stat").read_text().rpartition(")")[2].split()


def _count_ended_ticks(stat: Sequence[str]) -> int:
    """Return the CPU time of a process' children that have ended."""
    return int(stat[13]) + int(stat[14])


def iter_children(thread: Path) -> Iterator[int]:
    """Yield processes that a thread has started; `thread` is its folder in /proc. Raises OSError
    when it has ended."""
    if _KERNEL_LISTS_CHILDREN:
        yield from map(int, (thread / "children").read_text().split())
    elif thread.name == thread.parts[2]:  # all children of a process, once for all of its threads
        for process in filter(str.isdigit, os.listdir("/proc")):
            with suppress(FileNotFoundError, ProcessLookupError):
                if _read_stat(f"/proc/{process}")[1] == thread.name:
                    yield int(process)


class BoxProcess(Protocol):
    """A box that runs."""

    gone_fd: int
    """Readable once it has ended."""

    def find_init(self) -> int | None:
        """Return its PID 1, by the number outside; None while it is not known."""
        ...

    def kill(self) -> None: ...

    def collect(self) -> tuple[int, float]:
        """Wait for its end. Return its status, as wait(2) has it, and its CPU seconds."""
        ...


class _FreshProcess:
    """A box of its own, by the process of its bubblewrap."""

    def __init__(self, pid: int, status_fd: int) -> None:
        self._pid = pid
        self._status_fd = status_fd
        self._init: int | None = None
        try:
            self.gone_fd = os.pidfd_open(pid)
        except OSError:  # there are too many open files
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def find_init(self) -> int | None:
        if self._init is None:
            self._init = read_init_pid(self._status_fd)
        return self._init

    def kill(self) -> None:
        # Killing the box's own PID 1 ends its whole namespace and lets bubblewrap collect the CPU
        # time that was used. Without its number, bubblewrap itself is killed, and PID 1 dies with
        # it (--die-with-parent).
        try:
            os.kill(self.find_init() or self._pid, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(self._pid, signal.SIGKILL)  # not reaped yet, so the number is still ours

    def collect(self) -> tuple[int, float]:
        _, status, usage = os.wait4(self._pid, 0)
        return status, usage.ru_utime + usage.ru_stime

    def close(self) -> None:
        os.close(self.gone_fd)


class Watch:
    """Reads a box until it is done or over a limit; kills it then. Its life is one run."""

    def __init__(self, limits: Limits, process: BoxProcess, started: float) -> None:
        self.limits = limits
        self.process = process
        self.started = started
        self.has_killed = False
        """The box was over a limit and we ended it."""
        self._last: _Activity | None = None
        """The last look at which all threads were asleep, or one waited for the machine."""
        self._looks = 0
        """Looks since then."""
        self._sample_s = _FIRST_SAMPLE_S
        self._stalled_s = 0.0

    def wait_for_end(self, out_fd: int, err_fd: int, report_fd: int) -> Outcome:
        output = self.limits.output_kb << 10
        report_bytes = self.limits.report_kb << 10
        captures = {
            out_fd: _Capture(output, 2 * output, bytearray()),
            err_fd: _Capture(output, 2 * output, bytearray()),
            report_fd: _Capture(report_bytes, report_bytes, bytearray()),
        }
        try:
            exit_reason = self._read(dict(captures))
        except BaseException:  # also an interrupt: no box may outlive the call that waits for it
            self._kill(ExitReason.EXITED)
            self.process.collect()
            raise
        status, cpu_s = self.process.collect()
        code = os.waitstatus_to_exitcode(status)
        may_be_cpu = exit_reason in (ExitReason.EXITED, ExitReason.WALL_IDLE)
        if may_be_cpu and code == _KILLED and self._has_used_up(cpu_s):
            exit_reason = ExitReason.CPU_LIMIT
        wall_s = time.monotonic() - self.started
        stdout, stderr, report = (bytes(capture.data) for capture in captures.values())
        exit_code = code if code >= 0 else 128 - code
        return Outcome(
            exit_reason, exit_code, cpu_s, wall_s, stdout, stderr, report, self._stalled_s
        )

    def _has_used_up(self, cpu_s: float) -> bool:
        return self.limits.cpu_s is not None and cpu_s >= self.limits.cpu_s

    def _read(self, open_fds: dict[int, _Capture]) -> ExitReason:
        """Read until the box is gone and its pipes are empty, or a limit is passed and it was
        killed.

        Raises SandboxFault when the attempt was stopped: what is left of the box is no outcome.
        """
        poll = select.poll()
        gone = self.process.gone_fd
        token = current_token()
        for fd in (*open_fds, gone, *([token.fd] if token else [])):
            poll.register(fd, select.POLLIN)
        waiting = {gone, *open_fds}
        look_at = self.started + self._sample_s
        while waiting:
            left_s = self.started + self.limits.wall_s - time.monotonic()
            look_s = look_at - time.monotonic()
            events = poll.poll(max(0, math.ceil(min(left_s, look_s) * 1000)))
            if left_s <= 0 and not events:
                # none that slept for half of the time is short of CPU
                slept = 2 * self._stalled_s >= self.limits.wall_s
                return self._kill(ExitReason.WALL_IDLE if slept else ExitReason.WALL_STARVED)
            if time.monotonic() >= look_at:
                reason = self._look()
                if reason:
                    return self._kill(reason)
                look_at = time.monotonic() + self._sample_s
            if token and token.is_cancelled:
                raise SandboxFault(CANCELLED)
            for fd, _ in events:
                chunk = b"" if fd == gone else os.read(fd, 65536)
                if chunk:
                    open_fds[fd].add(chunk)
                else:
                    poll.unregister(fd)
                    waiting.discard(fd)
                if chunk and open_fds[fd].total_bytes > open_fds[fd].kill_at:
                    return self._kill(ExitReason.OUTPUT_LIMIT)
        return ExitReason.EXITED

    def _kill(self, why: ExitReason) -> ExitReason:
        self.has_killed = True
        self.process.kill()
        return why

    def _look(self) -> ExitReason | None:
        """Return the limit that the running box is over, CPU or stall; None if it is over none or
        if nothing is known. Sets the wait until the next look."""
        self._sample_s = min(_SAMPLE_S, 2 * self._sample_s)
        try:
            activity = _Activity.measure(self.process.find_init() or 0)
        except (OSError, ValueError, IndexError):
            self._last = None  # no box yet, or none any more
            return None
        self._looks += 1
        is_asleep = not activity.states & {"R", "D"}
        if self._last is not None and is_asleep:
            self._stalled_s += activity.count_stall_since(self._last, self._looks)
        if self._last is None or is_asleep or "D" in activity.states:  # the machine's doing
            self._last = activity
            self._looks = 0
        if self._has_used_up(activity.cpu_s):
            return ExitReason.CPU_LIMIT
        if self.limits.stall_s is not None and self._stalled_s >= self.limits.stall_s:
            return ExitReason.WALL_IDLE
        if self.limits.cpu_s is not None:
            soonest_s = (self.limits.cpu_s - activity.cpu_s) / _CORES
            self._sample_s = min(self._sample_s, max(_FIRST_SAMPLE_S, soonest_s))
        return None
