"""Boxes within standing boxes: as closed as fresh ones, for a tenth of their price.

Each command gets PID, IPC and mount namespaces, a user, files and a filter of system calls of its
own, from a server that is PID 1 of the standing box (nested_box.c). Commands after one another in
one standing box share its network namespace, which has no way out, and its root, which is
read-only. The probe tries whether anything passes from one to the next.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import resource
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path
from typing import ClassVar
from weakref import WeakSet

from gradus.errors import SandboxFault
from gradus.resources import get_cache_folder
from services.sandbox import Command, ExitReason, Limits, Outcome, Sandbox
from services.sandbox.bubblewrap import (
    Bubblewrap,
    Watch,
    build_rlimits,
    iter_children,
    open_sealed_file,
    tell_memory_apart,
)
from services.sandbox.memory_budget import get_memory_budget
from services.sandbox.persistent_box import PersistentBox
from services.sandbox.pid1 import kill_box, read_init_pid
from services.sandbox.pipes import Pipe

STANDING_MB = 4
"""Memory of a standing box without a command."""
_SOURCE = Path(__file__).with_name("nested_box.c")
_SERVER = "/box/server"
_FILTER = "/box/filter"
_MAX_IDLE = 32
"""Standing boxes that are kept while they have nothing to do."""
_PATIENCE_S = 60.0
"""Wait for a standing box to become ready, and for a killed command to be gone."""
_REPLY = struct.Struct("=IiQ")
_CHUNK = 1 << 16
_LOGGER = logging.getLogger(__name__)

_Key = tuple[object, ...]
_File = tuple[int, bytes]
"""Mode and content."""


def find_nested_boxes(sandbox: Sandbox) -> Sandbox:
    """Return nested boxes, or `sandbox` where they cannot be had."""
    if not isinstance(sandbox, Bubblewrap):
        return sandbox
    try:
        boxes = NestedBoxes(sandbox, _build_server())
        # container runtimes differ in what they allow within a box
        boxes.run(Command(("/usr/bin/true",), Limits(scratch_mb=0), binds=("/usr",)))
        return boxes
    except SandboxFault as fault:
        _LOGGER.warning("every case gets a fresh box, which costs more: %s", fault.message)
        return sandbox


def _build_server() -> bytes:
    """Return the program of standing boxes, built once for each version of its source; each time
    where the cache cannot be written to. Raises SandboxFault without a C compiler."""
    source = _SOURCE.read_bytes()
    target = get_cache_folder() / f"nested-box-{hashlib.sha256(source).hexdigest()[:16]}"
    with suppress(OSError):
        return target.read_bytes()
    compiler = shutil.which("cc")
    if compiler is None:
        raise SandboxFault("there is no C compiler (Debian, Ubuntu: apt-get install gcc)")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "server"
        command = [compiler, "-O2", "-s", "-static", str(_SOURCE), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise SandboxFault(f"{_SOURCE.name} was not built: {done.stderr.strip()[-500:]}")
        server = built.read_bytes()
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix="building-") as file:
            file.write(server)
            file.flush()
            os.link(file.name, target)
    return server


class NestedBoxes:
    """`Sandbox` on standing boxes, each of which runs one command at a time. One object serves any
    number of threads.

    Commands get files below /box and /tmp only. Those of /box stay in their standing box,
    read-only, until a command comes with others. Descriptor 3 is theirs. One that could not be
    started is a SandboxFault.
    """

    def __init__(self, sandbox: Bubblewrap, server: bytes) -> None:
        self.name = sandbox.name
        self._sandbox = sandbox
        self._server = server
        self._idle: list[tuple[_Key, _StandingBox]] = []
        """The least recently used first."""
        self._lock = threading.Lock()

    def create_unfiltered(self) -> NestedBoxes:
        return NestedBoxes(self._sandbox.create_unfiltered(), self._server)

    def open(self, command: Command) -> PersistentBox:
        return self._sandbox.open(command)

    def run(self, command: Command) -> Outcome:
        limits = command.limits
        shared = (limits.memory_mb, limits.processes, limits.scratch_mb)
        key = (command.binds, tuple(command.mounts.items()), command.socket_pairs, shared)
        box_files, files = _sort_files(command)
        with get_memory_budget().reserve(limits.memory_mb):
            box = self._take(key, box_files) or self._open(command)
            try:
                outcome = box.run(command, box_files, files, self._sandbox.draw_uid())
            except BaseException:  # an interrupt, too: what runs in it is not known
                box.close()
                raise
            if outcome.exit_reason is ExitReason.MEMORY_LIMIT or box.group.has_met_limit():
                box.close()  # the next command would be taken for the cause
            else:
                self._put_back(key, box)
            return outcome

    def _take(self, key: _Key, box_files: Mapping[str, _File]) -> _StandingBox | None:
        """Return an idle box, if there is one: the last that was used, or one that has the files
        already."""
        with self._lock:
            numbers = [number for number, (other, _) in enumerate(self._idle) if other == key]
            if not numbers:
                return None
            best = numbers[-1]
            for number in numbers:
                if self._idle[number][1].kept == box_files:
                    best = number
            return self._idle.pop(best)[1]

    def _put_back(self, key: _Key, box: _StandingBox) -> None:
        with self._lock:
            self._idle.append((key, box))
            surplus = self._idle[:-_MAX_IDLE]
            self._idle = self._idle[-_MAX_IDLE:]
        for _, old in surplus:
            old.close()

    def close(self) -> None:
        """Close the boxes that have nothing to do."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, box in idle:
            box.close()

    def _open(self, command: Command) -> _StandingBox:
        limits = Limits(
            cpu_s=None,
            memory_mb=command.limits.memory_mb + command.limits.scratch_mb,
            processes=command.limits.processes + 1,
            scratch_mb=0,
        )
        server = Command(
            argv=(_SERVER,),
            limits=limits,
            files={_FILTER: self._sandbox.build_filter(command)},
            programs={_SERVER: self._server},
            binds=command.binds,
            mounts=command.mounts,
        )
        return _StandingBox(self._sandbox, server)


class _StandingBox:
    """A box with a server in it, which runs one command at a time."""

    _open: ClassVar[WeakSet[_StandingBox]] = WeakSet()
    """Those to close when this process ends."""

    def __init__(self, sandbox: Bubblewrap, server: Command) -> None:
        self._pid: int | None = None
        self.kept: Mapping[str, _File] | None = None
        """The files of /box."""
        self._stack = ExitStack()
        self.group = self._stack.enter_context(sandbox.open_group(server.limits))
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._stack.enter_context(self._control)
        self._errors, self._status = [self._stack.enter_context(Pipe()) for _ in range(2)]
        os.set_blocking(self._errors.read, False)
        self._init: int | None = None
        """Its PID 1, by the number outside."""
        with theirs, open(os.devnull, "w") as null:
            targets = [theirs.fileno(), null.fileno(), self._errors.write, null.fileno()]
            targets.append(self._status.write)
            self._pid = sandbox.start_server(server, self.group, targets)
        self._errors.close(self._errors.write)
        self._status.close(self._status.write)
        _StandingBox._open.add(self)
        try:
            self._receive()
        except SandboxFault:
            self.close()
            raise
        self._init = read_init_pid(self._status.read)

    def run(
        self, command: Command, box_files: Mapping[str, _File], files: Mapping[str, _File], uid: int
    ) -> Outcome:
        """Run `command` in a box within this one. Raises SandboxFault; the box is of no use then,
        nor after any other exception."""
        started_at = time.monotonic()
        self.group.start_count()
        with ExitStack() as stack:
            pipes = [stack.enter_context(Pipe()) for _ in range(3)]
            news = None if box_files == self.kept else box_files
            self.kept = box_files
            encoded = _encode_request(command, news, files, uid)
            request = stack.enter_context(open_sealed_file(encoded))
            stdin = stack.enter_context(open_sealed_file(command.stdin))
            descriptors = [request, stdin, *(pipe.write for pipe in pipes)]
            try:
                socket.send_fds(self._control, [b"r"], descriptors)
            except OSError as error:
                raise SandboxFault(f"a standing box is gone: {error}") from error
            for pipe in pipes:
                pipe.close(pipe.write)
            process = _NestedProcess(self)
            watch = Watch(command.limits, process, started_at)
            outcome = watch.wait_for_end(*(pipe.read for pipe in pipes))
        if not process.has_started and not watch.has_killed:
            raise SandboxFault(f"a box could not be made: {self._read_errors()}")
        return tell_memory_apart(outcome, self.group, stopped_by_us=watch.has_killed)

    @property
    def control_fd(self) -> int:
        return self._control.fileno()

    def find_command(self) -> int | None:
        """Return the process that runs as a command's PID 1, by its number outside."""
        with suppress(OSError):
            return next(iter_children(Path(f"/proc/{self._init}/task/{self._init}")), None)
        return None

    def kill_command(self) -> None:
        with suppress(OSError):  # `receive_reply` finds that the box is gone
            self._control.send(b"k")

    def receive_reply(self) -> tuple[int, int, int]:
        return _REPLY.unpack(self._receive())

    def _receive(self) -> bytes:
        is_there, _, _ = select.select([self._control], [], [], _PATIENCE_S)
        packet = b""
        with suppress(OSError):
            packet = self._control.recv(_CHUNK) if is_there else b""
        if not packet:
            raise SandboxFault(f"a standing box was lost: {self._read_errors()}")
        return packet

    def _read_errors(self) -> str:
        with suppress(BlockingIOError):
            return os.read(self._errors.read, _CHUNK).decode(errors="replace").strip()[-500:]
        return "nothing said"

    def close(self) -> None:
        if self._pid is not None:
            pid, self._pid = self._pid, None
            kill_box(pid, self._init or read_init_pid(self._status.read))
            os.waitpid(pid, 0)
        self._stack.close()

    def __del__(self) -> None:
        self.close()


class _NestedProcess:
    """The command of a standing box."""

    def __init__(self, box: _StandingBox) -> None:
        self._box = box
        self.gone_fd = box.control_fd
        self.has_started = False
        self._init: int | None = None

    def find_init(self) -> int | None:
        if self._init is None:
            self._init = self._box.find_command()
        return self._init

    def kill(self) -> None:
        self._box.kill_command()

    def collect(self) -> tuple[int, float]:
        started, status, cpu_us = self._box.receive_reply()
        self.has_started = bool(started)
        return status, cpu_us / 1e6


def _sort_files(command: Command) -> tuple[dict[str, _File], dict[str, _File]]:
    """Return the files below /box, and the others."""
    box_files: dict[str, _File] = {}
    tmp_files: dict[str, _File] = {}
    for mode, contents in ((0o444, command.files), (0o111, command.programs)):
        for path, content in contents.items():
            files = box_files if path.startswith("/box/") else tmp_files
            files[path] = (mode, content)
    return box_files, tmp_files


def _encode_request(
    command: Command, box_files: Mapping[str, _File] | None, files: Mapping[str, _File], uid: int
) -> bytes:
    environment = {"PATH": "/usr/bin", **command.environment}
    parts = [struct.pack("=Q", box_files is not None)]
    if box_files is not None:
        parts += _encode_files(box_files)
    parts += [
        struct.pack("=Q", uid),
        _encode_limits(command.limits),
        _encode_words(command.argv),
        _encode_words(f"{name}={value}" for name, value in environment.items()),
        *_encode_files(files),
    ]
    return b"".join(parts)


def _encode_files(files: Mapping[str, _File]) -> list[bytes]:
    parts = [struct.pack("=Q", len(files))]
    for path, (mode, content) in files.items():
        parts += [struct.pack("=Q", mode), _encode_string(path.encode())]
        parts += [struct.pack("=Q", len(content)), content, b"\0"]
    return parts


@lru_cache(maxsize=256)
def _encode_limits(limits: Limits) -> bytes:
    """Return the size of /tmp and the rlimits."""
    n_files = 0 if limits.scratch_files is None else limits.scratch_files + 1
    rlimits = build_rlimits(limits)
    numbers = [limits.scratch_mb, n_files, len(rlimits)]
    for name, value in rlimits.items():
        limit = resource.RLIM_INFINITY if value == "unlimited" else int(value)
        numbers += [getattr(resource, f"RLIMIT_{name.upper()}"), limit & (1 << 64) - 1]
    return struct.pack(f"={len(numbers)}Q", *numbers)


def _encode_string(text: bytes) -> bytes:
    return struct.pack("=Q", len(text)) + text + b"\0"


def _encode_words(words: Iterable[str]) -> bytes:
    encoded = [_encode_string(word.encode()) for word in words]
    return struct.pack("=Q", len(encoded)) + b"".join(encoded)


@atexit.register
def _close_all() -> None:
    for box in list(_StandingBox._open):  # noqa: SLF001 - its own module
        box.close()
