"""The Python grader: extract the answer, compile it in a box, evaluate each call in a box of its
own, compare here.

A box holds the answer and one call. Expected values stay in this process: a forged report is worth
as much as a function that returns the same value. Exit status, stdout and stderr are not evidence.
"""

import json
import os
import re
import sys
from pathlib import Path

from gradus.contract import Diagnostic, Stage, TaskSubmission, TestCount
from gradus.errors import SandboxFault
from gradus.extract import extract
from services.graders.base.code import with_form
from services.graders.base.config_loader import BoxLimits, GraderConfig, read_settings
from services.graders.base.grader import BaseGrader
from services.sandbox import Command, ExitReason, Sandbox
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.escape_probe import refuse_unless_safe

from grader_python.rubric import RUBRICS, PythonFacts
from grader_python.task import Case, PythonTask

FOLDER = Path(__file__).parent
PROGRAM = (FOLDER / "box_program.py").read_text()
PYTHON = os.path.realpath(sys.executable)
BINDS = ("/usr", os.path.realpath(sys.base_prefix), str(Path(PYTHON).parents[1]))
STARTED = b"started\n"
LIMITS = {
    ExitReason.CPU_LIMIT: "cpu",
    ExitReason.MEMORY_LIMIT: "memory",
    ExitReason.WALL_IDLE: "wall",
    ExitReason.OUTPUT_LIMIT: "output",
}


class PythonConfig(GraderConfig):
    run: BoxLimits


class PythonGrader(BaseGrader[PythonTask, PythonFacts]):
    name = "python"
    task = PythonTask
    shipped = RUBRICS

    def __init__(self, config: Path | None = None, sandbox: Sandbox | None = None) -> None:
        file = config or FOLDER / "config.yaml"
        self.config = read_settings(PythonConfig, self.name, file)
        self.sandbox = sandbox or Bubblewrap()
        version = f"python {sys.version.split()[0]}"
        self.identify(
            self.config, file, toolchain=version, sandbox=self.sandbox.name, versions=(version,)
        )

    def self_test(self) -> None:
        refuse_unless_safe(self.sandbox)
        super().self_test()

    def facts(
        self, submission: TaskSubmission[PythonTask], slot: int = 0, rubric: str = ""
    ) -> tuple[PythonFacts, float]:
        answer = extract(submission.completion, PythonTask.FENCES)
        uncommented = re.sub("#.*", "", answer.text)
        cpu_s: list[float] = []
        facts = _stopped(Stage.EXTRACT, "there is no code in the completion")
        if uncommented.strip():
            facts = self._refused(answer.text, cpu_s) or self._tested(
                answer.text, submission.task.cases, cpu_s
            )
        return with_form(facts, answer, uncommented), sum(cpu_s)

    def _refused(self, code: str, cpu_s: list[float]) -> PythonFacts | None:
        """None if the answer compiles. Nothing of it runs in this box, so what the box reports is
        true."""
        report, limit = self._run(code, None, cpu_s)
        if report == b"null\n":
            return None
        if not report:
            return _stopped(
                Stage.COMPILE, "the answer breaks the compiler", limit or "compiler:crash"
            )
        return _stopped(Stage.COMPILE, **json.loads(report))

    def _tested(self, code: str, cases: tuple[Case, ...], cpu_s: list[float]) -> PythonFacts:
        values = []
        limit = None
        for case in cases:
            if (
                limit is None
            ):  # the calls after one that was stopped would most likely use up as much
                report, limit = self._run(code, case.call, cpu_s)
                values.append(_value(report))
        returned = sum(value is not None for value in values)
        expected = [json.dumps(case.equals, sort_keys=True) for case in cases]
        passed = sum(value == right for value, right in zip(values, expected, strict=False))
        message = (
            f"of {len(cases)} calls, {passed} returned the expected value and {returned - passed}"
            " another one"
        )
        return PythonFacts(
            Stage.TESTS,
            compiled=True,
            tests=TestCount(passed=passed, total=len(cases)),
            returned_share=returned / len(cases),
            flags=(limit,) if limit else (),
            diagnostics=(
                () if passed == len(cases) else (Diagnostic(stage=Stage.TESTS, message=message),)
            ),
        )

    def _run(self, code: str, call: str | None, cpu_s: list[float]) -> tuple[bytes, str | None]:
        """What the box reported, and the flag of the limit that stopped it."""
        argv = (
            PYTHON,
            "-I",
            "-S",
            "-c",
            PROGRAM,
        )  # answers have the standard library and no installed packages
        stdin = json.dumps({"answer": code, "call": call}).encode()
        outcome = self.sandbox.run(Command(argv, self.config.run.limits(), stdin, binds=BINDS))
        cpu_s.append(outcome.cpu_s)
        if outcome.exit_reason is ExitReason.WALL_STARVED:
            raise SandboxFault("the answer got no CPU: this machine is overloaded")
        limit = LIMITS.get(outcome.exit_reason)
        if not outcome.report.startswith(STARTED) and limit is None:
            raise SandboxFault(
                "Python does not start in its box:"
                f" {outcome.stderr.decode(errors='replace')[-500:]}"
            )
        return outcome.report.removeprefix(STARTED), f"limit:{limit}" if limit else None


def _stopped(stage: Stage, message: str, *flags: str, line: int | None = None) -> PythonFacts:
    return PythonFacts(
        stage, flags=flags, diagnostics=(Diagnostic(stage=stage, line=line, message=message),)
    )


def _value(report: bytes) -> str | None:
    """The value that a call returned, in canonical form; None if it returned none. The report may
    be forged."""
    try:
        return json.dumps(json.loads(report), sort_keys=True)
    except (ValueError, RecursionError):
        return None
