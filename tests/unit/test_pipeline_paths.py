"""A gate whose metric nobody writes is found before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradus.resources import configs
from services.graders.rust.grader import RustGrader
from tests.conftest import Cli
from trainer.pipeline.paths import mistakes_in
from trainer.pipeline.plan import load_pipeline
from trainer.pipeline.stages import CompareStage, EvalStage, GateStage, Stage, TrainStage

SAMPLED = "measurements[mode=sampled]"


def stages(**options: Any) -> dict[str, Stage]:
    given: dict[str, Any] = {"kind": "eval", "model": "m"}
    return {
        "rust": EvalStage(
            **given, tasks="t.jsonl", grader="rust", options={"turns": 3, "samples": 8, **options}
        ),
        "plain": EvalStage(**given, tasks="t.jsonl", grader="ocaml"),
        "calls": EvalStage(**given, calls="t.jsonl"),
        "declines": EvalStage(**given, declines="t.jsonl"),
        "text": EvalStage(**given, perplexity="t.txt"),
        "change": CompareStage(kind="compare", before="a", after="b"),
        "grpo": TrainStage(kind="train", config="c.yaml"),
    }


def mistakes(of: str, metric: str, **more: Any) -> list[str]:
    gate = {
        "name": "g",
        "of": f"{{{of}}}",
        "metric": metric,
        **({"at_least": 0.5} if "p_value" not in more else {}),
    }
    return list(mistakes_in(GateStage(kind="gate", gates=[gate | more]), stages()))


@pytest.mark.parametrize(
    ("of", "metric", "more"),
    [
        ("rust.results", f"{SAMPLED}.pass_at.8", {}),
        ("rust.results", f"{SAMPLED}.details.rates.clippy", {}),
        ("rust.results", f"{SAMPLED}.turns.green_by.3", {}),
        ("rust.results", f"{SAMPLED}.turns.median_turns", {"bound": "value"}),
        ("rust.results", f"{SAMPLED}.details.invented.answers", {}),
        ("rust.results", f"{SAMPLED}.details.sizes.answer_lines.p50", {"bound": "value"}),
        ("rust.results", f"{SAMPLED}.mean_reward", {"against": "{plain.results}"}),
        ("rust.results", f"{SAMPLED}.faulted", {"bound": "value"}),
        ("rust.results", f"{SAMPLED}.details.groups.kind.lists.rate", {}),
        ("rust.results", "measurements[0].pass_at.1", {}),
        ("calls.results", "format", {}),
        ("calls.results", "selection_by.check", {}),
        ("declines.results", "accuracy", {}),
        ("text.results", "perplexity", {}),
        ("change.results", "pass_rate.change", {"p_value": "test.p_value"}),
        ("grpo.metrics", "anything/at/all", {}),
    ],
)
def test_what_a_stage_writes_is_accepted(of: str, metric: str, more: dict[str, Any]) -> None:
    assert mistakes(of, metric, **more) == []


@pytest.mark.parametrize(
    ("of", "metric", "more", "why"),
    [
        ("rust.results", f"{SAMPLED}.pass_at_1", {}, "there is no pass_at_1"),
        ("rust.results", f"{SAMPLED}.pass_at.x", {}, "x is no number"),
        ("rust.results", f"{SAMPLED}.pass_at.16", {}, "there are 8 samples"),
        ("rust.results", f"{SAMPLED}.pass_at", {}, "no number stands there"),
        ("rust.results", "measurements[way=sampled].pass_at.1", {}, "there is no [way=sampled]"),
        ("rust.results", "measurements.pass_at.1", {}, "there is no pass_at"),
        ("rust.results", "measurements[", {}, "is no path"),
        ("rust.results", "model", {"bound": "value"}, "no number stands there"),
        ("rust.results", f"{SAMPLED}.details.rates.types", {}, "has no rate types"),
        ("rust.results", f"{SAMPLED}.turns.green_by.4", {}, "asked for 3 times"),
        ("plain.results", f"{SAMPLED}.turns.green_by.1", {}, "asked for once"),
        ("rust.results", f"{SAMPLED}.turns.median_turns", {}, "has no interval"),
        (
            "rust.results",
            f"{SAMPLED}.pass_at.2",
            {"against": "{plain.results}"},
            "there are 1 samples",
        ),
        ("calls.results", f"{SAMPLED}.pass_at.1", {}, "there is no measurements"),
        ("calls.results", "tool_call_format_accuracy", {}, "there is no tool_call_format_accuracy"),
        ("declines.results", "neither", {}, "has no interval"),
        ("change.results", "pass_rate.change", {"p_value": "test.p"}, "there is no p"),
    ],
)
def test_what_no_stage_writes_is_told_with_the_reason(
    of: str, metric: str, more: dict[str, Any], why: str
) -> None:
    (mistake,) = mistakes(of, metric, **more)
    assert mistake.startswith("g: ")
    assert why in mistake


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (configs() / "pipelines").glob("*.yaml"))
)
def test_the_presets_gates_ask_for_what_is_written(name: str) -> None:
    pipeline = load_pipeline(configs() / "pipelines" / name)
    for stage in pipeline.stages.values():
        if isinstance(stage, GateStage):
            assert list(mistakes_in(stage, pipeline.stages)) == []


@pytest.mark.training
def test_a_dry_run_refuses_a_metric_that_nobody_writes_and_tasks_that_need_what_the_grader_lacks(
    gradus: Cli, tmp_path: Path, rust_grader: RustGrader
) -> None:
    text = (
        (configs() / "pipelines" / "rust.yaml")
        .read_text()
        .replace("turns.green_by.3", "turns.green_by.9")
    )
    text = text.replace("tasks/rust.jsonl", "tasks/rust_crates.jsonl")
    beside = configs() / "pipelines"
    file = tmp_path / "wrong.yaml"
    file.write_text(text.replace("../", f"{beside.parent}/"))
    ended = gradus("pipeline", "run", file, "--dry-run", "--set", f"folder={tmp_path / 'out'}")
    assert ended.status == 2
    assert "stages.production: iterations" in ended.err
    assert "answers are asked for 5 times" in ended.err
    for name in ("itertools", "serde_json", "regex"):
        assert (
            f" needs {name}: the task needs the crates {name}, and this worker has none"
            in ended.err
        )
    assert ended.out == ""
