"""The OCaml grader: extract, type and compile the answer alone, compile the tests against it, run, judge.

Three boxes, each fresh: the tests do not exist in the first, nothing of the answer runs in the second, and the third
has neither compiler nor sources. Does not believe anything that the answer's process says without the run's secret.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gradus.contract import (
    Diagnostic,
    Framework,
    Graded,
    GraderInfo,
    GraderName,
    OcamlSubmission,
    OcamlTask,
    Stage,
    Submission,
    TestCount,
)
from gradus.errors import InternalFault, SandboxFault
from services.degenerate import degenerate_flags, is_stub
from services.extract import extract
from services.facts import Facts
from services.graders.cases import prove_cases
from services.graders.ocaml.config import load_config
from services.graders.ocaml.judge import judge
from services.graders.ocaml.toolchain import HARNESS_UNITS, MOUNT, OcamlToolchain, source_hash
from services.rubric import rubrics_of, score
from services.sandbox import Command, Ending, Limits, Outcome, Sandbox
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.probe import refuse_unless_safe

TAGS = frozenset({"ocaml", "ml"})
COMMENT = re.compile(r"\(\*.*?\*\)", re.DOTALL)
_VALUE = re.compile(r"^\s*val\s+(?:\(\s*(\S+)\s*\)|([a-z_][\w']*))", re.MULTILINE)
_NAMES_OUNIT = re.compile(r"\bOUnit2?\b|>::")
_DIAGNOSTICS = TypeAdapter(tuple[Diagnostic, ...])
_TOY = b"let toy = 1\n"

Sections = dict[str, bytes]


class OcamlGrader:
    def __init__(self, config: Path | None = None, sandbox: Sandbox | None = None) -> None:
        self.config = load_config(config)
        self.sandbox = sandbox or Bubblewrap()
        self.toolchain = OcamlToolchain()
        self._info = GraderInfo(
            name=GraderName.OCAML,
            revision=self._revision(),
            toolchain=f"ocaml {self.toolchain.version}",
            rubrics=self._rubrics(),
            sandbox=self.sandbox.name,
        )

    def info(self) -> GraderInfo:
        return self._info

    def prove(self) -> None:
        refuse_unless_safe(self.sandbox)
        prove_cases(self, OcamlSubmission, Path(__file__).parent / "cases.yaml")

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        if not isinstance(submission, OcamlSubmission):
            raise InternalFault(f"the OCaml grader was given a {type(submission).__name__}", retryable=False)
        started = time.monotonic()
        attempt = _Attempt(self, submission, slot)
        facts = attempt.facts()
        result = score(facts, rubric)
        return Graded(
            id=submission.id,
            reward=result.reward,
            passed=facts.passed,
            stage=facts.stage,
            components=result.components,
            tests=facts.tests,
            flags=facts.flags,
            diagnostics=facts.diagnostics,
            rubric=rubric,
            grader=self._info.grader,
            toolchain=self._info.toolchain,
            cpu_ms=round(attempt.cpu_s * 1e3, 3),
            wall_ms=round((time.monotonic() - started) * 1e3, 3),
        )

    def _rubrics(self) -> tuple[str, ...]:
        known = rubrics_of(GraderName.OCAML)
        if self.config.rubric not in known:
            raise InternalFault(f"configs/graders/ocaml.yaml: no rubric {self.config.rubric!r}", retryable=False)
        return (self.config.rubric, *(name for name in known if name != self.config.rubric))

    def _revision(self) -> str:
        """Everything that can change a verdict but rubrics, which have versions of their own."""
        services = Path(__file__).parents[2]
        own = [*sorted(Path(__file__).parent.glob("*.py")), services / "extract.py", services / "degenerate.py"]
        digest = hashlib.sha256(source_hash().encode())
        for path in own:
            digest.update(path.read_bytes())
        digest.update(f"{self.config.model_dump_json()}|{self.sandbox.name}|{self.toolchain.version}".encode())
        return digest.hexdigest()[:12]


@dataclass
class _Attempt:
    """One submission on its way through the boxes; adds up what they cost."""

    grader: OcamlGrader
    submission: OcamlSubmission
    slot: int
    cpu_s: float = 0.0
    secret: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def task(self) -> OcamlTask:
        return self.submission.task

    def facts(self) -> Facts:
        answer = extract(self.submission.completion, TAGS, _definition_of(self.task.signature))
        flags = (*answer.flags, *degenerate_flags(answer, comment=COMMENT))
        if not COMMENT.sub("", answer.text).strip():
            message = "there is no code in the completion"
            facts = Facts(Stage.EXTRACT, diagnostics=(Diagnostic(stage=Stage.EXTRACT, message=message),))
        else:
            facts = self._compiled(answer.text)
        if not facts.passed and is_stub(answer.text, comment=COMMENT):
            flags = (*flags, "degenerate:stub")
        return replace(facts, flags=(*flags, *facts.flags), blocks=answer.blocks, trailing_chars=answer.trailing_chars)

    # ------------------------------------------------------------------------------------------------- answer box

    def _compiled(self, code: str) -> Facts:
        request = {**self._request(), "answer": code.encode(), "view": f"{MOUNT}/view".encode()}
        outcome = self._front("answer", request)
        reply = _sections(outcome.report)
        if reply is None:
            return self._compiler_gave_up(outcome)
        said = self._checked(reply, "facts")
        diagnostics = _DIAGNOSTICS.validate_python(said["diagnostics"])
        facts = Facts(
            stage=Stage.COMPILE if said["typed"] == said["total"] > 0 else Stage.TYPES,
            typed_share=said["typed"] / said["total"] if said["total"] else 0.0,
            flags=tuple(f"forbidden:{what.lower()}" for what in said["forbidden"]),
            diagnostics=diagnostics,
        )
        return self._tested(facts, reply) if said["compiled"] else facts

    def _compiler_gave_up(self, outcome: Outcome) -> Facts:
        """The front said nothing. Was it this answer, or is the box broken? A toy answer in the same box tells."""
        if outcome.ending is Ending.WALL_STARVED:
            raise SandboxFault("the compiler got no CPU: this machine is overloaded")
        limit = outcome.ending is Ending.CPU_LIMIT
        if not limit and _sections(self._front("answer", {**self._request(plain=True), "answer": _TOY}).report) is None:
            said = outcome.stderr.decode(errors="replace").strip()[-500:]
            raise SandboxFault(f"the compiler does not run in its box (exit code {outcome.exit_code}): {said}")
        message = "the compiler did not come to an end within its limits" if limit else "the answer breaks the compiler"
        flag = "limit:compile" if limit else "compiler:crash"
        return Facts(Stage.TYPES, flags=(flag,), diagnostics=(Diagnostic(stage=Stage.TYPES, message=message),))

    # -------------------------------------------------------------------------------------------------- tests box

    def _tested(self, facts: Facts, compiled: Mapping[str, bytes]) -> Facts:
        inputs = {f"in/{name.removeprefix('out/')}": data for name, data in compiled.items() if name != "facts"}
        request = {**self._request(), **inputs, "tests": self.task.tests.encode()}
        request["includes"] += f"\n{MOUNT}".encode()  # the harness, which answers never see
        outcome = self._front("tests", request)
        reply = _sections(outcome.report)
        if reply is None:
            if outcome.ending is Ending.WALL_STARVED:
                raise SandboxFault("the compiler got no CPU: this machine is overloaded")
            said = outcome.stderr.decode(errors="replace").strip()[-500:]
            raise InternalFault(f"the tests could not be compiled within their limits: {outcome.ending}: {said}")
        plan = self._checked(reply, "plan")
        if plan["mismatch"]:
            diagnostic = Diagnostic(stage=Stage.COMPILE, message=plan["mismatch"])
            return replace(facts, stage=Stage.COMPILE, diagnostics=(*facts.diagnostics, diagnostic))
        return self._ran(replace(facts, compiled=True, stage=Stage.TESTS), reply["out/program"], plan["total"])

    # ---------------------------------------------------------------------------------------------------- run box

    def _ran(self, facts: Facts, program: bytes, expected: int) -> Facts:
        toolchain = self.grader.toolchain
        limits = self.grader.config.run_limits(self.task.limits)
        command = Command(
            argv=(toolchain.ocamlrun, "/box/program"),
            limits=limits,
            stdin=self.secret.encode() + b"\n",
            files={"/box/program": program},
            binds=toolchain.run_binds,
        )
        outcome = self._run(command)
        proof = judge(outcome.report, self.secret, expected)
        if outcome.ending is Ending.WALL_STARVED:
            raise SandboxFault("the answer got no CPU: this machine is overloaded")
        if not proof.started and outcome.ending is Ending.EXITED:
            said = outcome.stderr.decode(errors="replace").strip()[-500:]
            raise SandboxFault(f"the program did not start (exit code {outcome.exit_code}): {said}")
        flag, reason = _limit_hit(outcome, limits)
        return replace(
            facts,
            tests=_at_least_one(proof.tests),
            flags=(*facts.flags, *flag),
            diagnostics=tuple(Diagnostic(stage=Stage.TESTS, message=text) for text in (*reason, *proof.reasons)),
        )

    # ------------------------------------------------------------------------------------------------------ boxes

    def _request(self, *, plain: bool = False) -> Sections:
        """What both compiling boxes are told. `plain`: of an empty task, to see whether the box works at all."""
        toolchain = self.grader.toolchain
        if plain:
            return {"ocamlc": toolchain.ocamlc.encode(), "view": f"{MOUNT}/view".encode(), "module": b"toy"}
        packages = toolchain.packages(self.task.packages)
        harness = [f"{MOUNT}/{unit}.cmo" for unit in HARNESS_UNITS if unit != "oUnit2" or self._framework == "ounit2"]
        request = {
            "ocamlc": toolchain.ocamlc,
            "includes": "\n".join(packages.includes),
            "archives": "\n".join(packages.archives),
            "ppx": "\n".join(packages.ppx),
            "harness": "\n".join(harness),
            "module": self.task.module,
            "framework": self._framework,
            "secret": self.secret,
            **{f"file/{name}": text for name, text in self.task.files.items()},
        }
        if self.task.signature is not None:
            request["signature"] = self.task.signature
        return {name: text.encode() for name, text in request.items()}

    @property
    def _framework(self) -> str:
        if self.task.framework:
            return self.task.framework.value
        return Framework.OUNIT2.value if _NAMES_OUNIT.search(self.task.tests) else Framework.ASSERT.value

    def _front(self, mode: str, request: Sections) -> Outcome:
        toolchain = self.grader.toolchain
        limits = replace(self.grader.config.compile.limits(), report_kb=65536)
        command = Command(
            argv=(f"{MOUNT}/front", mode),
            limits=limits,
            stdin=b"".join(f"{name} {len(data)}\n".encode() + data for name, data in request.items()),
            binds=toolchain.compile_binds,
            mounts={str(toolchain.build): MOUNT},
        )
        return self._run(command)

    def _run(self, command: Command) -> Outcome:
        outcome = self.grader.sandbox.run(command, self.slot)
        self.cpu_s += outcome.cpu_s
        return outcome

    def _checked(self, reply: Mapping[str, bytes], section: str) -> dict[str, Any]:
        """The JSON section of that name. Raises InternalFault when the front found the *task* unusable."""
        if "broken" in reply:
            why = reply["broken"].decode(errors="replace").strip()
            raise InternalFault(
                f"this task cannot be judged: {why[:2000]}. Check it with `gradus tasks validate`", retryable=False
            )
        said: dict[str, Any] = json.loads(reply[section].decode(errors="replace"))
        return said


def _definition_of(signature: str | None) -> re.Pattern[str] | None:
    names = [left or right for left, right in _VALUE.findall(signature or "")]
    if not names:
        return None
    alternatives = "|".join(re.escape(name) for name in names)
    return re.compile(rf"\b(?:let|and)\s+(?:rec\s+)?(?:\(\s*)?(?:{alternatives})(?![\w'])")


def _sections(report: bytes) -> Sections | None:
    """The front's reply, or None when it is not complete."""
    found: Sections = {}
    position = 0
    while position < len(report):
        end = report.find(b"\n", position)
        name, _, length = report[position:end].rpartition(b" ")
        if end < 0 or not length.isdigit():
            return None
        position = end + 1 + int(length)
        if position > len(report):
            return None
        found[name.decode()] = report[end + 1 : position]
    return found or None


def _at_least_one(tests: TestCount) -> TestCount:
    """A suite that came to nothing proves nothing: it counts as one test that did not pass."""
    return tests if tests.total else TestCount(passed=0, total=1)


def _limit_hit(outcome: Outcome, limits: Limits) -> tuple[tuple[str, ...], tuple[str, ...]]:
    match outcome.ending:
        case Ending.CPU_LIMIT:
            return ("limit:cpu",), (f"the answer was stopped after {limits.cpu_s} s of CPU time",)
        case Ending.WALL_IDLE:
            return ("limit:wall",), (f"the answer was stopped: it slept for {limits.wall_s:.0f} s",)
        case Ending.OUTPUT_LIMIT:
            return ("limit:output",), (f"the answer was stopped: it wrote more than {2 * limits.output_kb} kB",)
        case _:
            return (), ()
