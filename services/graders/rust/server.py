"""A compiler that serves many compilations from one standing box (server/compile_server.c). Judges
nothing.

Starting a process with the compiler's libraries costs as much as a tenth of what it then does, and
so does a box; here both are paid once. Each compilation has a process and files of its own, and
both are gone before the next.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from services.graders.rust.toolchain import SERVER
from services.sandbox import Command, Sandbox
from services.sandbox.persistent_box import RestartingBox

PLACE = "/tmp"  # noqa: S108 - inside of a box
PRODUCT = f"{PLACE}/out"
"""What a compilation has to write, and where."""
_MAX_FILE_MB = 30
"""Messages and product travel in one reply."""
_PATIENCE_S = 5.0
"""Past the time limit that the server itself keeps."""


class ServerExit(StrEnum):
    """How the compiler's process ended."""

    EXIT = "exit"
    SIGNAL = "signal"
    WALL = "wall"


@dataclass(frozen=True, slots=True)
class CompileResult:
    ended: ServerExit
    code: int
    """The exit status, or the signal."""
    cpu_s: float
    messages: bytes
    """What it wrote to its standard error."""
    product: bytes
    """What it wrote to `PRODUCT`."""


class CompileServer:
    """One compiler in one box."""

    def __init__(self, sandbox: Sandbox, command: Command) -> None:
        """`command`: the compiler alone, what it sees, and the limits of each compilation."""
        self._limits = command.limits
        server = replace(
            command,
            argv=("/usr/bin/env", f"LD_PRELOAD={SERVER}", *command.argv),
            limits=replace(command.limits, cpu_s=None, file_mb=_MAX_FILE_MB, report_kb=1),
        )
        self._box = RestartingBox(sandbox, server, "the compile server")
        self.close = self._box.close
        self.was_starved = self._box.was_starved

    def compile(
        self, argv: Sequence[str], environment: Mapping[str, str], files: Mapping[str, bytes]
    ) -> CompileResult:
        """Compile in the folder of the first file. Raises SandboxFault when the box is lost over
        this question."""
        variables = [f"{name}={value}".encode() for name, value in environment.items()]
        contents: list[bytes] = []
        for path, content in files.items():
            contents += [path.encode(), content]
        body = struct.pack("=II", self._limits.cpu_s or 0, round(self._limits.wall_s * 1e3))
        body += b"".join(
            map(_encode_strings, ([word.encode() for word in argv], variables, contents))
        )
        question = struct.pack("=I", len(body)) + body
        wall_s = self._limits.wall_s + _PATIENCE_S
        exchange = self._box.ask(question, wall_s, self._limits.memory_mb)
        exit_kind, code, cpu_us, length = exchange.words
        messages = exchange.payload[: int(length)]
        product = exchange.payload[int(length) :]
        return CompileResult(ServerExit(exit_kind), int(code), int(cpu_us) / 1e6, messages, product)


def _encode_strings(strings: Iterable[bytes]) -> bytes:
    parts = [struct.pack("=I", len(text)) + text + b"\0" for text in strings]
    return struct.pack("=I", len(parts)) + b"".join(parts)
