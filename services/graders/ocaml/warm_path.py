"""The warm path: per slot a persistent box that compiles and one that runs; each forks a confined child per submission.

For tasks that need nothing but the standard library. What the boxes cannot say for certain is left to the cold path.
Talks to the boxes; knows no rubric and draws no conclusion.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from gradus.errors import SandboxFault
from services.graders.base.code import CodeFacts
from services.graders.base.harness_report import parse_test_report
from services.graders.ocaml.attempt import (
    REPORT_TOO_LONG,
    TOY,
    GradingAttempt,
    Sections,
    decode_sections,
    encode_sections,
    facts_compiler_gave_up,
    facts_of,
    facts_of_run,
    facts_tests_do_not_compile,
    read,
)
from services.graders.ocaml.config import OcamlConfig
from services.graders.ocaml.toolchain import MOUNT, OcamlToolchain
from services.sandbox import BoxLost, Command, Exchange, Limits, PersistentBox, ReportTooLong, Sandbox

_CACHED_TASKS = 512
# Huge pages and no collection in children: page faults are most of what a fork costs.
_COMPILER_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class ChildExit(StrEnum):
    """How the forked child of a persistent box ended."""

    EXIT = "exit"
    CPU = "cpu"
    SIGNAL = "signal"


@dataclass(frozen=True, slots=True)
class ChildResult:
    child: ChildExit
    code: int
    cpu_s: float
    payload: bytes
    report: bytes

    @property
    def well(self) -> bool:
        return self.child is ChildExit.EXIT and self.code == 0


class Slot:
    """The two boxes of one slot, made when they are first needed and again after one was lost."""

    def __init__(self, sandbox: Sandbox, toolchain: OcamlToolchain, memory_mb: int) -> None:
        self._sandbox = sandbox
        self._toolchain = toolchain
        self._memory_mb = memory_mb
        self._compiler: PersistentBox | None = None
        self._runner: PersistentBox | None = None

    def compile(self, sections: bytes, cpu_ms: int, memory_mb: int, wall_s: float) -> ChildResult:
        """Raises SandboxFault when the box is lost over this question."""
        self._compiler = self._compiler or self._open(f"{MOUNT}/front", "serve", f"{MOUNT}/view")
        question = f"{cpu_ms} {memory_mb} {len(sections)}\n".encode() + sections
        try:
            return _done(self._compiler.ask(question, wall_s))
        except BoxLost as lost:
            self._compiler = None
            raise SandboxFault(f"the compile server was lost: {lost}") from None

    def run(self, secret: str, answer: bytes, tests: bytes, cpu_ms: int, memory_mb: int, wall_s: float) -> ChildResult:
        """Raises ReportTooLong, or SandboxFault when the box is lost over this program for another reason."""
        self._runner = self._runner or self._open(f"{MOUNT}/runner")
        question = f"{cpu_ms} {memory_mb} {secret} {len(answer)} {len(tests)}\n".encode() + answer + tests
        try:
            return _done(self._runner.ask(question, wall_s))
        except ReportTooLong:
            self._runner = None
            raise
        except BoxLost as lost:
            self._runner = None
            raise SandboxFault(f"the runner was lost: {lost}") from None

    def _open(self, *argv: str) -> PersistentBox:
        # Their children get tighter limits of their own, up to the most that a task may ask for.
        memory_mb = self._memory_mb + self._toolchain.reserved_mb
        limits = Limits(cpu_s=None, memory_mb=memory_mb, processes=8, scratch_mb=0, file_mb=1)
        command = Command(
            argv=argv,
            limits=limits,
            binds=self._toolchain.run_binds,
            mounts={str(self._toolchain.build): MOUNT},
            environment={**_COMPILER_ENVIRONMENT, **self._toolchain.environment},
        )
        return self._sandbox.open(command)

    def close(self) -> None:
        for box in (self._compiler, self._runner):
            if box is not None:
                box.close()
        self._compiler = self._runner = None


def _done(exchange: Exchange) -> ChildResult:
    how, code, cpu_us = exchange.words
    return ChildResult(ChildExit(how), int(code), int(cpu_us) / 1e6, exchange.payload, exchange.report)


@dataclass(frozen=True, slots=True)
class CompiledTests:
    total: int
    code: bytes


class TestsCache:
    """Compiled tests of tasks with a signature: what they are typed against is the task's, so they fit every answer."""

    __test__ = False

    def __init__(self) -> None:
        self._known: OrderedDict[str, CompiledTests] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> CompiledTests | None:
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: str, tests: CompiledTests) -> None:
        with self._lock:
            self._known[key] = tests
            while len(self._known) > _CACHED_TASKS:
                self._known.popitem(last=False)


class NeedsColdPath(Exception):
    """Only the stock compiler can grade this answer. Not a failure."""


class WarmPath:
    """Grades in persistent boxes, one pair per slot, which share compiled tests."""

    def __init__(self, sandbox: Sandbox, toolchain: OcamlToolchain, config: OcamlConfig) -> None:
        self._sandbox = sandbox
        self._toolchain = toolchain
        self._config = config
        self._slots: dict[int, Slot] = {}
        self._tests = TestsCache()

    def facts(self, attempt: GradingAttempt) -> CodeFacts:
        """What the boxes show of this answer. Raises NeedsColdPath, or Fault for what is not the answer's doing."""
        slot = self._slots.setdefault(attempt.slot, Slot(self._sandbox, self._toolchain, self._config.max_memory_mb))
        key = _key(attempt) if attempt.task.signature is not None else None
        known = self._tests.get(key) if key else None
        reply = self._compiled(slot, attempt, with_tests=known is None)
        if isinstance(reply, CodeFacts):
            return reply
        facts = facts_of(said := read(reply, "facts"))
        if not said["compiled"]:
            return facts
        if known is None:
            plan = read(reply, "plan")
            if plan["mismatch"]:
                return facts_tests_do_not_compile(facts, plan)
            known = CompiledTests(plan["total"], reply["code/tests"])
            if key:
                self._tests.put(key, known)
        return self._ran(slot, attempt, facts, reply["code/answer"], known)

    def _compiled(self, slot: Slot, attempt: GradingAttempt, *, with_tests: bool) -> CodeFacts | Sections:
        sections = {**attempt.sections(), "answer": attempt.code.encode(), "harness": MOUNT.encode()}
        if with_tests:
            sections["tests"] = attempt.task.tests.encode()
        done = self._compile(slot, attempt, sections)
        reply = decode_sections(done.payload) if done.well else None
        if reply is None:
            if done.child is not ChildExit.CPU:
                self._prove_alive(slot, attempt, done)
            return facts_compiler_gave_up(limit=done.child is ChildExit.CPU)
        if "cold" in reply:
            raise NeedsColdPath
        return reply

    def _prove_alive(self, slot: Slot, attempt: GradingAttempt, done: ChildResult) -> None:
        if not self._compile(slot, attempt, {"module": b"toy", "answer": TOY}).well:
            raise SandboxFault(f"the compile server's children die ({done.child} {done.code})")

    def _compile(self, slot: Slot, attempt: GradingAttempt, sections: Sections) -> ChildResult:
        limits, cpu_ms = self._config.compile, self._config.compile_cpu_ms(attempt.task.limits)
        wall_s = limits.limits().wall_s + 4 * cpu_ms / 1e3
        done = slot.compile(encode_sections(sections), cpu_ms, limits.memory_mb, wall_s)
        attempt.cpu_s += done.cpu_s
        return done

    def _ran(
        self, slot: Slot, attempt: GradingAttempt, facts: CodeFacts, answer: bytes, tests: CompiledTests
    ) -> CodeFacts:
        limits = self._config.run_limits(attempt.task.limits)
        cpu_ms = self._config.run_cpu_ms(attempt.task.limits)
        try:
            done = slot.run(attempt.secret, answer, tests.code, cpu_ms, limits.memory_mb, limits.wall_s)
        except ReportTooLong:
            return facts_of_run(facts, parse_test_report(b"", attempt.secret, tests.total), "report", REPORT_TOO_LONG)
        attempt.cpu_s += done.cpu_s
        proof = parse_test_report(done.report, attempt.secret, tests.total)
        if not proof.started:
            raise SandboxFault(f"the program did not start ({done.child} {done.code})")
        if done.child is ChildExit.CPU:
            return facts_of_run(facts, proof, "cpu", f"the answer was stopped after {cpu_ms / 1e3:g} s of CPU time")
        return facts_of_run(facts, proof, None, None)

    def close(self) -> None:
        for slot in self._slots.values():
            slot.close()


def _key(attempt: GradingAttempt) -> str:
    task = attempt.task
    parts = [task.module, task.signature or "", attempt.framework.value, task.tests]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
