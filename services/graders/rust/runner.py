"""The third box: the program alone. Tests report through the harness and its secret, cases by their
output."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradus.contract import TestCount
from gradus.errors import SandboxFault
from gradus.tasks.rust import RustTask
from services.graders.base.code import find_exceeded_limit
from services.graders.base.harness_report import HarnessReport, parse_test_report
from services.graders.rust.config import RustConfig
from services.graders.rust.toolchain import RustToolchain
from services.sandbox import Command, ExitReason, Limits, Outcome, Sandbox

_PROGRAM = "/box/program"
_STALL_S = 3.0
"""Seconds in all that the tests, or the program over all its cases, may be asleep."""
_ANSWER = "/box/answer"
"""The answer's program where tests have one of their own; harness/remote.rs names it, too."""
_OF_THE_BOX = frozenset({1, 126, 127})
"""Exit codes of bubblewrap and of what starts the program when they fail; a program may have them
too."""


@dataclass(frozen=True, slots=True)
class RunResult:
    proof: HarnessReport
    limit: str | None
    """The limit that ended a run."""
    cpu_s: float
    doubt: str = ""
    """What is known where nothing shows that the program was started: the box may be broken."""


class Runner:
    def __init__(self, sandbox: Sandbox, toolchain: RustToolchain, config: RustConfig) -> None:
        self._sandbox = sandbox
        self._toolchain = toolchain
        self._config = config

    def run_tests(
        self,
        program: bytes,
        task: RustTask,
        expected: Sequence[tuple[str, str]] = (),
        answer: bytes = b"",
    ) -> RunResult:
        """Run all tests; believe what the harness signed.

        `expected`: values that are not in the program, by name of test. `answer`: its program,
        where that of the tests does not hold it.
        """
        secret = secrets.token_hex(16)
        show = " show" if task.public_tests == (task.tests,) else ""
        lines = "".join(f"{name} {text}\n" for name, text in expected)
        outcome, limits = self._run(program, task, f"{secret}{show}\n{lines}", answer=answer)
        proof = parse_test_report(outcome.report, secret, expected=0)
        limit, why = find_exceeded_limit(outcome, limits.cpu_s or 0, limits.output_kb)
        doubt = ""
        if not proof.started and limit is None:
            stderr = outcome.stderr.decode(errors="replace").strip()[-500:]
            doubt = f"exit code {outcome.exit_code}: {stderr or 'nothing said'}"
            why = ("the program cannot be started",)
        proof = replace(proof, reasons=(*why, *proof.reasons))
        return RunResult(proof, limit, outcome.cpu_s, doubt)

    def run_cases(self, program: bytes, task: RustTask) -> RunResult:
        """Run the program once per case, until all are done or one run hits a limit."""
        passed = 0
        cpu_s = 0.0
        stall_s = _STALL_S
        limit = None
        doubt = ""
        reasons: list[str] = []
        for number, case in enumerate(task.cases, 1):
            outcome, limits = self._run(program, task, case.stdin, stall_s)
            cpu_s += outcome.cpu_s
            stall_s -= outcome.stalled_s
            # what is not as the case wants it, without saying what it wants
            limit, wrong = find_exceeded_limit(outcome, limits.cpu_s or 0, limits.output_kb)
            if limit is None and outcome.exit_code != 0:
                wrong = (f"the program ended with exit code {outcome.exit_code}",)
            elif limit is None and _clean_lines(
                outcome.stdout.decode(errors="replace")
            ) != _clean_lines(case.stdout):
                wrong = ("the output is not the expected one",)
            passed += not wrong
            if outcome.exit_code in _OF_THE_BOX and not outcome.stdout:
                doubt = f"exit code {outcome.exit_code}"
            reasons += [f"case {number} of {len(task.cases)}: {text}" for text in wrong]
            if limit:
                break
        tests = TestCount(passed=passed, total=len(task.cases))
        return RunResult(HarnessReport(True, tests, tuple(reasons)), limit, cpu_s, doubt)

    def read_output(self, program: bytes, task: RustTask, *, is_partial: bool = False) -> str:
        """Return what the program writes when it reads nothing; empty if it fails, unless
        `is_partial`."""
        outcome, _ = self._run(program, task, stdin="")
        if outcome.exit_code != 0 and not is_partial:
            return ""
        return outcome.stdout.decode(errors="replace")

    def _run(
        self,
        program: bytes,
        task: RustTask,
        stdin: str,
        stall_s: float = _STALL_S,
        answer: bytes = b"",
    ) -> tuple[Outcome, Limits]:
        programs = {_PROGRAM: program}
        if answer:
            programs[_ANSWER] = answer
        limits = replace(self._config.run_limits(task.limits), output_kb=1024, stall_s=stall_s)
        command = Command(
            argv=(_PROGRAM,),
            limits=limits,
            stdin=stdin.encode(),
            programs=programs,
            binds=self._toolchain.run_binds,
            mounts=self._toolchain.run_mounts,
        )
        outcome = self._sandbox.run(command)
        if outcome.exit_reason is ExitReason.WALL_STARVED:
            raise SandboxFault("the answer got no CPU: this machine is overloaded")
        return outcome, limits


def _clean_lines(text: str) -> list[str]:
    """Without white space at the ends of lines and without empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().split("\n")]
