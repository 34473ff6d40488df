"""The warm path: per slot a persistent box that compiles and one that runs, each in confined
children that it forks.

For tasks that need nothing but the standard library. What the boxes cannot say for certain is left
to the cold path.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from gradus.errors import SandboxFault
from services.graders.base.code import CodeFacts, add_test_run
from services.graders.base.harness_report import HarnessReport, parse_test_report
from services.graders.ocaml.attempt import (
    CONTROL,
    TOY,
    GradingAttempt,
    build_failure_facts,
    build_mismatch_facts,
    decode_sections,
    encode_sections,
    find_task_problem,
    parse_facts,
    parse_section,
    refuse_task,
)
from services.graders.ocaml.config import OcamlConfig
from services.graders.ocaml.toolchain import MOUNT, OcamlToolchain
from services.sandbox import Command, Limits, Sandbox
from services.sandbox.cancellation import NeedsTime
from services.sandbox.memory_budget import MemoryShortage
from services.sandbox.persistent_box import RestartingBox

_COMPILER, _RUNNER = "the compile server", "the runner"
_PROGRAMS = {_COMPILER: (f"{MOUNT}/front", "serve", f"{MOUNT}/view"), _RUNNER: (f"{MOUNT}/runner",)}
_CACHED_TASKS = 512
_KILLED = "signal -7"
"""How OCaml numbers SIGKILL."""
_OWN_HEAP_MB = 64
"""Address space that the servers have beyond what their children may add: a large minor heap."""
_HEAD = 48
"""Length of the runner's heads."""


class CompiledTests(NamedTuple):
    total: int
    outside: int
    code: bytes
    warnings: tuple[str, ...] = ()
    problem: str | None = None
    """Why the tests judge no answer, as a control showed."""


class NeedsColdPath(Exception):
    """Only the stock compiler can grade this answer. Not a failure."""


class WarmPath:
    """Persistent boxes, one pair per slot, which share what is known of tasks: whether their tests
    judge answers and, of tasks with a signature, the compiled tests. These are typed against the
    signature alone, so they fit every answer."""

    def __init__(self, sandbox: Sandbox, toolchain: OcamlToolchain, config: OcamlConfig) -> None:
        self._sandbox = sandbox
        self._config = config
        self._compile_wall_s = config.compile.limits().wall_s
        # Their children get tighter limits of their own, up to the most that a task may ask for.
        memory_mb = config.max_memory_mb + toolchain.reserved_mb + _OWN_HEAP_MB
        self._command = Command(
            argv=(),
            limits=Limits(
                cpu_s=None,
                memory_mb=memory_mb,
                processes=8,
                scratch_mb=0,
                file_mb=1,
                report_kb=1 << 16,
            ),
            binds=toolchain.run_binds,
            mounts={str(toolchain.build): MOUNT},
            environment=toolchain.environment,
        )
        self._boxes: dict[tuple[int, str], RestartingBox] = {}
        self._tests: dict[tuple[str | None, ...], CompiledTests] = {}
        """By what they are made of, the least recently used first."""
        self._lock = threading.Lock()
        """Guards `_tests`."""
        self._staying: dict[int, tuple[str, str | None, int]] = {}
        """Slot -> module, signature and CPU limit of the answers that a child of its compile server
        waits for."""

    def facts(self, attempt: GradingAttempt) -> CodeFacts:
        """Return what the boxes show of this answer. Raises NeedsColdPath, or Fault for what is not
        the answer's doing."""
        task = attempt.task
        key = (task.module, task.signature, attempt.framework, task.tests)
        with self._lock:
            if judged := self._tests.pop(key, None):
                self._tests[key] = judged
        sections = {
            **attempt.build_sections(),
            "answer": attempt.code.encode(),
            "harness": MOUNT.encode(),
        }
        with_tests = {**sections, "tests": task.tests.encode()}
        if judged is None:
            judged = self._judge_task(attempt, with_tests)
            if judged is not None:
                self._store(key, judged)
        if judged is not None and judged.problem is not None:
            refuse_task(judged.problem)
        tests = judged if task.signature is not None else None
        if tests is None:
            sections = with_tests
        ended, report = self._compile(attempt, sections)
        reply = decode_sections(report) if ended == "exit 0" else None
        if reply is None:
            is_limit = ended.startswith("cpu ")
            if (
                not is_limit
                and self._compile(attempt, {"module": b"toy", "answer": TOY})[0] != "exit 0"
            ):
                raise SandboxFault(f"the compile server's children die ({ended})")
            return build_failure_facts(limit=is_limit)
        if "cold" in reply:
            raise NeedsColdPath
        facts = parse_facts(facts_data := parse_section(reply, "facts"))
        if not facts_data["compiled"]:
            return facts
        if tests is None:
            plan = parse_section(reply, "plan")
            if plan["mismatch"]:
                return build_mismatch_facts(facts, plan)
            tests = _read_tests(reply)
            if task.signature is not None:
                self._store(key, tests)
        attempt.outside = tests.outside, tests.total
        attempt.warnings = tests.warnings
        return self._run(attempt, facts, reply["code/answer"], tests)

    def _store(self, key: tuple[str | None, ...], tests: CompiledTests) -> None:
        with self._lock:
            self._tests[key] = tests
            if len(self._tests) > _CACHED_TASKS:
                del self._tests[next(iter(self._tests))]

    def _judge_task(
        self, attempt: GradingAttempt, sections: Mapping[str, bytes]
    ) -> CompiledTests | None:
        """Compile the tests and run them with a control, an answer that only shows that it is
        called; None where the signature allows no control and the tests are not compiled."""
        ended, report = self._compile(attempt, {**sections, "control": CONTROL})
        reply = decode_sections(report) if ended == "exit 0" else None
        if reply is None or "code/tests" not in reply:
            # Tests without a signature are compiled again for each answer.
            return None if attempt.task.signature is not None else CompiledTests(0, 0, b"")
        tests = _read_tests(reply)
        ended, proof, _ = self._run_program(attempt, reply["code/answer"], tests)
        return tests._replace(problem=find_task_problem(ended, proof))

    def _compile(self, attempt: GradingAttempt, sections: Mapping[str, bytes]) -> tuple[str, bytes]:
        cpu_ms = self._config.compute_compile_cpu_ms(attempt.task.limits, brief=attempt.is_brief)
        body = encode_sections(sections)
        wall_s = self._compile_wall_s + 4 * cpu_ms / 1e3
        kind = attempt.task.module, attempt.task.signature, cpu_ms
        staying = self._staying.pop(attempt.slot, None)
        turn = ""
        if staying is not None:
            turn = "k" if staying == kind and "tests" not in sections else "x"
        head = f"{turn}{cpu_ms} {self._config.compile.memory_mb} {len(body)}\n"
        memory_mb = self._config.compile.memory_mb
        question = head.encode() + body
        ended, report, stays = self._ask(attempt, _COMPILER, question, wall_s, memory_mb)
        if stays:
            self._staying[attempt.slot] = kind
        if turn and ended != "exit 0" and not ended.startswith("cpu "):
            # It may be what came before, or the child died while it waited: what its box then said
            # is no reply to this question. Alone in a new box the answer shows what it is.
            self._boxes[attempt.slot, _COMPILER].close()
            return self._compile(attempt, sections)
        self._refuse_shortage(attempt, _COMPILER, ended)
        return ended, report

    def _run(
        self, attempt: GradingAttempt, facts: CodeFacts, answer: bytes, tests: CompiledTests
    ) -> CodeFacts:
        ended, proof, cpu_ms = self._run_program(attempt, answer, tests)
        if ended == _KILLED and not (proof.forged or proof.too_long):
            # It got no CPU time for 3 s. Only a box of its own shows whether it waited of its own
            # will or for this machine.
            raise NeedsColdPath
        if not ended.startswith("cpu "):
            return add_test_run(facts, proof, None)
        stopped = f"the answer was stopped after {cpu_ms / 1e3:g} s of CPU time"
        return add_test_run(facts, proof, "cpu", (stopped,))

    def _run_program(
        self, attempt: GradingAttempt, answer: bytes, tests: CompiledTests
    ) -> tuple[str, HarnessReport, int]:
        """Return how the program ended, its report, and its CPU limit in milliseconds."""
        limits = self._config.compute_run_limits(attempt.task.limits)
        cpu_ms = self._config.compute_run_cpu_ms(attempt.task.limits, brief=attempt.is_brief)
        body = (
            answer
            + f"{attempt.secret} {len(tests.code)}{attempt.show}".ljust(_HEAD).encode()
            + tests.code
        )
        head = f"{cpu_ms} {limits.memory_mb} {len(answer)}".ljust(_HEAD)
        question = head.encode() + body
        ended, report, _ = self._ask(attempt, _RUNNER, question, limits.wall_s, limits.memory_mb)
        self._refuse_shortage(attempt, _RUNNER, ended)
        proof = parse_test_report(report, attempt.secret, tests.total)
        if not proof.started:
            raise SandboxFault(f"the program did not start ({ended})")
        return ended, proof, cpu_ms

    def _refuse_shortage(self, attempt: GradingAttempt, name: str, ended: str) -> None:
        """Raise MemoryShortage if the child's end may be the kernel's doing."""
        ended_well = ended == "exit 0" or ended.startswith("cpu ")
        if not ended_well and self._boxes[attempt.slot, name].was_starved():
            raise MemoryShortage

    def _ask(
        self, attempt: GradingAttempt, name: str, question: bytes, wall_s: float, memory_mb: int
    ) -> tuple[str, bytes, bool]:
        """Return how the child of a box of the attempt's slot ended (`exit`, `cpu` for its CPU
        limit or `signal`, and a number), its report, and whether it stays. Raises NeedsTime,
        SandboxFault when the box is lost."""
        key = attempt.slot, name
        if key not in self._boxes:
            self._boxes[key] = RestartingBox(
                self._sandbox, replace(self._command, argv=_PROGRAMS[name]), name
            )
        exchange = self._boxes[key].ask(question, wall_s, memory_mb)
        ended, code, cpu_us, *stays = exchange.words
        attempt.cpu_s += int(cpu_us) / 1e6
        if ended == "cpu" and attempt.is_brief:
            raise NeedsTime
        return f"{ended} {code}", exchange.report, bool(stays)

    def close(self) -> None:
        for box in self._boxes.values():
            box.close()


def _read_tests(reply: Mapping[str, bytes]) -> CompiledTests:
    plan = parse_section(reply, "plan")
    code = reply["code/tests"]
    return CompiledTests(plan["total"], plan["outside"], code, tuple(plan["warnings"]))
