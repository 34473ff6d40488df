"""A persistent box: serves many requests, and is killed at the first reply that breaks the
protocol.

The command inside is trusted, its children are not: they write the report channel.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar
from weakref import WeakSet

from gradus.errors import SandboxFault
from services.sandbox import BoxLost, Command, Exchange, Limits, Sandbox
from services.sandbox.cancellation import CANCELLED, current_token
from services.sandbox.cgroup import Cgroup, remove_leftovers
from services.sandbox.memory_budget import get_memory_budget
from services.sandbox.pid1 import kill_box, read_init_pid
from services.sandbox.pipes import Pipe

START_S = 60.0
_CHUNK = 1 << 16
_QUIET_MS = 20.0
"""Wait for the reply alone: most reports fit into their pipe and are read with it, which saves
waking up twice."""
MAX_REPLY = 1 << 26
_COUNTING = threading.Lock()
_REMOVAL_S = 1.0
"""Longest wait, when the process ends, for the kernel to let go of the last control groups."""


class PersistentBox:
    """A box whose command serves many questions, each in a child that it confines and outlives.

    The command says "0 ready" once it can serve. A reply is "<length> <words>\\n" and `length`
    bytes.

    `spawn` starts the box with these descriptors as its 0, 1, 2 ... and returns its process id;
    `gone` is called once the box is no more; `group` is its control group.
    """

    _open: ClassVar[WeakSet[PersistentBox]] = WeakSet()
    """Those to close when this process ends."""
    resets: ClassVar[int] = 0
    """Persistent boxes of this process that were lost and had to be replaced."""

    def __init__(
        self,
        spawn: Callable[[Sequence[int]], int],
        limits: Limits,
        gone: Callable[[], None],
        group: Cgroup,
    ) -> None:
        self._limits = limits
        self._gone = gone
        self.group = group
        # kept for the life of the box: the thread that started it may be the one it dies with
        self._spawn = spawn
        self._turn = threading.Lock()  # one request at a time: the box has one pair of pipes
        self._pipes = [Pipe() for _ in range(5)]
        stdin, out, err, report, status = self._pipes
        self._pid: int | None = self._spawn(
            [stdin.read, out.write, err.write, report.write, status.write]
        )
        for pipe, end in (
            (stdin, stdin.read),
            *((pipe, pipe.write) for pipe in (out, err, report, status)),
        ):
            pipe.close(end)
        self._stdin = stdin.write
        self._out = out.read
        self._err = err.read
        self._report = report.read
        for fd in (self._stdin, self._out, self._err, self._report):
            os.set_blocking(fd, False)
        PersistentBox._open.add(self)
        try:
            ready = self.ask(b"", START_S)
        except BoxLost as lost:
            raise SandboxFault(f"a box did not become ready: {lost}") from None
        if ready.words[:1] != ("ready",):
            self.close()
            raise SandboxFault("a box answered before it was asked")

    def ask(self, question: bytes, wall_s: float) -> Exchange:
        """Raise BoxLost; the box is gone then."""
        with self._turn:
            if self._pid is None:
                raise BoxLost("it was closed")
            try:
                return self._exchange(memoryview(question), time.monotonic() + wall_s)
            except (BoxLost, OSError, ValueError) as error:
                stderr_text = ""
                with suppress(OSError):
                    stderr_text = os.read(self._err, _CHUNK).decode(errors="replace").strip()
                self.close()
                with _COUNTING:
                    PersistentBox.resets += 1
                why = f"{error}; it said: {stderr_text[-500:]}" if stderr_text else str(error)
                raise BoxLost(why) from None

    def _exchange(self, question: memoryview, deadline: float) -> Exchange:
        reply, report = bytearray(), bytearray()
        question = question[os.write(self._stdin, question[:_CHUNK]) :]
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        if question:
            poll.register(self._stdin, select.POLLOUT)
        token = current_token()
        if token:
            poll.register(token.fd, select.POLLIN)
        while (frame := _parse_frame(reply)) is None:
            left_ms = max(0, (deadline - time.monotonic()) * 1000)
            events = poll.poll(min(left_ms, _QUIET_MS))
            if not events and left_ms <= _QUIET_MS:
                raise BoxLost("it did not answer in time")
            if not events:  # the report may be more than its pipe holds
                poll.register(self._report, select.POLLIN)
            if token and token.is_cancelled:
                raise BoxLost(CANCELLED)
            for fd, _ in events:
                if fd == self._stdin:
                    question = question[os.write(fd, question[:_CHUNK]) :]
                    if not question:
                        poll.unregister(fd)
                elif not self._take(fd, reply if fd == self._out else report):
                    raise BoxLost("it died")
        self._take(self._report, report)
        return Exchange(frame[0], frame[1], bytes(report))

    def _take(self, fd: int, into: bytearray) -> bool:
        """Read all there is; False at end of file. Raises BoxLost when it is too much."""
        limit = MAX_REPLY if fd == self._out else self._limits.report_kb << 10
        while True:
            try:
                chunk = os.read(fd, _CHUNK)
            except BlockingIOError:
                return True
            into += chunk
            if len(into) > limit:
                raise BoxLost(f"its reply exceeds {limit} bytes")
            if len(chunk) < _CHUNK:
                return bool(chunk)

    def close(self) -> None:
        if self._pid is not None:
            pid, self._pid = self._pid, None
            kill_box(pid, read_init_pid(self._pipes[-1].read))
            os.waitpid(pid, 0)
            for pipe in self._pipes:
                pipe.close()
            self._gone()

    def __del__(self) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    for box in list(PersistentBox._open):  # noqa: SLF001 - its own module
        box.close()
    remove_leftovers(_REMOVAL_S)


class RestartingBox:
    """A box that is made when it is first needed, and again after it was lost. Faults call it
    `name`."""

    def __init__(self, sandbox: Sandbox, command: Command, name: str) -> None:
        self._sandbox = sandbox
        self._command = command
        self._name = name
        self._box: PersistentBox | None = None

    def ask(self, question: bytes, wall_s: float, memory_mb: int) -> Exchange:
        """Wait until `memory_mb`, what the box's child may use, fits into the budget; then ask.

        Raises SandboxFault when the box cannot be made, or is lost over this question.
        """
        with get_memory_budget().reserve(memory_mb):
            self._box = self._box or self._sandbox.open(self._command)
            try:
                return self._box.ask(question, wall_s)
            except BoxLost as lost:
                self._box = None
                raise SandboxFault(f"{self._name} was lost: {lost}") from None

    def was_starved(self) -> bool:
        """Return whether the bad end of a child may be the kernel's doing, for want of memory that
        others use. A box that had such kills, or met its own limit, is replaced by a new one."""
        if self._box is None or not self._box.group.has_kills():
            return False
        is_own_doing = self._box.group.has_met_limit()
        self.close()
        return not is_own_doing

    def close(self) -> None:
        if self._box is not None:
            self._box.close()
            self._box = None


def _parse_frame(reply: bytearray) -> tuple[tuple[str, ...], bytes] | None:
    """Return the words and the payload of a whole reply, None while it is not whole. Raises BoxLost
    for anything after it."""
    end = reply.find(b"\n")
    if end < 0:
        return None
    length, *words = reply[:end].decode("ascii").split(" ")
    size = end + 1 + int(length)
    if len(reply) > size:
        raise BoxLost("it answered twice")
    return (tuple(words), bytes(reply[end + 1 :])) if len(reply) == size else None
