"""Gates: the worse end of an interval decides, nothing missing passes, several p-values are
corrected together."""

from __future__ import annotations

import gc
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradus.errors import Misuse
from tests.conftest import Cli
from trainer.evaluate.intervals import adjust_p_values
from trainer.pipeline.gates import Gate, GateVerdict, judge
from trainer.pipeline.metrics import Figure, NoFigure, read_figure, resolve_path

LM_EVAL = Path(__file__).parents[1] / "cases" / "lm_eval"
"""What lm-eval 0.4.13 left for two untrained models, but for what it says of the machine."""
RATE = {"value": 0.5, "low": 0.4, "high": 0.6, "confidence": 0.95, "method": "wilson"}


@pytest.fixture(scope="module", autouse=True)
def little_garbage() -> Iterator[None]:
    """statsmodels 0.14 collects garbage in each call of `multipletests`: 0.2 s with all that tests
    have imported."""
    adjust_p_values([0.5])
    gc.freeze()
    yield
    gc.unfreeze()


def written(tmp_path: Path, value: Any, name: str = "results.json") -> str:
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def judged(*gates: dict[str, Any], significance: float = 0.05) -> list[GateVerdict]:
    return judge([Gate.model_validate({"name": "it", **gate}) for gate in gates], significance)


# ---------------------------------------------------------------------- thresholds


@pytest.mark.parametrize(
    ("threshold", "passed"),
    [
        ({"at_least": 0.4}, True),
        ({"at_least": 0.41}, False),
        ({"at_least": 0.5}, False),
        ({"at_least": 0.5, "bound": "value"}, True),
        ({"at_most": 0.6}, True),
        ({"at_most": 0.59}, False),
        ({"at_most": 0.5, "bound": "value"}, True),
    ],
)
def test_the_worse_end_of_the_interval_is_held_against_a_threshold(
    tmp_path: Path, threshold: dict[str, Any], passed: bool
) -> None:
    (found,) = judged({"of": written(tmp_path, {"rate": RATE}), "metric": "rate", **threshold})
    assert found.passed is passed, found.why


def test_a_baseline_is_taken_off_first(tmp_path: Path) -> None:
    of, against = (
        written(tmp_path, {"rate": RATE}),
        written(tmp_path, {"rate": RATE | {"value": 0.45}}, "before.json"),
    )
    for margin, passed in ((0.0, False), (-0.05, True), (-0.04, False)):
        (found,) = judged({"of": of, "metric": "rate", "against": against, "at_least": margin})
        assert found.passed is passed
        assert found.baseline == 0.45


def test_a_baseline_of_other_questions_fails_its_gate(tmp_path: Path) -> None:
    of = written(tmp_path, {"accuracy": RATE, "data_sha256": "a"})
    for data, passed in (("a", True), ("b", False)):
        against = written(tmp_path, {"accuracy": RATE, "data_sha256": data}, "before.json")
        (found,) = judged({"of": of, "metric": "accuracy", "against": against, "at_least": -0.2})
        assert found.passed is passed
        assert ("other data" in found.why) is not passed


def lm_eval_results(tmp_path: Path, **changed: Any) -> str:
    """A folder of lm-eval with the shipped results, some of whose fields are `changed`."""
    (shipped,) = (LM_EVAL / "after").rglob("results_*.json")
    folder = tmp_path / "lm_eval" / "model"
    folder.mkdir(parents=True)
    (folder / shipped.name).write_text(json.dumps(json.loads(shipped.read_text()) | changed))
    (folder / "results_2020-01-01T00-00-00.000000.json").write_text("{}")
    return str(folder.parent)


def test_results_of_lm_eval_are_held_by_the_standard_error(tmp_path: Path) -> None:
    """Two of six are right: 0.333 +- 1.96 * 0.211. Of several results the newest count."""
    gate = {"of": lm_eval_results(tmp_path), "metric": "results.own_questions.acc,none"}
    for threshold, passed in (
        ({"at_least": -0.07}, False),
        ({"at_least": -0.09}, True),
        ({"at_most": 0.75}, True),
        ({"at_most": 0.74}, False),
        ({"at_least": 0.33, "bound": "value"}, True),
    ):
        (found,) = judged(gate | threshold)
        assert found.passed is passed, found.why
    (found,) = judged(gate | {"against": str(LM_EVAL / "before"), "at_least": -0.42})
    assert found.passed, found.why
    assert found.baseline == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("changed", "metric", "why"),
    [
        ({"task_hashes": {"own_questions": "0"}}, "results.own_questions.acc,none", "other data"),
        ({"n-shot": {"own_questions": 5}}, "results.own_questions.acc,none", "other data"),
        ({}, "results.mmlu.acc,none", "there is no mmlu"),
        ({}, "results.own_questions.acc_norm,none", "there is no acc_norm,none"),
        (
            {"results": {"own_questions": {"acc,none": 1.0, "acc_stderr,none": "N/A"}}},
            "results.own_questions.acc,none",
            "has no confidence interval",
        ),
    ],
)
def test_results_of_lm_eval_on_other_questions_or_without_the_figure_fail(
    tmp_path: Path, changed: dict[str, Any], metric: str, why: str
) -> None:
    gate = {"of": lm_eval_results(tmp_path, **changed), "against": str(LM_EVAL / "before")}
    (found,) = judged(gate | {"metric": metric, "at_least": -1})
    assert not found.passed
    assert why in found.why


def test_a_figure_without_an_interval_passes_only_where_the_gate_says_so(tmp_path: Path) -> None:
    of = written(tmp_path, {"faulted": 0})
    (bare,) = judged({"of": of, "metric": "faulted", "at_most": 0})
    assert not bare.passed
    assert "has no confidence interval" in bare.why
    (meant,) = judged({"of": of, "metric": "faulted", "at_most": 0, "bound": "value"})
    assert meant.passed


MISSING: dict[str, Any] = {
    "a missing key": {},
    "null": {"rate": None},
    "NaN": '{"rate": NaN}',
    "an infinite number": '{"rate": 1e999}',
    "a text": {"rate": "0.9"},
    "true": {"rate": True},
    "an interval's end that is NaN": '{"rate": {"value": 0.9, "low": NaN, "high": 1}}',
    "a value that is missing": {"rate": {"low": 0.9, "high": 1}},
    "no JSON": "{",
    "a list": [],
    "JSON that is nested too deeply": "[" * 100_000,
}


@pytest.mark.parametrize("content", MISSING.values(), ids=MISSING)
@pytest.mark.parametrize("bound", ["confidence", "value"])
def test_what_is_missing_or_not_finite_fails_its_gate_by_name(
    tmp_path: Path, content: Any, bound: str
) -> None:
    of = written(tmp_path, content)
    (found,) = judged(
        {"name": "tests", "of": of, "metric": "rate", "at_least": -1e9, "bound": bound}
    )
    assert (found.name, found.passed) == ("tests", False)
    assert found.why


@pytest.mark.parametrize("content", MISSING.values(), ids=MISSING)
def test_a_baseline_that_is_missing_fails_too(tmp_path: Path, content: Any) -> None:
    of, against = written(tmp_path, {"rate": RATE}), written(tmp_path, content, "before.json")
    (found,) = judged({"of": of, "metric": "rate", "against": against, "at_least": -1e9})
    assert not found.passed


def test_a_file_that_is_not_there_fails_its_gate(tmp_path: Path) -> None:
    (found,) = judged({"of": str(tmp_path / "no.json"), "metric": "rate", "at_least": 0})
    assert not found.passed
    assert "no.json cannot be read" in found.why


# ----------------------------------------------------------------------------------------- metrics


def test_paths_lead_through_lists_by_a_key_or_a_number(tmp_path: Path) -> None:
    tree = {
        "measurements": [
            {"mode": "sampled", "pass_at": {"1": 0.5}},
            {"mode": "a.b", "pass_at": {"1": 0.25}},
        ]
    }
    assert resolve_path(tree, "measurements[mode=sampled].pass_at.1") == 0.5
    assert resolve_path(tree, "measurements[mode=a.b].pass_at.1") == 0.25
    for path in (
        "",
        ".",
        "measurements[mode=greedy].x",
        "measurements[0]",
        "measurements[mode=",
        "a..b",
        "[0]x",
    ):
        with pytest.raises(NoFigure):
            resolve_path(tree, path)


def test_one_of_a_list_must_be_the_only_one() -> None:
    with pytest.raises(NoFigure, match="there is no"):
        resolve_path({"m": [{"mode": "x", "v": 1}, {"mode": "x", "v": 2}]}, "m[mode=x].v")


@pytest.mark.parametrize(
    ("take", "value"), [("last", 2.0), ("max", 3.0), ("min", 1.0), ("mean", 2.0)]
)
def test_a_run_s_metrics_are_read_over_all_lines_that_have_them(
    tmp_path: Path, take: Any, value: float
) -> None:
    lines = [{"loss": 1.0}, {"other": 7}, {"loss": 3.0}, {"loss": 2.0}]
    file = written(
        tmp_path, "".join(json.dumps(line) + "\n" for line in lines) + '{"loss": 9', "metrics.jsonl"
    )
    assert read_figure(Path(file), "loss", take=take) == Figure(value)


@pytest.mark.parametrize("value", ["NaN", "null", "Infinity"])
def test_one_line_that_is_not_finite_spoils_a_run_s_metric(tmp_path: Path, value: str) -> None:
    file = written(tmp_path, f'{{"loss": {value}}}\n{{"loss": 1.0}}\n', "metrics.jsonl")
    with pytest.raises(NoFigure):
        read_figure(Path(file), "loss")


# ---------------------------------------------------------------------------------------- p-values


def stepwise(p_values: list[float], level: float) -> list[bool]:
    """Holm's procedure as he wrote it: step down from the smallest, stop at the first that does not
    count."""
    counts = [False] * len(p_values)
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda one: p_values[one])):
        if p_values[place] > level / (len(p_values) - rank):
            break
        counts[place] = True
    return counts


@given(
    st.lists(st.integers(0, 1000).map(lambda n: n / 1000), max_size=8),
    st.sampled_from([0.01, 0.05, 0.1]),
)
def test_adjusted_p_values_decide_as_the_stepwise_procedure_does(
    p_values: list[float], level: float
) -> None:
    by_steps = stepwise(p_values, level)
    for p, adjusted, counts in zip(p_values, adjust_p_values(p_values), by_steps, strict=True):
        if abs(adjusted - level) > 1e-12:
            assert (adjusted <= level) is counts
        assert p <= adjusted <= 1


def test_holm_against_figures_worked_out_by_hand() -> None:
    assert adjust_p_values([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_p_values([]) == []
    assert adjust_p_values([0.2]) == [0.2]
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError):
            adjust_p_values([0.5, bad])


def test_holm_keeps_the_chance_of_any_false_alarm_at_the_level() -> None:
    draw = random.Random(3)
    values = [draw.random() for _ in range(5000)]
    runs = [values[start : start + 5] for start in range(0, 5000, 5)]
    corrected = sum(min(adjust_p_values(run)) <= 0.05 for run in runs) / len(runs)
    plain = sum(min(run) <= 0.05 for run in runs) / len(runs)
    assert corrected < 0.06
    assert plain > 0.2


def comparison(change: float, p_value: Any) -> dict[str, Any]:
    return {"change": {"value": change, "low": change - 1, "high": change + 1}, "p": p_value}


def test_several_p_values_are_corrected_together_and_one_alone_is_not(tmp_path: Path) -> None:
    files = [written(tmp_path, comparison(0.1, p), f"{p}.json") for p in (0.03, 0.04)]
    gates = [{"name": file, "of": file, "metric": "change", "p_value": "p"} for file in files]
    assert [found.passed for found in judged(gates[0])] == [True]
    assert [found.passed for found in judged(*gates)] == [False, False]
    assert [found.p_adjusted for found in judged(*gates)] == [0.06, 0.06]


def test_a_p_value_that_is_missing_makes_the_others_no_easier(tmp_path: Path) -> None:
    there, gone = (
        written(tmp_path, comparison(0.1, 0.03)),
        written(tmp_path, comparison(0.1, None), "gone.json"),
    )
    gates = [
        {"name": file, "of": file, "metric": "change", "p_value": "p"} for file in (there, gone)
    ]
    assert [found.passed for found in judged(*gates)] == [False, False]


def test_a_significant_change_for_the_worse_is_refused(tmp_path: Path) -> None:
    of = written(tmp_path, comparison(-0.1, 0.001))
    gate = {"of": of, "metric": "change", "p_value": "p"}
    assert not judged(gate)[0].passed


@pytest.mark.parametrize("p_value", [-0.1, 1.1, None, "0.01", True])
def test_what_is_no_p_value_fails(tmp_path: Path, p_value: Any) -> None:
    (found,) = judged(
        {"of": written(tmp_path, comparison(0.1, p_value)), "metric": "change", "p_value": "p"}
    )
    assert not found.passed


# ---------------------------------------------------------------------- the command


def gates_file(tmp_path: Path, **changes: Any) -> Path:
    model = tmp_path / "model"
    model.mkdir(exist_ok=True)
    (model / "weights").write_bytes(b"1")
    of = written(
        tmp_path, {"rate": RATE, "model": str(model), "graders": ["ocaml@1"], "tasks_sha256": "ab"}
    )
    gate = {"name": "rate", "of": of, "metric": "rate", "at_least": 0.3}
    path = tmp_path / "gates.yaml"
    path.write_text(json.dumps({"model": str(model), "gates": [gate]} | changes))
    return path


def test_a_model_that_passes_is_promoted_with_a_record_of_what_that_rests_on(
    gradus: Cli, tmp_path: Path
) -> None:
    ended = gradus("gate", gates_file(tmp_path))
    assert ended.status == 0
    record = json.loads(Path(ended.out.splitlines()[-1]).read_text())
    assert record["promoted"] is True
    assert set(record["model"]["files"]) == {"weights"}
    (evidence,) = record["evidence"]
    assert (evidence["tasks_sha256"], evidence["graders"]) == ("ab", ["ocaml@1"])
    assert len(evidence["sha256"]) == 64
    assert record["versions"]["gradus"]
    assert [gate["name"] for gate in record["gates"]][0] == "rate"


def test_a_refusal_has_status_1_and_says_why(gradus: Cli, tmp_path: Path) -> None:
    of = written(tmp_path, {"rate": RATE}, "other.json")
    ended = gradus(
        "gate",
        gates_file(
            tmp_path, gates=[{"name": "rate", "of": of, "metric": "rate", "at_least": 0.45}]
        ),
    )
    assert ended.status == 1
    assert "refused: rate (lower end 0.4)" in ended.out
    assert json.loads((tmp_path / "promotion.json").read_text())["promoted"] is False


def test_a_soft_gate_warns_and_promotes(gradus: Cli, tmp_path: Path) -> None:
    of = written(tmp_path, {"rate": RATE}, "other.json")
    gate = {"name": "rate", "of": of, "metric": "rate", "at_least": 0.45, "soft": True}
    ended = gradus("gate", gates_file(tmp_path, gates=[gate]))
    assert ended.status == 0
    assert "warning" in ended.out


def test_figures_of_two_revisions_of_a_grader_are_refused(gradus: Cli, tmp_path: Path) -> None:
    files = [
        written(tmp_path, {"rate": RATE, "graders": [revision]}, f"{revision}.json")
        for revision in ("ocaml@1", "ocaml@2", "rust@1")
    ]
    gates = [{"name": file, "of": file, "metric": "rate", "at_least": 0} for file in files]
    ended = gradus("gate", gates_file(tmp_path, gates=gates))
    assert ended.status == 1
    assert "one revision of each grader (figures come from ocaml@1, ocaml@2)" in ended.out


GATE = {"name": "rate", "of": "x.json", "metric": "rate", "at_least": 0.3}
MISUSE: dict[str, dict[str, Any]] = {
    "no gates": {"gates": []},
    "an unknown key": {"gates": [GATE | {"atleast": 1}]},
    "two gates of one name": {"gates": [GATE, GATE]},
    "no threshold": {"gates": [{"name": "rate", "of": "x.json", "metric": "rate"}]},
    "two thresholds": {"gates": [GATE | {"at_most": 1}]},
    "a threshold and a p-value": {"gates": [GATE | {"p_value": "p"}]},
    "a significance of nothing": {"gates": [GATE], "significance": 0},
    "a model that is not there": {"gates": [GATE], "model": "nowhere/at/all"},
}


@pytest.mark.parametrize("changes", MISUSE.values(), ids=MISUSE)
def test_a_gates_file_that_makes_no_sense_is_misuse(
    gradus: Cli, tmp_path: Path, changes: dict[str, Any]
) -> None:
    ended = gradus("gate", gates_file(tmp_path, **changes))
    assert ended.status == 2
    assert "gates.yaml" in ended.err
    assert not (tmp_path / "promotion.json").exists()


def test_a_threshold_that_is_not_finite_is_misuse(gradus: Cli, tmp_path: Path) -> None:
    for text in (".nan", ".inf"):
        path = tmp_path / "gates.yaml"
        path.write_text(f"gates: [{{name: a, of: x.json, metric: rate, at_least: {text}}}]")
        assert gradus("gate", path).status == 2


def test_every_order_of_gates_gives_the_same_verdicts(tmp_path: Path) -> None:
    files = [written(tmp_path, comparison(0.1, p), f"{p}.json") for p in (0.01, 0.02, 0.04)]
    gates = [{"name": file, "of": file, "metric": "change", "p_value": "p"} for file in files]
    expected = {found.name: found.passed for found in judged(*gates)}
    for some in itertools.permutations(gates):
        assert {found.name: found.passed for found in judged(*some)} == expected


def test_a_missing_gates_file_is_misuse() -> None:
    from trainer.config.files import read_section
    from trainer.pipeline.gate_command import GatesFile

    with pytest.raises(Misuse, match="there is no such file"):
        read_section(GatesFile, Path("no/such/file.yaml"))
