"""One grading attempt, an answer to a task on its way through boxes, and what the warm and the cold
path share."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NoReturn

from pydantic import TypeAdapter

from gradus.contract import Diagnostic, Stage
from gradus.errors import InternalFault
from gradus.tasks.ocaml import Framework, OcamlTask
from services.graders.base.code import CodeFacts
from services.graders.base.harness_report import HarnessReport
from services.graders.ocaml.syntax import SYNTAX
from services.sandbox.cancellation import is_brief

TOY = b"let toy = 1\n"
"""Compiles wherever anything compiles: tells an answer that breaks the compiler from a box that is
broken."""

_OUNIT = re.compile(r"\bOUnit2?\b|>::")
_needs_more = lru_cache(maxsize=1024)(
    re.compile(r"\b(?:Sys|Unix|Str|Thread|Mutex|Obj|Marshal)\.").search
)
"""Tests that name these may want more than standing boxes have. Kept by the tests, which a group of
answers shares."""


@lru_cache(maxsize=1024)
def _names_ounit(tests: str) -> bool:
    """Return whether tests name OUnit, outside of comments and strings."""
    return _OUNIT.search(SYNTAX.literal.sub(" ", tests)) is not None


_DIAGNOSTICS = TypeAdapter(tuple[Diagnostic, ...])

CONTROL = b"control"
"""In place of an answer: the front makes a control, which ends its process when it is called."""
_EXHAUSTED = "exhausted"  # code of a diagnostic of the front
_CALLED = "exit 113"
"""How a process ends in which a control was called (front/control.ml)."""

Sections = dict[str, bytes]


def is_warm_eligible(task: OcamlTask) -> bool:
    """Needs nothing but the standard library: can take the warm path, and runs under the tightest
    filter."""
    return (
        not task.files and {*task.packages} <= {"ounit2", "oUnit"} and not _needs_more(task.tests)
    )


@dataclass
class GradingAttempt:
    task: OcamlTask
    code: str
    slot: int
    is_brief: bool = field(default_factory=is_brief)
    """A step that meets its CPU limit raises NeedsTime, and `cpu_ms` of the configuration is
    short."""
    cpu_s: float = 0.0
    """Used in boxes so far."""
    outside: tuple[int, int] = (0, 0)
    """Tests, as written, with expected values that stay outside the answer's process; all tests. Of
    compiled tests."""
    warnings: tuple[str, ...] = ()
    """What the author of the tests should know (front/lint.ml)."""
    secret: str = field(default_factory=lambda: secrets.token_hex(16))
    """Secret that only the harness of this one run receives."""

    @property
    def show(self) -> str:
        """Flag sent after the secret; lets the harness include values of the answer in its report.
        Set when every test of this run is public."""
        return " show" if self.task.public_tests == (self.task.tests,) else ""

    @property
    def framework(self) -> Framework:
        return self.task.framework or (
            Framework.OUNIT2 if _names_ounit(self.task.tests) else Framework.ASSERT
        )

    def build_sections(self) -> Sections:
        """Return what every request to the front says of the task."""
        # Names that must not meet the answer's: with a signature they cannot, and compiled tests
        # can be used again.
        signature = self.task.signature
        alias = "task" if signature is not None else secrets.token_hex(8)
        texts = {
            "module": self.task.module,
            "framework": self.framework,
            "alias": alias,
            "signature": signature,
        }
        return {name: text.encode() for name, text in texts.items() if text is not None}


def encode_sections(sections: Mapping[str, bytes]) -> bytes:
    return b"".join(f"{name} {len(data)}\n".encode() + data for name, data in sections.items())


def decode_sections(text: bytes) -> Sections | None:
    """Return the front's reply, or None when it is not complete."""
    sections: Sections = {}
    position = 0
    while position < len(text):
        end = text.find(b"\n", position)
        name, _, length = text[position:end].rpartition(b" ")
        if end < 0 or not length.isdigit():
            return None
        position = end + 1 + int(length)
        if position > len(text):
            return None
        sections[name.decode()] = text[end + 1 : position]
    return sections or None


def parse_section(reply: Mapping[str, bytes], section: str) -> dict[str, Any]:
    """Return the JSON section of that name. Raises InternalFault when the front found the *task*
    unusable."""
    if "broken" in reply:
        refuse_task(reply["broken"].decode(errors="replace").strip()[:2000])
    document: dict[str, Any] = json.loads(reply[section].decode(errors="replace"))
    return document


def find_task_problem(ended: str, proof: HarnessReport) -> str | None:
    """Return why tests that were run with a control judge no answer; None if nothing is wrong."""
    if ended.startswith("signal "):
        return None
    if ended.startswith("cpu "):
        return "the tests use up their CPU time before they call the answer"
    if proof.failures:
        return "a test fails before the tests call the answer"
    if ended == _CALLED:
        return None
    if proof.tests.passed < proof.tests.total:
        return "the tests end before they call the answer"
    return "the tests never call the answer"


def refuse_task(problem: str) -> NoReturn:
    message = f"this task cannot be judged: {problem}. Check it with `gradus tasks validate`"
    raise InternalFault(message, retryable=False)


def parse_facts(report: Mapping[str, Any]) -> CodeFacts:
    """Return what the front saw of the answer."""
    # The end of stack or memory is an exception or a signal, by where the compiler meets it.
    if any(diagnostic["code"] == _EXHAUSTED for diagnostic in report["diagnostics"]):
        return build_failure_facts(limit=False)
    return CodeFacts(
        stage=Stage.COMPILE if report["typed"] == report["total"] > 0 else Stage.TYPES,
        typed_share=report["typed"] / report["total"] if report["total"] else 0.0,
        flags=tuple(f"forbidden:{construct.lower()}" for construct in report["forbidden"]),
        diagnostics=_DIAGNOSTICS.validate_python(report["diagnostics"]),
    )


def build_failure_facts(*, limit: bool) -> CodeFacts:
    """Return the compiler came to no end on this answer, or broke on it."""
    if limit:
        message = "the compiler did not come to an end within its limits"
    else:
        message = "the answer breaks the compiler"
    flag = "limit:compile" if limit else "compiler:crash"
    return CodeFacts(
        Stage.TYPES, flags=(flag,), diagnostics=(Diagnostic(stage=Stage.TYPES, message=message),)
    )


def build_mismatch_facts(facts: CodeFacts, plan: Mapping[str, Any]) -> CodeFacts:
    """The tests do not fit this answer, for the reason that their `plan` gives."""
    misfit = Diagnostic(stage=Stage.COMPILE, message=plan["mismatch"])
    typed_share = min(facts.typed_share, plan["types"])
    return replace(
        facts,
        stage=Stage.COMPILE,
        typed_share=typed_share,
        diagnostics=(*facts.diagnostics, misfit),
    )
