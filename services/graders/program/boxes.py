"""Boxes of the program grader: one compiles an answer, one more runs it for each case.

A command in a fresh box is started by a shell that first writes `started` to the report channel:
without that word the box is broken, and with it what happened is the answer's doing. Nested boxes
say so themselves.
"""

from __future__ import annotations

import json
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

from gradus.errors import SandboxFault
from gradus.tasks.base import RunLimits
from gradus.tasks.program import Call
from services.graders.base.code import find_exceeded_limit
from services.graders.program.config import ProgramConfig
from services.graders.program.languages import Language
from services.sandbox import Command, ExitReason, Limits, Outcome, Sandbox
from services.sandbox.nested_boxes import find_nested_boxes

_STARTED = b"started\n"
_COMPILED = b"compiled\n"
_COMPILE = (
    'echo started >&3; cd /tmp && cp "/box/$1" . && ( eval "$2" ) 3>&- >&2'
    ' && echo compiled >&3 && cat "$3" >&3'
)
_RUN = 'echo started >&3; exec 3>&-; exec "$@"'
_CALL = 'echo started >&3; exec "$@"'
_SHELL = "/bin/sh"
_PROGRAM = "/box/program"
_DRIVER = "/box/driver"
_BUILT_KB = 64 * 1024
"""Largest program that a compiler may make."""
_KEPT_BYTES = 256 << 20
"""Compiled programs that are kept in memory, of answers and of checkers."""
_MESSAGE_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Built:
    """What came of compiling a text."""

    program: bytes | None
    """None if it does not compile."""
    message: str = ""
    """What the compiler says."""
    limit: str | None = None
    """The limit that ended the compiler."""


class Boxes:
    """Compiles and runs programs. One object serves any number of threads."""

    def __init__(self, sandbox: Sandbox, config: ProgramConfig) -> None:
        self._sandbox = sandbox
        self.cases = find_nested_boxes(sandbox)
        """Where compiled programs run."""
        self._config = config
        self._built: OrderedDict[tuple[str, str], Built] = OrderedDict()
        self._lock = threading.Lock()
        self._kept_bytes = 0

    def compile(self, language: Language, source: str) -> tuple[Built, float]:
        """Return what comes of `source`, and the CPU seconds used: none for a text that was
        compiled before. A compiler that met a limit is started anew each time."""
        key = (language.name, source)
        with self._lock:
            if key in self._built:
                self._built.move_to_end(key)
                return self._built[key], 0.0
        built, cpu_s = self._compile(language, source)
        if built.limit:
            return built, cpu_s
        with self._lock:
            if key not in self._built:
                self._built[key] = built
                self._kept_bytes += _count_bytes(key, built)
            while self._kept_bytes > _KEPT_BYTES:
                old_key, old = self._built.popitem(last=False)
                self._kept_bytes -= _count_bytes(old_key, old)
        return built, cpu_s

    def _compile(self, language: Language, source: str) -> tuple[Built, float]:
        settings = language.settings
        if not settings.compile:
            return Built(source.encode()), 0.0
        words = (settings.source, language.compile_line, settings.output or settings.source)
        limits = replace(
            self._scale(self._config.compile.limits(), self._config.compile.cpu_s, language),
            report_kb=_BUILT_KB,
            scratch_files=None,
        )
        command = Command(
            argv=(_SHELL, "-c", _COMPILE, _SHELL, *words),
            limits=limits,
            files={f"/box/{settings.source}": source.encode()},
            binds=language.binds,
            mounts=language.mounts,
            environment=language.environment,
            socket_pairs=settings.socket_pairs,
        )
        outcome, report = self._start(command)
        limit, why = find_exceeded_limit(outcome, limits.cpu_s or 0, limits.output_kb)
        if limit:
            sentence = why[0].replace("the answer was", "the compiler was")
            return Built(None, sentence, limit), outcome.cpu_s
        if not report.startswith(_COMPILED):
            text = outcome.stderr.decode(errors="replace").strip()
            return Built(None, text[:_MESSAGE_CHARS] or "it does not compile"), outcome.cpu_s
        return Built(report.removeprefix(_COMPILED)), outcome.cpu_s

    def run(
        self,
        language: Language,
        program: bytes,
        *,
        stdin: str = "",
        args: tuple[str, ...] = (),
        files: dict[str, str] | None = None,
        limits: Limits,
    ) -> Outcome:
        """Run a compiled program once. Raises SandboxFault if it could not be started, or got no
        CPU."""
        settings = language.settings
        argv = (*language.fill(settings.run, file=_PROGRAM), *args)
        content = {f"/tmp/{name}": text.encode() for name, text in (files or {}).items()}
        is_native = settings.run == ("{file}",)
        command = Command(
            argv=argv,
            limits=limits,
            stdin=stdin.encode(),
            files=content if is_native else {**content, _PROGRAM: program},
            programs={_PROGRAM: program} if is_native else {},
            binds=language.binds,
            mounts=language.mounts,
            environment=language.environment,
            socket_pairs=settings.socket_pairs,
        )
        return self._run_case(command, _RUN)[0]

    def call(
        self, language: Language, program: bytes, call: Call, limits: Limits
    ) -> tuple[Outcome, bytes]:
        """Call a function of the answer. Returns what it reported, too: JSON, unless it lies."""
        settings = language.settings
        driver = Path(__file__).with_name(settings.call_driver or "")
        request = {"function": call.function, "arguments": call.arguments, "file": _PROGRAM}
        command = Command(
            argv=language.fill(settings.call, driver=_DRIVER),
            limits=replace(limits, report_kb=limits.output_kb),
            stdin=json.dumps(request).encode(),
            files={_PROGRAM: program, _DRIVER: driver.read_bytes()},
            binds=language.binds,
            mounts=language.mounts,
            environment=language.environment,
            socket_pairs=settings.socket_pairs,
        )
        return self._run_case(command, _CALL)

    def build_limits(self, language: Language, task: RunLimits, stall_s: float) -> Limits:
        """Return the limits of one case."""
        config = self._config
        cpu_s = min(task.cpu_s or config.run.cpu_s, config.max_cpu_s)
        limits = config.run.limits(task, max_memory_mb=config.max_memory_mb)
        return replace(self._scale(limits, cpu_s, language), stall_s=stall_s)

    def build_checker_limits(self, language: Language) -> Limits:
        return self._scale(self._config.checker.limits(), self._config.checker.cpu_s, language)

    def _scale(self, limits: Limits, cpu_s: float, language: Language) -> Limits:
        """Return the limits of a box for a language; of `cpu_s`, rounded up behind its factor."""
        cpu_s = math.ceil(cpu_s * language.settings.cpu_factor)
        return replace(
            limits,
            cpu_s=cpu_s,
            wall_s=4.0 * cpu_s + 10.0,
            memory_mb=limits.memory_mb + language.settings.extra_memory_mb,
            output_kb=self._config.output_kb,
        )

    def _run_case(self, command: Command, script: str) -> tuple[Outcome, bytes]:
        """Run a command; in a fresh box, by a shell with `script`. Returns its report, too."""
        if self.cases is self._sandbox:
            argv = (_SHELL, "-c", script, _SHELL, *command.argv)
            return self._start(replace(command, argv=argv))
        outcome = self.cases.run(command)
        _refuse_starved(outcome)
        return outcome, outcome.report

    def _start(self, command: Command) -> tuple[Outcome, bytes]:
        """Run a command that a shell starts. Returns the report behind `started`."""
        outcome = self._sandbox.run(command)
        _refuse_starved(outcome)
        if not outcome.report.startswith(_STARTED):
            output = outcome.stderr.decode(errors="replace").strip()[-500:]
            raise SandboxFault(f"a box could not be started: {output or 'nothing said'}")
        return outcome, outcome.report.removeprefix(_STARTED)


def _refuse_starved(outcome: Outcome) -> None:
    if outcome.exit_reason is ExitReason.WALL_STARVED:
        raise SandboxFault("the answer got no CPU: this machine is overloaded")


def _count_bytes(key: tuple[str, str], built: Built) -> int:
    return len(key[1]) + len(built.program or b"") + len(built.message)
