"""The program grader: extract the answer, compile it, run it once for each case in a box of its
own, compare here.

Expected outputs never enter a box of the answer: there is nothing to forge.
"""

from __future__ import annotations

import json
import re
import signal
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradus.contract import Diagnostic, Severity, Stage, TaskSubmission, TestCount
from gradus.descriptions import GraderDescription
from gradus.errors import InternalFault
from gradus.extract import extract
from gradus.tasks.program import CheckerProgram, ProgramCase, ProgramTask
from services.graders.base.code import find_exceeded_limit, with_form
from services.graders.base.grader import MAX_SHOWN, BaseGrader
from services.graders.program.boxes import Boxes, Built
from services.graders.program.checkers import CHECKERS, is_equal_json, read_value
from services.graders.program.config import ProgramConfig, load_config
from services.graders.program.languages import Language, find_language
from services.graders.program.rubric import RUBRICS, ProgramFacts
from services.sandbox import Outcome, Sandbox
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.escape_probe import refuse_unless_safe
from services.sandbox.memory_budget import BoxMemory
from services.sandbox.nested_boxes import STANDING_MB

_STALL_S = 3.0
"""Seconds in all that a program may be asleep, over all its cases."""
_MAX_TOLD = 10
"""Failed cases to tell of, each in a diagnostic."""
_MAX_QUOTED = 400
"""Characters of an input or output of a public case."""
_MAX_OUTPUT, _MAX_ERRORS = 80_000, 10_000
"""Characters of standard output and of standard error that a task with `shows_output` gets back."""
_PLACE = r"\"?(?::|,? line |: line )(\d{1,7})(?::(\d{1,5}))?"
"""Line and column as compilers write them behind the name of the source file."""
_WORDS = {
    "cpu": "time_limit",
    "wall": "time_limit",
    "memory": "memory_limit",
    "output": "output_limit",
}
_RIGHT = 0
_WRONG = (1, 2)
"""Statuses of a checker program."""


@dataclass(slots=True)
class CaseVerdict:
    """What came of one case."""

    word: str = ""
    """The field's word for what is wrong; empty if the case passed."""
    message: str = ""
    limit: str | None = None
    got: str = ""
    """What the program wrote or returned."""


@dataclass(slots=True)
class _Attempt:
    """One answer on its way through its cases."""

    task: ProgramTask
    language: Language
    program: bytes = b""
    cpu_s: float = 0.0
    stalled_s: float = 0.0
    verdicts: list[CaseVerdict] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)


def compute_box_memory(config: ProgramConfig) -> BoxMemory:
    """Return what one slot's boxes need."""
    largest = max(config.compile.memory_mb, config.run.memory_mb)
    extra = max(language.extra_memory_mb for language in config.languages.values())
    return BoxMemory(STANDING_MB, largest + extra)


class ProgramGrader(BaseGrader[ProgramTask, ProgramFacts]):
    name = "program"
    task = ProgramTask
    shipped = RUBRICS

    def __init__(self, config: Path | None = None, sandbox: Sandbox | None = None) -> None:
        """Raises InternalFault if none of the configured languages is installed."""
        self.config = load_config(config)
        self.sandbox = sandbox or Bubblewrap()
        self.boxes = Boxes(self.sandbox, self.config)
        self.languages: dict[str, Language] = {}
        for name, settings in self.config.languages.items():
            language = find_language(name, settings)
            if language:
                self.languages[name] = language
        self._locks = {name: threading.Lock() for name in self.languages}
        self._tried: set[str] = set()
        """Languages whose example was run."""
        if not self.languages:
            names = ", ".join(self.config.languages)
            raise InternalFault(f"none of these languages is installed: {names}", retryable=False)
        versions = [f"{language.name} {language.version}" for language in self.languages.values()]
        self.identify(
            self.config,
            config,
            toolchain="; ".join(versions),
            sandbox=self.sandbox.name,
            versions=versions,
        )

    def description(self) -> GraderDescription:
        """Return the description, whose schema names the languages that are installed."""
        description = super().description()
        schema = description.task_schema
        properties = schema["properties"]
        language = {**properties["language"], "enum": list(self.languages)}
        schema = {**schema, "properties": {**properties, "language": language}}
        return description.model_copy(update={"task_schema": schema})

    def get_box_memory(self) -> BoxMemory:
        return compute_box_memory(self.config)

    def self_test(self) -> None:
        """Attack the sandbox, and grade the own cases. A language's example is run before its first
        answer: most workers meet few of the languages, and compiling in all takes a minute."""
        for sandbox in {self.sandbox, self.boxes.cases}:
            refuse_unless_safe(sandbox)
        super().self_test()

    def facts(
        self, submission: TaskSubmission[ProgramTask], slot: int = 0, rubric: str = ""
    ) -> tuple[ProgramFacts, float]:
        task = submission.task
        attempt = _Attempt(task, self.get_language(task.language))
        answer = extract(submission.completion, attempt.language.settings.fences)
        if answer.text.strip():
            facts = self._judge(attempt, answer.text)
        else:
            empty = Diagnostic(stage=Stage.EXTRACT, message="there is no code in the completion")
            facts = ProgramFacts(Stage.EXTRACT, diagnostics=(empty,))
        return with_form(facts, answer, answer.text), attempt.cpu_s

    def get_language(self, name: str) -> Language:
        """Return a language, whose example was run. Raises InternalFault for one that is not
        installed, or whose example fails."""
        if name not in self.languages:
            package = self.config.languages[name].package if name in self.config.languages else ""
            remedy = f"install {package}" if package else "add it to configs/graders/program.yaml"
            raise InternalFault(
                f"the language {name!r} is not installed ({remedy}); there are:"
                f" {', '.join(self.languages)}",
                retryable=False,
            )
        language = self.languages[name]
        with self._locks[name]:
            if name not in self._tried:
                self._try_example(language)
                self._tried.add(name)
        return language

    def _try_example(self, language: Language) -> None:
        """Run the language's example. Raises InternalFault if it fails: no answer's doing."""
        settings = language.settings
        case = ProgramCase(stdin="20 22\n", stdout="42")
        task = ProgramTask(language=language.name, cases=(case,))
        facts = self._judge(_Attempt(task, language), settings.example)
        if not facts.passed:
            raise InternalFault(
                f"the example of {language.name} ({language.version}) fails: repair or remove its"
                f" package, {settings.package}, or leave it out of `languages` in the grader's"
                f" configuration; {facts.diagnostics}",
                retryable=False,
            )

    def _judge(self, attempt: _Attempt, source: str) -> ProgramFacts:
        built, cpu_s = self.boxes.compile(attempt.language, source)
        attempt.cpu_s += cpu_s
        if built.program is None:
            return _build_uncompiled(built, attempt.language.settings.source)
        attempt.program = built.program
        self._run_cases(attempt)
        task = attempt.task
        facts = _build_facts(attempt)
        if not facts.passed:
            shown = self._run_public_cases(attempt)
            facts = replace(facts, diagnostics=(*facts.diagnostics, *shown))
        if task.shows_output:
            outputs = map(_show_output, attempt.outcomes[: len(attempt.verdicts)])
            facts = replace(facts, diagnostics=(*outputs, *facts.diagnostics))
        return facts

    def judge_cases(self, task: ProgramTask, source: str) -> list[CaseVerdict]:
        """Return what came of each case up to one that meets a limit, for authors of tasks; nothing
        if the source does not compile."""
        attempt = _Attempt(task, self.get_language(task.language))
        attempt.program = self.boxes.compile(attempt.language, source)[0].program or b""
        if attempt.program:
            self._run_cases(attempt)
        return attempt.verdicts

    def _run_cases(self, attempt: _Attempt) -> None:
        for case in attempt.task.cases:
            verdict = self._run_case(attempt, case)
            attempt.verdicts.append(verdict)
            if verdict.limit or (verdict.word and attempt.task.stop_at_failure):
                break  # those behind a run that was stopped would use up as much

    def _run_case(self, attempt: _Attempt, case: ProgramCase) -> CaseVerdict:
        boxes = self.boxes
        language = attempt.language
        task = attempt.task
        stall_s = max(0.1, _STALL_S - attempt.stalled_s)
        limits = boxes.build_limits(language, task.limits, stall_s)
        report = b""
        if case.call is None:
            outcome = boxes.run(
                language,
                attempt.program,
                stdin=case.stdin,
                args=case.args,
                files=case.files,
                limits=limits,
            )
        elif language.settings.call:
            outcome, report = boxes.call(language, attempt.program, case.call, limits)
        else:
            raise InternalFault(f"{language.name} has no cases with `call`", retryable=False)
        attempt.outcomes.append(outcome)
        attempt.cpu_s += outcome.cpu_s
        attempt.stalled_s += outcome.stalled_s
        limit, why = find_exceeded_limit(outcome, limits.cpu_s or 0, limits.output_kb)
        if limit:
            return CaseVerdict(_WORDS[limit], why[0], limit)
        if case.call is not None:
            return _check_value(outcome, report, case, task.tolerance)
        got = outcome.stdout.decode(errors="replace")
        if outcome.exit_code != 0:
            return CaseVerdict("runtime_error", _describe_exit(outcome.exit_code), got=got)
        if self._is_right(attempt, case, got):
            return CaseVerdict(got=got)
        return CaseVerdict("wrong_answer", "the output is not the expected one", got=got)

    def _is_right(self, attempt: _Attempt, case: ProgramCase, got: str) -> bool:
        checker = attempt.task.checker
        expected = case.stdout or ""
        if isinstance(checker, str):
            return CHECKERS[checker](got, expected, attempt.task.tolerance)
        status = self._run_checker(attempt, checker, case, got)
        if status == _RIGHT or status in _WRONG:
            return status == _RIGHT
        # An output that breaks a checker is wrong, if the checker takes the expected output.
        if self._run_checker(attempt, checker, case, expected) == _RIGHT:
            return False
        raise InternalFault("the task's checker fails on the expected output", retryable=False)

    def _run_checker(
        self, attempt: _Attempt, checker: CheckerProgram, case: ProgramCase, got: str
    ) -> int | None:
        """Return the status of the checker; None if a limit ended it."""
        language = self.get_language(checker.language)
        built, cpu_s = self.boxes.compile(language, checker.source)
        attempt.cpu_s += cpu_s
        if built.program is None:
            raise InternalFault(
                f"the task's checker does not compile: {built.message[:500]}", retryable=False
            )
        limits = self.boxes.build_checker_limits(language)
        outcome = self.boxes.run(
            language,
            built.program,
            args=("input", "output", "expected"),
            files={"input": case.stdin, "output": got, "expected": case.stdout or ""},
            limits=limits,
        )
        attempt.cpu_s += outcome.cpu_s
        limit, _ = find_exceeded_limit(outcome, limits.cpu_s or 0, limits.output_kb)
        return None if limit else outcome.exit_code

    def _run_public_cases(self, attempt: _Attempt) -> list[Diagnostic]:
        """Return diagnostics that quote the first public cases that the answer fails."""
        shown: list[Diagnostic] = []
        attempt.stalled_s = 0.0
        for number, case in enumerate(attempt.task.public_cases, 1):
            verdict = self._run_case(attempt, case)
            if verdict.word:
                text = f"public case {number}: {verdict.message}\n{_quote(case, verdict.got)}"
                shown.append(Diagnostic(stage=Stage.TESTS, code=verdict.word, message=text))
            if verdict.limit or len(shown) == MAX_SHOWN:
                break
        return shown


def _check_value(
    outcome: Outcome, report: bytes, case: ProgramCase, tolerance: float
) -> CaseVerdict:
    is_value, value = read_value(report)
    got = report.decode(errors="replace")
    if not is_value:
        message = "the call returned no value that JSON has"
        if outcome.exit_code:
            message = f"the call failed: {_describe_exit(outcome.exit_code)}"
        return CaseVerdict("runtime_error", message, got=got)
    if is_equal_json(value, case.equals, tolerance):
        return CaseVerdict(got=got)
    return CaseVerdict("wrong_answer", "the value is not the expected one", got=got)


def _build_facts(attempt: _Attempt) -> ProgramFacts:
    cases = attempt.task.cases
    verdicts = attempt.verdicts
    passed = [not verdict.word for verdict in verdicts]
    passed += [False] * (len(cases) - len(verdicts))
    failed_groups = {
        case.group for case, is_right in zip(cases, passed, strict=True) if not is_right
    }
    points = {case.group: attempt.task.points.get(case.group, 1.0) for case in cases}
    earned = sum(value for group, value in points.items() if group not in failed_groups)
    diagnostics = []
    for number, verdict in enumerate(verdicts, 1):
        if verdict.word:
            text = f"case {number} of {len(cases)}: {verdict.message}"
            diagnostics.append(Diagnostic(stage=Stage.TESTS, code=verdict.word, message=text))
    if len(diagnostics) > _MAX_TOLD:
        message = f"{len(diagnostics) - _MAX_TOLD} more cases failed"
        diagnostics = [*diagnostics[:_MAX_TOLD], Diagnostic(stage=Stage.TESTS, message=message)]
    limit = verdicts[-1].limit
    return ProgramFacts(
        Stage.TESTS,
        compiled=True,
        tests=TestCount(passed=sum(passed), total=len(cases)),
        points_share=earned / sum(points.values()),
        flags=(f"limit:{limit}",) if limit else (),
        diagnostics=tuple(diagnostics),
    )


def _build_uncompiled(built: Built, source: str) -> ProgramFacts:
    place = re.search(re.escape(source) + _PLACE, built.message)
    diagnostic = Diagnostic(
        stage=Stage.COMPILE,
        line=int(place[1]) if place else None,
        column=int(place[2]) if place and place[2] else None,
        message=built.message,
    )
    flags = (f"limit:{built.limit}",) if built.limit else ()
    return ProgramFacts(Stage.COMPILE, flags=flags, diagnostics=(diagnostic,))


def _show_output(outcome: Outcome) -> Diagnostic:
    """Return what a run wrote and its exit status, as JSON."""
    stdout = outcome.stdout.decode(errors="replace")
    parts = {
        "stdout": stdout[:_MAX_OUTPUT],
        "stderr": outcome.stderr.decode(errors="replace")[:_MAX_ERRORS],
        "status": outcome.exit_code,
        "is_cut": len(stdout) > _MAX_OUTPUT,
    }
    return Diagnostic(
        stage=Stage.TESTS, severity=Severity.WARNING, code="output", message=json.dumps(parts)
    )


def _describe_exit(code: int) -> str:
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return f"the program ended with status {code}"
    return f"the program was ended by {name}"


def _quote(case: ProgramCase, got: str) -> str:
    if case.call:
        call = f"{case.call.function}{case.call.arguments!r}"
        parts = {"call": call, "expected": repr(case.equals), "got": got}
    else:
        parts = {"input": case.stdin, "expected": case.stdout or "", "got": got}
    lines = []
    for name, text in parts.items():
        cut = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]} ..."
        lines.append(f"{name}: {cut.rstrip()}")
    return "\n".join(lines)
