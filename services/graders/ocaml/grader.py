"""The OCaml grader: extract the answer, have it judged the warm or the cold way, and make a verdict
of the facts.

Both ways come to the same verdict: the warm one is cheaper, the cold one serves every task. Neither
believes anything that the answer's process says without the run's secret.
"""

from __future__ import annotations

import re
from pathlib import Path

from gradus.contract import Diagnostic, Stage, TaskSubmission
from gradus.errors import Fault, InternalFault
from gradus.extract import extract
from gradus.tasks.ocaml import OcamlTask
from services.graders.base.code import CodeFacts, with_form
from services.graders.base.config_loader import read_settings
from services.graders.base.grader import BaseGrader
from services.graders.ocaml.attempt import GradingAttempt, is_warm_eligible
from services.graders.ocaml.cold_path import ColdPath
from services.graders.ocaml.config import OcamlConfig
from services.graders.ocaml.rubric import RUBRICS
from services.graders.ocaml.syntax import SYNTAX, find_needed_names
from services.graders.ocaml.toolchain import OcamlToolchain
from services.graders.ocaml.values import value_text
from services.graders.ocaml.warm_path import NeedsColdPath, WarmPath
from services.sandbox import Sandbox
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.escape_probe import refuse_unless_safe
from services.sandbox.memory_budget import BoxMemory

COMMENT = re.compile(
    r"\(\*.*?(?:\*\)|\Z)", re.DOTALL
)  # to the end when unclosed: looked for once, not from every "(*"
_TAKEN = frozenset({"Stdlib", "Dynlink", "OUnit2"})
_TAKEN_BEGINNINGS = ("Stdlib__", "Camlinternal", "CamlinternaL", "Gradus_")
"""Modules that no answer may name (front/forbidden.ml), beside those hidden from it: one of its own
that was called so could not be told apart."""

_STANDING_MB = 80
"""Compile server 19 MB, runner 10 MB, and the compiler's child that stays for the next answer: its
minor heap of 8 MB and 32 MB at most beyond its parent's (front/confine.ml)."""

_VALIDATION_SLOT = -1
"""Slot whose boxes no worker uses."""

_NO_CODE = CodeFacts(
    Stage.EXTRACT,
    diagnostics=(Diagnostic(stage=Stage.EXTRACT, message="there is no code in the completion"),),
)


def compute_box_memory(config: OcamlConfig, reserved_mb: int = 0) -> BoxMemory:
    """Return what one slot's boxes need. `reserved_mb`: see `OcamlToolchain`."""
    limits = config.compile, config.cold_compile, config.run
    return BoxMemory(_STANDING_MB, max(box.memory_mb for box in limits) + reserved_mb)


class OcamlGrader(BaseGrader[OcamlTask, CodeFacts]):
    name = "ocaml"
    task = OcamlTask
    shipped = RUBRICS
    without_effect = frozenset({"brief_cpu_ms"})
    value_text = staticmethod(value_text)

    def __init__(self, config: Path | None = None, sandbox: Sandbox | None = None) -> None:
        self.config = read_settings(OcamlConfig, self.name, config)
        self.sandbox = sandbox or Bubblewrap()
        self.toolchain = OcamlToolchain()
        self._taken = _TAKEN | self.toolchain.hidden
        self.cold = ColdPath(self.sandbox, self.toolchain, self.config)
        self.warm = WarmPath(self.sandbox, self.toolchain, self.config)
        version = f"ocaml {self.toolchain.version}"
        self.identify(
            self.config, config, toolchain=version, sandbox=self.sandbox.name, versions=(version,)
        )

    def get_box_memory(self) -> BoxMemory:
        return compute_box_memory(self.config, self.toolchain.reserved_mb)

    def self_test(self) -> None:
        refuse_unless_safe(self.sandbox)
        super().self_test()

    def facts(
        self, submission: TaskSubmission[OcamlTask], slot: int = 0, rubric: str = ""
    ) -> tuple[CodeFacts, float]:
        task = submission.task
        for name in (task.module, *(file.partition(".")[0] for file in task.files)):
            module = name[:1].upper() + name[1:]
            if module in self._taken or module.startswith(_TAKEN_BEGINNINGS):
                message = f"answers may not name {module}, so no module of it can be called so"
                raise InternalFault(f"this task cannot be judged: {message}", retryable=False)
        answer = extract(
            submission.completion, task.FENCES, SYNTAX, lambda: find_needed_names(task)
        )
        uncommented = COMMENT.sub("", answer.text)
        attempt = GradingAttempt(task, answer.text, slot)
        facts = self.collect_facts(attempt) if uncommented.strip() else _NO_CODE
        return with_form(facts, answer, uncommented), attempt.cpu_s

    def find_task_warnings(self, task: OcamlTask, solution: str) -> tuple[str, ...]:
        """Return what the author should know of the tests, which the solution has to type with."""
        attempt = GradingAttempt(task, solution, _VALIDATION_SLOT)
        try:
            self.collect_facts(attempt)
        except Fault:  # the verdict on the solution told it
            return ()
        return attempt.warnings

    def collect_facts(self, attempt: GradingAttempt) -> CodeFacts:
        if is_warm_eligible(attempt.task):
            try:
                return self.warm.facts(attempt)
            except NeedsColdPath:
                pass
        return self.cold.facts(attempt)
