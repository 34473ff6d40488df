"""The OCaml grader: extract the answer, have it judged the warm or the cold way, and make a verdict of the facts.

Both ways come to the same verdict: the warm one is cheaper, the cold one serves every task. Neither believes anything
that the answer's process says without the run's secret.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import replace
from pathlib import Path

from gradus.contract import Diagnostic, Graded, GraderInfo, GraderName, OcamlSubmission, OcamlTask, Stage, Submission
from gradus.errors import InternalFault
from services.degenerate import degenerate_flags, is_stub
from services.extract import Answer, extract
from services.facts import Facts
from services.graders.cases import prove_cases
from services.graders.ocaml.cold import ColdWay
from services.graders.ocaml.config import load_config
from services.graders.ocaml.toolchain import OcamlToolchain, source_hash
from services.graders.ocaml.trial import Trial, fits
from services.graders.ocaml.warm import NeedsCold, WarmWay
from services.graders.verdict import offered_rubrics, verdict
from services.sandbox import Sandbox
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.probe import refuse_unless_safe

TAGS = frozenset({"ocaml", "ml"})
COMMENT = re.compile(r"\(\*.*?(?:\*\)|\Z)", re.DOTALL)  # to the end when unclosed: looked for once, not from every "(*"
_VALUE = re.compile(r"^[ \t]*+val\s++(?:\(\s*(\S+)\s*\)|([a-z_][\w']*))", re.MULTILINE)


_TAKEN = frozenset({"Stdlib", "Dynlink", "OUnit2"})
_TAKEN_BEGINNINGS = ("Stdlib__", "Camlinternal", "CamlinternaL", "Gradus_")
"""Modules that no answer may name (front/forbidden.ml), beside those hidden from it: one of its own that was called so
could not be told apart."""

_NO_CODE = Facts(
    Stage.EXTRACT, diagnostics=(Diagnostic(stage=Stage.EXTRACT, message="there is no code in the completion"),)
)


class OcamlGrader:
    def __init__(self, config: Path | None = None, sandbox: Sandbox | None = None) -> None:
        self.config = load_config(config)
        self.sandbox = sandbox or Bubblewrap()
        self.toolchain = OcamlToolchain()
        self.cold = ColdWay(self.sandbox, self.toolchain, self.config)
        self.warm = WarmWay(self.sandbox, self.toolchain, self.config)
        self._info = GraderInfo(
            name=GraderName.OCAML,
            revision=self._revision(),
            toolchain=f"ocaml {self.toolchain.version}",
            rubrics=offered_rubrics(GraderName.OCAML, self.config.rubric),
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
        _refuse_taken_names(submission.task, _TAKEN | self.toolchain.hidden)
        started = time.monotonic()
        facts, cpu_s = self._facts(submission, slot)
        return verdict(submission, facts, rubric, self._info, cpu_s, started)

    def _facts(self, submission: OcamlSubmission, slot: int) -> tuple[Facts, float]:
        """What was seen of the submission, and the CPU seconds that it used in boxes."""
        answer = extract(submission.completion, TAGS, _definition_of(submission.task.signature))
        trial = Trial(submission.task, answer.text, slot)
        facts = self._judged(trial) if COMMENT.sub("", answer.text).strip() else _NO_CODE
        return _with_form(facts, answer), trial.cpu_s

    def _judged(self, trial: Trial) -> Facts:
        if fits(trial.task):
            try:
                return self.warm.facts(trial)
            except NeedsCold:
                pass
        return self.cold.facts(trial)

    def _revision(self) -> str:
        """Everything that can change a verdict but rubrics, which have versions of their own."""
        services = Path(__file__).parents[2]
        shared = ("extract.py", "degenerate.py", "graders/judge.py", "graders/settings.py", "graders/verdict.py")
        own = [*sorted(Path(__file__).parent.glob("*.py")), *(services / name for name in shared)]
        digest = hashlib.sha256(source_hash().encode())
        for path in own:
            digest.update(path.read_bytes())
        digest.update(f"{self.config.model_dump_json()}|{self.sandbox.name}|{self.toolchain.version}".encode())
        return digest.hexdigest()[:12]


def _refuse_taken_names(task: OcamlTask, taken: frozenset[str]) -> None:
    for name in (task.module, *(file.partition(".")[0] for file in task.files)):
        module = name[:1].upper() + name[1:]
        if module in taken or module.startswith(_TAKEN_BEGINNINGS):
            message = f"this task cannot be judged: answers may not name {module}, so no module of it can be called so"
            raise InternalFault(message, retryable=False)


def _with_form(facts: Facts, answer: Answer) -> Facts:
    """The facts with what the form of the completion adds to them."""
    uncommented = COMMENT.sub("", answer.text)
    flags = (*answer.flags, *degenerate_flags(answer, uncommented=uncommented))
    if not facts.passed and is_stub(answer.text, uncommented=uncommented):
        flags = (*flags, "degenerate:stub")
    return replace(facts, flags=(*flags, *facts.flags), blocks=answer.blocks, trailing_chars=answer.trailing_chars)


def _definition_of(signature: str | None) -> re.Pattern[str] | None:
    names = [left or right for left, right in _VALUE.findall(signature or "")]
    if not names:
        return None
    alternatives = "|".join(re.escape(name) for name in names)
    return re.compile(rf"\b(?:let|and)\s+(?:rec\s+)?(?:\(\s*)?(?:{alternatives})(?![\w'])")
