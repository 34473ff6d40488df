"""The two compiling boxes: the answer alone with its lints, and then the tests against what came of
it.

In the first box there is never a test; in the second nothing of an answer but its compiled library.
Both stand, a pair for each slot, and are empty again after each compilation.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import dropwhile
from types import MappingProxyType
from typing import Any

from gradus.contract import Diagnostic, Severity, Stage
from gradus.errors import SandboxFault
from gradus.tasks.rust import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.config import RustConfig
from services.graders.rust.crates import Prebuilt
from services.graders.rust.server import PLACE, PRODUCT, CompileResult, CompileServer, ServerExit
from services.graders.rust.tests_file import TestsFile
from services.graders.rust.toolchain import HARNESS_CRATE, RustToolchain
from services.sandbox import Command, Limits, Sandbox
from services.sandbox.memory_budget import MemoryShortage

MAX_DIAGNOSTICS = 100
_MAX_MESSAGES = 1 << 20
"""Bytes of them that are read; twice as many are a limit."""
_CRATE = f"{PLACE}/crate"
_LIBRARY = f"{PLACE}/libanswer.rlib"
_OBJECT = f"{PLACE}/tests.o"
_LINTS = ("--force-warn=clippy::all", "--force-warn=unused", "--force-warn=nonstandard-style")
"""Lints that an answer cannot silence with `#![allow]`: clippy's default ones, and the compiler's
about style."""
_CONDITIONS = ("--check-cfg=cfg(docsrs,test)", "--check-cfg=cfg(feature, values())")
"""What a crate without features may ask for with `cfg`, in cargo's words: anything else is a
lint."""
_NOWHERE: Mapping[str, Any] = {"file_name": "", "line_start": 1, "column_start": 1}
"""Where a message without a place stands."""
_SUMMARY = re.compile(r"aborting due to|\d+ warnings? emitted|For more information about")
_UNSTABLE = {"RUSTC_BOOTSTRAP": "1"}
_FOREIGN = ("--force-warn=missing-unsafe-on-extern",)
"""Names every foreign block, in editions that have no `unsafe extern`, which `-F unsafe-code`
names."""
FOREIGN_BLOCK = "missing_unsafe_on_extern"
FORBIDDEN = frozenset({"unsafe_code", FOREIGN_BLOCK})
"""Lints that name what an answer may not have."""
_MAIN = "fn main() {{ ::{harness}::remote::serve(::{crate}::gradus_calls::dispatch) }}"
"""The program of an answer that has its calls in itself."""
_KEPT_MAINS = 64
"""Names of crates for which it is kept, compiled."""
TOY = "pub fn toy() {}\n"
"""Compiles wherever anything compiles: tells an answer that breaks the compiler from a box that is
broken."""


class CompileStatus(StrEnum):
    """How a compilation ended."""

    COMPILED = "compiled"
    REFUSED = "refused"
    """It has errors."""
    LIMIT = "limit"
    BROKE = "broke"
    """The compiler itself ended badly."""


@dataclass(frozen=True, slots=True)
class CompilerMessage:
    """One message of the compiler or the linter."""

    path: str
    line: int
    column: int
    severity: Severity
    code: str | None
    text: str
    outer_line: int = 0
    """Where macros are called, if `line` is inside of one that the same file defines; else
    `line`."""


@dataclass(frozen=True, slots=True)
class Compiled:
    status: CompileStatus
    product: bytes
    """The library or the program, if it compiled."""
    remarks: tuple[CompilerMessage, ...]
    cpu_s: float = 0.0

    @property
    def errors(self) -> list[CompilerMessage]:
        return [remark for remark in self.remarks if remark.severity is Severity.ERROR]

    @property
    def lints(self) -> dict[str, int]:
        """Warnings by name."""
        counts: Counter[str] = Counter()
        for remark in self.remarks:
            if remark.severity is Severity.WARNING and remark.code not in (None, "", FOREIGN_BLOCK):
                counts[remark.code or ""] += 1
        return dict(sorted(counts.items()))

    def build_diagnostics(self, answer: RustAnswer) -> Iterator[Diagnostic]:
        for remark in self.remarks[:MAX_DIAGNOSTICS]:
            yield Diagnostic(
                stage=Stage.CHECK if remark.severity is Severity.ERROR else Stage.CLIPPY,
                severity=remark.severity,
                line=remark.line,
                column=remark.column,
                code=remark.code,
                message=answer.format_message(remark.path, remark.text),
            )


class Compiler:
    def __init__(
        self, sandbox: Sandbox, toolchain: RustToolchain, crates: Prebuilt, config: RustConfig
    ) -> None:
        self._sandbox = sandbox
        self._crates = crates
        self._toolchain = toolchain
        self._limits = replace(config.compile.limits(), scratch_files=None)
        self._servers: dict[tuple[int, str], CompileServer] = {}
        self._mains: dict[str, tuple[tuple[str, ...], bytes]] = {}
        """Name of a crate -> how `rustc` calls the linker for `_MAIN`, and its object code."""

    def compile_answer(
        self,
        answer: RustAnswer,
        task: RustTask,
        slot: int,
        *,
        appended: str = "",
    ) -> Compiled:
        """Check, lint and compile the answer. Raises Fault for a broken box.

        `appended`: text of ours at the end of its root file, on lines of its own; it has the
        harness.
        """
        toolchain = self._toolchain
        server = self._get_server(slot, toolchain.clippy)
        if task.cases:
            kind = ["--crate-type=bin", *toolchain.link_flags]
        else:
            kind = ["--crate-type=lib"]
        flags = [
            "--crate-name",
            task.crate,
            *kind,
            *toolchain.answer_flags,
            *self._build_flags(task),
        ]
        ordered = {answer.entry: "", **answer.files}  # the compiler runs in the folder of the first
        if appended:
            ordered[answer.entry] += f"\n{appended}"
            flags.append(toolchain.harness_extern)
        files = {f"{_CRATE}/{path}": text.encode() for path, text in ordered.items()}
        argv = [
            toolchain.clippy,
            *_LINTS,
            *_FOREIGN,
            *_CONDITIONS,
            *flags,
            f"{_CRATE}/{answer.entry}",
        ]
        compiled = self._compile(server, argv, task, files)
        if (
            compiled.status is CompileStatus.REFUSED
            and compiled.errors
            and all((error.code or "").startswith("clippy::") for error in compiled.errors)
        ):
            # The answer made errors of lints: a matter of style, so compile it again with no lint
            # more than a warning. That is true of `-F unsafe-code` too, whose warnings stand for
            # errors here.
            again = self._compile(server, [argv[0], "--cap-lints=warn", *argv[1:]], task, files)
            remarks = []
            for remark in again.remarks:
                if remark.severity is Severity.ERROR or remark.code in FORBIDDEN:
                    remarks.append(remark)
            for remark in compiled.remarks:
                remarks.append(replace(remark, severity=Severity.WARNING))
            cpu_s = compiled.cpu_s + again.cpu_s
            return replace(again, remarks=tuple(remarks), cpu_s=cpu_s)
        return compiled

    def compile_tests(
        self, tests: TestsFile, library: bytes, task: RustTask, slot: int
    ) -> Compiled:
        """Compile the tests, or the program in their place, against the answer's library, if it is
        not empty."""
        flags = [*tests.flags, *self._toolchain.link_flags]
        return self._compile_tests(tests.text, library, task, slot, *flags)

    def link(self, library: bytes, task: RustTask, slot: int) -> Compiled:
        """Make the program of an answer's library that has its calls in itself."""
        main = self._mains.get(task.crate)
        if main is None:
            text = _MAIN.format(harness=HARNESS_CRATE, crate=task.crate)
            flags = [*self._toolchain.link_flags, f"--print=link-args={PRODUCT}"]
            program = f"{PLACE}/program"
            linked = self._compile_tests(text, library, task, slot, *flags, product=program)
            compiled = self._compile_tests(text, library, task, slot, "--emit=obj")
            if not (linked.product and compiled.product):
                return replace(linked, product=b"")
            if len(self._mains) >= _KEPT_MAINS:
                self._mains.clear()
            command = _parse_linker_command(linked.product.decode(), program)
            main = self._mains.setdefault(task.crate, (command, compiled.product))
        command, code = main
        server = self._get_server(slot, command[0])
        return self._compile(server, command, task, {_OBJECT: code, _LIBRARY: library})

    def _compile_tests(
        self,
        text: str,
        library: bytes,
        task: RustTask,
        slot: int,
        *flags: str,
        product: str = PRODUCT,
    ) -> Compiled:
        toolchain = self._toolchain
        server = self._get_server(slot, toolchain.rustc)
        source = f"{_CRATE}/tests.rs"
        argv = [
            toolchain.rustc,
            "--crate-name",
            "gradus_tests",
            "--cap-lints=allow",
            *flags,
            *toolchain.harness_flags,
            *self._build_flags(task, product),
        ]
        files = {source: text.encode()}
        if library:
            argv.append(f"--extern={task.crate}={_LIBRARY}")
            files[_LIBRARY] = library
        return self._compile(server, [*argv, source], task, files, _UNSTABLE)

    def _build_flags(self, task: RustTask, product: str = PRODUCT) -> list[str]:
        return [
            f"--edition={task.edition}",
            "--error-format=json",
            "--json=diagnostic-short",
            *self._toolchain.code_flags,
            *self._crates.build_flags(task.dependencies),
            "-o",
            product,
        ]

    def _get_server(self, slot: int, compiler: str) -> CompileServer:
        server = self._servers.get((slot, compiler))
        if server:
            return server
        command = Command(
            argv=(compiler,),
            limits=self._limits,
            binds=self._toolchain.compile_binds,
            mounts={**self._toolchain.compile_mounts, **self._crates.mounts},
            environment=self._toolchain.environment,
        )
        return self._servers.setdefault((slot, compiler), CompileServer(self._sandbox, command))

    def _compile(
        self,
        server: CompileServer,
        argv: Sequence[str],
        task: RustTask,
        files: Mapping[str, bytes],
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Compiled:
        environment = {"PATH": "/usr/bin", **self._toolchain.environment, **variables}
        environment |= {
            "CARGO_PKG_NAME": task.crate,
            "CARGO_PKG_VERSION": "0.1.0",
        }  # as in a new crate of cargo's
        done = server.compile(argv, environment, files)
        compiled = _parse_result(done, self._limits)
        if compiled.status is not CompileStatus.COMPILED and server.was_starved():
            raise MemoryShortage
        return replace(compiled, cpu_s=done.cpu_s)

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


def _parse_linker_command(output: str, program: str) -> tuple[str, ...]:
    """Return the words of `rustc`'s call of the linker, with our object code in place of its own.

    What it makes itself, `symbols.o`, keeps nothing that the program does not use anyway.
    """
    words = shlex.split(output)
    command = []
    for word in dropwhile(lambda word: "=" in word, words):
        if word.endswith(".rcgu.o"):
            command.append(_OBJECT)
        elif not word.endswith("/symbols.o"):
            command.append(word.replace(program, PRODUCT))
    return tuple(command)


def _parse_result(done: CompileResult, limits: Limits) -> Compiled:
    used_up = limits.cpu_s is not None and done.cpu_s >= limits.cpu_s
    cpu_limit = used_up or (done.ended is ServerExit.SIGNAL and done.code == signal.SIGXCPU)
    if done.ended is ServerExit.WALL and not cpu_limit:
        raise SandboxFault("the compiler got no CPU: this machine is overloaded")
    remarks = tuple(_parse_remarks(done.messages[:_MAX_MESSAGES]))
    if (
        done.ended is ServerExit.WALL
        or (done.ended is ServerExit.SIGNAL and cpu_limit)
        or len(done.messages) > 2 * _MAX_MESSAGES
    ):
        status = CompileStatus.LIMIT
    elif done.ended is ServerExit.EXIT and done.code == 0 and done.product:
        status = CompileStatus.COMPILED
    elif Compiled(CompileStatus.REFUSED, b"", remarks).errors:
        status = CompileStatus.REFUSED
    else:
        status = CompileStatus.BROKE
    product = done.product if status is CompileStatus.COMPILED else b""
    return Compiled(status, product, remarks)


def _parse_remarks(stderr: bytes) -> Iterator[CompilerMessage]:
    for line in stderr.decode(errors="replace").splitlines():
        if not line.startswith("{"):
            continue
        try:
            message = json.loads(line)
        except ValueError:  # cut off at the limit
            continue
        is_summary = not message.get("spans") and _SUMMARY.match(message.get("message", ""))
        if message.get("level") not in ("error", "warning") or is_summary:
            continue
        spans = []
        for span in message.get("spans", ()):
            if span.get("is_primary"):
                spans.append(_find_answer_span(span))
        own_spans = [span for span in spans if span["file_name"].startswith(_CRATE)]
        span = [*own_spans, *spans, _NOWHERE][0]
        text = message["message"]
        if span.get("label"):
            text += f": {span['label']}"
        yield CompilerMessage(
            path=span["file_name"].removeprefix(_CRATE + "/"),
            line=span["line_start"],
            column=span["column_start"],
            severity=Severity(message["level"]),
            code=(message.get("code") or {}).get("code"),
            text=text.replace(f"{_CRATE}/", ""),
            outer_line=_find_macro_call(span)["line_start"],
        )


def _find_answer_span(span: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return where the answer caused what a macro of the standard library says."""
    while span.get("expansion") and not span["file_name"].startswith(_CRATE):
        span = span["expansion"]["span"]
    return span


def _find_macro_call(span: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return where the crate calls the outermost of the macros that `span` is in."""
    while span.get("expansion") and span["expansion"]["span"]["file_name"].startswith(_CRATE):
        span = span["expansion"]["span"]
    return span
