"""Verdicts as data, one behaviour per entry of the files in `tests/cases`; the OCaml grader's cold
path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ConfigDict

from gradus.contract import Graded, Severity, Stage
from services.graders.base.code import CodeFacts as Facts
from services.graders.base.self_test_cases import Expected
from services.graders.ocaml.attempt import GradingAttempt
from services.graders.ocaml.grader import OcamlGrader

CASES = Path(__file__).parent / "cases"


class OnlyCold(OcamlGrader):
    """An OCaml grader that judges every answer the cold way."""

    def collect_facts(self, attempt: GradingAttempt) -> Facts:
        return self.cold.facts(attempt)


class ExpectedVerdict(Expected):
    tests: tuple[int, int] | None = None
    """Passed and total."""
    errors: int | None = None
    """Diagnostics of severity error before the stage tests."""
    lints: dict[str, int] | None = None
    """Warnings by name."""
    says: tuple[str, ...] = ()
    """Each is part of some diagnostic."""
    no_flags: bool = False

    def check(self, got: Graded) -> None:
        low, high = self.reward
        assert (got.passed, got.stage) == (self.passed, self.stage), got
        assert low - 1e-6 <= got.reward <= high + 1e-6, got
        assert set(self.flags) <= set(got.flags), got
        assert not (self.no_flags and got.flags), got
        if self.tests is not None:
            assert got.tests is not None, got
            assert (got.tests.passed, got.tests.total) == self.tests, got
        errors = [
            d
            for d in got.diagnostics
            if d.severity is Severity.ERROR and d.stage is not Stage.TESTS
        ]
        assert self.errors is None or len(errors) == self.errors, got
        warned = [d.code for d in got.diagnostics if d.severity is Severity.WARNING]
        assert self.lints is None or {code: warned.count(code) for code in warned} == self.lints, (
            got
        )
        for text in self.says:
            assert any(text in diagnostic.message for diagnostic in got.diagnostics), got


class WrittenCase(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    id: str = "case"
    prompt: str = ""
    completion: str
    task: dict[str, Any]
    expect: ExpectedVerdict | None = None
    fault: str | None = None
    """Instead of a verdict: a fault of ours that is not retried and whose message matches this."""


def written_cases(folder: str) -> Iterator[Any]:
    """Parameters for pytest: every case of that folder of `tests/cases`."""
    for file in sorted((CASES / folder).glob("*.yaml")):
        for entry in yaml.safe_load(file.read_text()):
            case = WrittenCase.model_validate(entry)
            yield pytest.param(case, id=f"{file.stem}: {case.name}")
