"""The pipelines that ship with Gradus: every stage's settings hold, and every gate asks for a
figure that there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_runs import record_of, verdict
from sample_evaluations import build_evaluation

from gradus.contract import Stage
from gradus.descriptions import describe_offline
from gradus.resources import configs
from tests.conftest import Cli
from trainer.evaluate.breakdowns import compute_turns
from trainer.evaluate.comparison import compare
from trainer.evaluate.results import Evaluation, compute_measurement
from trainer.pipeline.gates import Gate, judge
from trainer.pipeline.plan import load_pipeline
from trainer.pipeline.stages import CommandStage, EvalStage, GateStage, TrainStage
from trainer.pipeline.stages import Stage as PipelineStage

FOLDER = configs() / "pipelines"
PRESETS = sorted(path.name for path in FOLDER.glob("*.yaml"))
PARTS = {
    "ocaml": {"types": 0.25, "compile": 0.1, "tests": 0.65},
    "rust": {"check": 0.25, "clippy": 0.1, "tests": 0.65},
    "story": {"coverage": 0.65, "format": 0.2, "clauses": 0.1, "count": 0.05},
}
RUN_METRICS = (
    *("entropy", "frac_reward_zero_std", "grad_norm", "completions/clipped_ratio"),
    *("rewards/margins", "eval_rewards/accuracies", "eval_perplexity"),
)
"""Metrics that runs log: GRPO, DPO with rows held out, and pretraining."""


CERTAIN = {"value": 1.0, "low": 1.0, "high": 1.0}


def test_the_presets_are_there() -> None:
    assert {"demo.yaml", "ocaml.yaml", "rust.yaml", "story.yaml"} <= {*PRESETS}


@pytest.mark.training
@pytest.mark.parametrize("name", PRESETS)
def test_a_dry_run_accepts_every_stage(gradus: Cli, name: str, tmp_path: Path) -> None:
    ended = gradus(
        "pipeline", "run", FOLDER / name, "--dry-run", "--set", f"folder={tmp_path / 'out'}"
    )
    assert ended.status == 0, ended.err
    assert ended.err.count("runs\n") == len(load_pipeline(FOLDER / name).stages)
    assert not (tmp_path / "out").exists()


def perfect(grader: str, name: str) -> Evaluation:
    """Eight right answers to each of sixteen tasks."""
    right = verdict(
        1.0, passed=True, grader=f"{grader}@1", components=PARTS[grader], stage=Stage.TESTS
    )
    records = [
        record_of(
            right,
            mode="sampled",
            task_id=f"t{task}",
            kind=None,
            sample=sample,
            prompt="p",
            completion="c",
        )
        | {"finish_reason": "stop"}
        for task in range(16)
        for sample in range(8)
    ]
    turns = compute_turns(records, [], 5)
    measured = compute_measurement(
        records,
        mode="sampled",
        temperature=1.0,
        samples=8,
        turns=turns,
        description=describe_offline(grader),
    )
    return build_evaluation(name, records, grader=grader, measurements=(measured,))


def left_by(stage: PipelineStage, grader: str, folder: Path) -> Path:
    """A file with the figures that a stage of that kind leaves."""
    if isinstance(stage, TrainStage):
        path = folder / "metrics.jsonl"
        path.write_text(json.dumps({name: 1.0 for name in RUN_METRICS}) + "\n")
        return path
    path = folder / "figures.json"
    is_comparison = isinstance(stage, CommandStage) and stage.run[1] == "compare"
    if isinstance(stage, CommandStage) and not is_comparison:
        path.write_text(json.dumps({"format": CERTAIN, "selection": CERTAIN, "accuracy": CERTAIN}))
        return path
    first, last = perfect(grader, "before"), perfect(grader, "after")
    path.write_text(
        (compare(first, last) if is_comparison else last).model_dump_json(by_alias=True)
    )
    return path


@pytest.mark.parametrize("name", PRESETS)
def test_every_gate_asks_for_a_figure_that_its_stage_leaves(name: str, tmp_path: Path) -> None:
    pipeline = load_pipeline(FOLDER / name)
    measured = [stage.grader for stage in pipeline.stages.values() if isinstance(stage, EvalStage)]
    grader = [*measured, *pipeline.graders][0]
    asked = 0
    for stage in pipeline.stages.values():
        for gate in stage.gates if isinstance(stage, GateStage) else ():
            asked += 1
            places = {}
            for key in ("of", "against"):
                text = getattr(gate, key)
                if text is not None:
                    stage_name = text.strip("{}").partition(".")[0]
                    places[key] = str(left_by(pipeline.stages[stage_name], grader, tmp_path))
            (found,) = judge([Gate.model_validate(gate.model_dump() | places)], 0.05)
            assert found.value is not None, f"{gate.name}: {found.why}"
    assert asked


@pytest.mark.parametrize("name", PRESETS)
def test_a_model_is_promoted_only_past_gates_on_confidence_bounds(name: str) -> None:
    promoting = [
        s
        for s in load_pipeline(FOLDER / name).stages.values()
        if isinstance(s, GateStage) and s.model
    ]
    assert promoting
    for stage in promoting:
        assert any(gate.bound == "confidence" and not gate.soft for gate in stage.gates)
