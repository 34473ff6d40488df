"""The SQL grader: extract the query, compile it and run it on each case in a box of its own,
compare here.

A box holds the query and the rows of one case. Expected rows stay in this process: there is nothing
to forge. Exit status, stdout and stderr are not evidence.
"""

import json
import os
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

from gradus.contract import Diagnostic, Stage, TaskSubmission, TestCount
from gradus.errors import InternalFault, SandboxFault
from gradus.extract import extract
from services.graders.base.code import with_form
from services.graders.base.config_loader import BoxLimits, GraderConfig, read_settings
from services.graders.base.grader import BaseGrader
from services.sandbox import Command, ExitReason, Sandbox
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.escape_probe import refuse_unless_safe

from grader_sql.rubric import RUBRICS, SqlFacts
from grader_sql.task import SqlTask

FOLDER = Path(__file__).parent
PROGRAM = (FOLDER / "box_program.py").read_text()
PYTHON = os.path.realpath(sys.executable)
BINDS = ("/usr", os.path.realpath(sys.base_prefix), str(Path(PYTHON).parents[1]))
STARTED = b"started\n"
COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
LIMITS = {
    ExitReason.CPU_LIMIT: "cpu",
    ExitReason.MEMORY_LIMIT: "memory",
    ExitReason.WALL_IDLE: "wall",
    ExitReason.OUTPUT_LIMIT: "output",
}


class SqlConfig(GraderConfig):
    run: BoxLimits


class SqlGrader(BaseGrader[SqlTask, SqlFacts]):
    name = "sql"
    task = SqlTask
    shipped = RUBRICS

    def __init__(self, config: Path | None = None, sandbox: Sandbox | None = None) -> None:
        file = config or FOLDER / "config.yaml"
        self.config = read_settings(SqlConfig, self.name, file)
        self.sandbox = sandbox or Bubblewrap()
        version = f"sqlite {sqlite3.sqlite_version}"
        self.identify(
            self.config, file, toolchain=version, sandbox=self.sandbox.name, versions=(version,)
        )

    def self_test(self) -> None:
        refuse_unless_safe(self.sandbox)
        super().self_test()

    def facts(
        self, submission: TaskSubmission[SqlTask], slot: int = 0, rubric: str = ""
    ) -> tuple[SqlFacts, float]:
        answer = extract(submission.completion, SqlTask.FENCES)
        uncommented = COMMENTS.sub("", answer.text).strip(" ;\n")
        cpu_s: list[float] = []
        facts = _build_stopped(Stage.EXTRACT, "there is no query in the completion")
        if uncommented:
            facts = self._compile(answer.text, submission.task, cpu_s) or self._test(
                answer.text, submission.task, cpu_s
            )
        return with_form(facts, answer, uncommented), sum(cpu_s)

    def _compile(self, query: str, task: SqlTask, cpu_s: list[float]) -> SqlFacts | None:
        """Return None if SQLite takes the query for these tables."""
        found, limit = self._run(f"EXPLAIN {query}", task, "", cpu_s)
        if "rows" in found:
            return None
        message = found.get("message", "the query breaks the compiler")
        return _build_stopped(Stage.COMPILE, message, *filter(None, (limit,)))

    def _test(self, query: str, task: SqlTask, cpu_s: list[float]) -> SqlFacts:
        n_returned = 0
        n_passed = 0
        limit = None
        for case in task.cases:
            found, limit = self._run(query, task, case.rows, cpu_s)
            if "rows" in found:
                n_returned += 1
                n_passed += _arrange(found["rows"], task) == _arrange(case.equals, task)
            if limit:  # those behind a run that was stopped would most likely use up as much
                break
        n_cases = len(task.cases)
        message = (
            f"of {n_cases} cases, {n_passed} returned the expected rows and"
            f" {n_returned - n_passed} others"
        )
        return SqlFacts(
            Stage.TESTS,
            compiled=True,
            tests=TestCount(passed=n_passed, total=n_cases),
            returned_share=n_returned / n_cases,
            flags=(limit,) if limit else (),
            diagnostics=(
                () if n_passed == n_cases else (Diagnostic(stage=Stage.TESTS, message=message),)
            ),
        )

    def _run(
        self, query: str, task: SqlTask, rows: str, cpu_s: list[float]
    ) -> tuple[dict[str, Any], str | None]:
        """Return what the box reported, and the flag of the limit that stopped it."""
        asked = {"tables": task.tables, "rows": rows, "query": query}
        command = Command(
            (PYTHON, "-I", "-S", "-c", PROGRAM),
            self.config.run.limits(),
            json.dumps(asked).encode(),
            binds=BINDS,
        )
        outcome = self.sandbox.run(command)
        cpu_s.append(outcome.cpu_s)
        if outcome.exit_reason is ExitReason.WALL_STARVED:
            raise SandboxFault("the query got no CPU: this machine is overloaded")
        limit = LIMITS.get(outcome.exit_reason)
        if not outcome.report.startswith(STARTED) and limit is None:
            error = outcome.stderr.decode(errors="replace")[-500:]
            raise SandboxFault(f"Python does not start in its box: {error}")
        found: dict[str, Any] = {}
        if limit is None and outcome.exit_code == 0:
            found = json.loads(outcome.report.removeprefix(STARTED))
        if "task" in found:
            raise InternalFault(
                f"this task cannot be judged: its tables cannot be made: {found['task']}",
                retryable=False,
            )
        return found, f"limit:{limit}" if limit else None


def _build_stopped(stage: Stage, message: str, *flags: str) -> SqlFacts:
    return SqlFacts(stage, flags=flags, diagnostics=(Diagnostic(stage=stage, message=message),))


def _arrange(rows: Any, task: SqlTask) -> list[str]:
    """Return rows in canonical form, sorted where their order does not count: 1 and 1.0 differ, and
    true is 1, as in SQLite."""
    lines = []
    for row in rows:
        cells = [int(cell) if isinstance(cell, bool) else cell for cell in row]
        lines.append(json.dumps(cells))
    return lines if task.ordered else sorted(lines)
