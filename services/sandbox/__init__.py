"""The Box contract: one place where untrusted code runs once. Knows no language, no test and no
reward.

`Sandbox.run(Command)` makes a fresh box, runs one command in it, kills and wipes everything and
returns an `Outcome`. `bubblewrap.Bubblewrap` is the implementation; `probe.probe()` attacks it at
start-up.

What a box does *not* protect against: bugs of the kernel; hardware side channels; a command that
talks over its own report channel (so nothing unauthenticated on it is evidence); a machine that is
starved as a whole (see `ExitReason`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from services.sandbox.persistent_box import PersistentBox


@dataclass(frozen=True, slots=True)
class Limits:
    """What one box may use. CPU counts all its processes; memory is address space, per process, and
    of all together where the box has a control group."""

    cpu_s: int | None = 5
    """None: no limit of the box's own. For persistent boxes, which set one for each of their
    children."""
    wall_s: float = 20.0
    stall_s: float | None = None
    """Seconds in all in which every thread in the box may be asleep: wall time without CPU time and
    without time in the scheduler's queue. None: not counted."""
    memory_mb: int = 512
    processes: int = 16
    """Processes and threads at one time."""
    file_mb: int = 32
    """Largest single file."""
    scratch_mb: int = 64
    """Size of the box's only writable place, /tmp. 0: nothing can be written anywhere."""
    scratch_files: int | None = 4096
    """Files, folders and links in /tmp at one time: each costs the kernel memory that no rlimit
    counts. None: not counted, which is cheaper, for commands that make no files at an answer's
    word, such as compilers."""
    output_kb: int = 256
    """Kept of stdout and of stderr each; past twice that the box is killed."""
    report_kb: int = 1024
    """Kept of the report channel; past that the box is killed."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run in a box, and what the box can see."""

    argv: tuple[str, ...]
    limits: Limits
    stdin: bytes = b""
    """Written to descriptor 0, then end of file."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Absolute path in the box -> content; read-only."""
    programs: Mapping[str, bytes] = field(default_factory=dict)
    """Absolute path in the box -> a program that can be run and not read: it may hold more than it
    says."""
    binds: tuple[str, ...] = ()
    """Paths of the host that the box sees, read-only, in the same place. Missing ones are left
    out."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Path of the host -> path in the box, read-only."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside PATH, which is all that a box has otherwise."""
    socket_pairs: bool = False
    """It may make pairs of Unix sockets, which reach nothing but each other."""


class ExitReason(StrEnum):
    """Why the command is no longer running."""

    EXITED = "exited"
    """By itself, or by a signal that was not ours; `exit_code` is 128 + signal then. Never evidence
    of anything."""
    CPU_LIMIT = "cpu_limit"
    MEMORY_LIMIT = "memory_limit"
    """The kernel killed a process of the box, whose control group met its own limit."""
    WALL_IDLE = "wall_idle"
    """Wall or stall limit, while it waited of its own will (asleep, deadlocked, reading): the
    program's doing."""
    WALL_STARVED = "wall_starved"
    """Wall limit, while it wanted a CPU and did not get one: the machine's doing."""
    OUTPUT_LIMIT = "output_limit"


@dataclass(frozen=True, slots=True)
class Outcome:
    exit_reason: ExitReason
    exit_code: int
    cpu_s: float
    """User + system time of everything that ran in the box, its own set-up included."""
    wall_s: float
    stdout: bytes
    stderr: bytes
    report: bytes
    """What was written to descriptor 3."""
    stalled_s: float = 0.0
    """Seconds that count towards `Limits.stall_s`."""


class BoxLost(Exception):
    """A persistent box is gone: it died, spoke out of turn, or did not answer in time. The next one
    is a new one."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request to a persistent box and its reply."""

    words: tuple[str, ...]
    """The rest of the reply's first line."""
    payload: bytes
    report: bytes
    """What was written to descriptor 3 meanwhile."""


class Sandbox(Protocol):
    name: str
    """Stamped into every grader revision: `bubblewrap`, or `none`."""

    def run(self, command: Command) -> Outcome:
        """Run `command` in a fresh box; blocks. Calls may overlap.

        Raises SandboxFault when no box could be made, when the attempt was stopped (`stop`), when
        its memory can never fit into this worker's budget, and when the kernel killed it for lack
        of memory without its having met a limit of its own. Waits until its memory fits.
        That the command ran at all is for the caller to prove from the report channel: a box that
        broke while it was being made looks like a command that exited.
        """
        ...

    def open(self, command: Command) -> PersistentBox:
        """Return a persistent box around `command`. Raises SandboxFault when it does not become
        ready."""
        ...

    def create_unfiltered(self) -> Sandbox:
        """Return these boxes without the seccomp filter, so that the probe can test the layers
        below it."""
        ...
