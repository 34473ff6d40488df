"""inspect_ai: a scorer for which a fault is an unscored sample.

    Task(dataset=..., solver=generate(), scorer=gradus("ocaml"))

A sample's `metadata["task"]`, else its target, is the task: JSON text, an object, or the id of a
row of the files in `GRADUS_TASKS`. inspect_ai counts a fault in `unscored_samples` and leaves it
out of the metrics.
"""

from __future__ import annotations

from typing import Any

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from gradus.contract import Graded
from gradus.feedback import render_verdict
from gradus.integrations.core import Completion, grade, settings


@scorer(metrics={"reward": [mean(), stderr()], "passed": [mean(), stderr()]})  # type: ignore[untyped-decorator]
def gradus(grader: str | None = None, **options: Any) -> Scorer:
    """The scorer. `options` are those of `core.settings`."""
    chosen = settings(grader, **options)

    async def score(state: TaskState, target: Target) -> Score:
        text = state.output.completion
        completion = Completion(state.metadata.get("task") or target.text, text, state.input_text)
        [result] = await grade([completion], chosen)
        if not isinstance(result, Graded):
            return Score.unscored(
                reason="scoring_failed", explanation=result.fault.message, answer=text
            )
        return Score(
            value={"reward": result.reward, "passed": float(result.passed)},
            answer=text,
            explanation=render_verdict(result),
            metadata={
                "stage": result.stage.value,
                "flags": list(result.flags),
                "grader": result.grader,
            },
        )

    return score
