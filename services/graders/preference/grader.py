"""The preference grader: what a completion is read as, what the reward model says of it, and a
verdict of that.

Runs nothing that a model wrote, so it needs no box. Many slots share one model, for which one
thread batches.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

from gradus.contract import Stage, TaskSubmission
from gradus.errors import InternalFault
from gradus.reward_model.model_files import (
    compute_fingerprint,
    get_model_label,
    resolve_model_folder,
)
from gradus.tasks.preference import PreferenceTask
from services.graders.base import ModelNotConfigured
from services.graders.base.batching import BatchingModel
from services.graders.base.grader import BaseGrader
from services.graders.preference.config import PREFIX, WITHOUT_EFFECT, load_config
from services.graders.preference.rubric import RUBRICS, PreferenceFacts

NO_MODEL = (
    f"no reward model is named: set {PREFIX}MODEL, or `model` in a copy of"
    " configs/graders/preference.yaml, to the final folder of a run of `gradus train reward`"
)
CUT, CONTROL_TOKENS = "preference:cut", "preference:control_tokens"


class PreferenceGrader(BaseGrader[PreferenceTask, PreferenceFacts]):
    name = "preference"
    task = PreferenceTask
    shipped = RUBRICS
    waiting_slots = 64
    without_effect = WITHOUT_EFFECT

    def __init__(self, config: Path | None = None) -> None:
        """Raises ModelNotConfigured without a model, InternalFault without torch, Misuse for an
        unusable one."""
        self.config = load_config(config)
        if self.config.model is None:
            raise ModelNotConfigured(NO_MODEL, retryable=False)
        try:
            from services.graders.preference.backend import open_model
        except ModuleNotFoundError as missing:
            package = (missing.name or "").partition(".")[0]
            message = (
                f"the preference grader needs the package {package}: pip install"
                " 'gradus-rl[preference]'"
            )
            raise InternalFault(message, retryable=False) from None
        self.model, self.precision = open_model(self.config, self.config.model)
        self.scorer = BatchingModel(
            "the reward model",
            self.model.compute_scores,
            max_pass_tokens=self.config.batch_tokens,
            hang_s=self.config.hang_s,
        )
        files = compute_fingerprint(resolve_model_folder(self.config.model))
        self.identify(
            self.config,
            config,
            toolchain=f"{get_model_label(self.config.model)} {files[:12]} in {self.precision}",
            versions=(files, self.precision),
        )

    def self_test(self) -> None:
        from services.graders.preference.self_tests import refuse_unfit

        refuse_unfit(self.model, self.precision)
        super().self_test()

    def facts(
        self, submission: TaskSubmission[PreferenceTask], slot: int = 0, rubric: str = ""
    ) -> tuple[PreferenceFacts, float]:
        cpu_s = time.thread_time()
        chat = []
        for message in submission.task.messages:
            chat.append({"role": message.role, "content": message.content})
        read = self.model.reader.read(chat or submission.prompt, submission.completion)
        [scored] = self.scorer.answers([self.scorer.submit(read.ids)])
        if not math.isfinite(scored.row):
            reason = (
                f"the reward model scores {scored.row}: its weights are broken, or too large for"
                f" {self.precision}"
            )
            raise InternalFault(reason, retryable=False)
        conditions = ((read.was_cut, CUT), (read.spelt_control_tokens, CONTROL_TOKENS))
        flags = tuple(flag for is_so, flag in conditions if is_so)
        facts = PreferenceFacts(
            Stage.SCORE, scored.row, self.config.centre, self.config.scale, flags=flags
        )
        return facts, scored.cpu_s + time.thread_time() - cpu_s
