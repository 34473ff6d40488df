"""Two evaluations made by hand against each other: every figure can be worked out in the head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from report_data import answer_in
from report_runs import RIGHT, STUCK, UNTYPED, WRONG, record_of, verdict

from gradus.contract import Faulted, Graded, Stage
from gradus.descriptions import describe_offline
from gradus.errors import Misuse
from gradus.whole_file import write_text
from trainer.evaluate.comparison import Comparison, compare
from trainer.evaluate.completion_store import write_lines
from trainer.evaluate.plan import Mode
from trainer.evaluate.report import main
from trainer.evaluate.results import Evaluation, compute_measurement, read_evaluation
from trainer.rewards.judge import Record

Results = Mapping[str, Sequence[Graded | Faulted]]
NEARLY = verdict(0.28)
"""As wrong as WRONG, and 0.03 better."""
HARD = ("c", "d")


def made(
    results: Results, mode: Mode = "greedy", **changed: Any
) -> tuple[Evaluation, list[Record]]:
    """An evaluation with these results by task, and its records."""
    records: list[Record] = []
    for task, given in results.items():
        for n, result in enumerate(given):
            one = record_of(
                result,
                mode=mode,
                task_id=task,
                kind="k",
                sample=n,
                prompt="?",
                completion=f"let f x = {changed.get('name', 'n')}",
            )
            records.append({**one, "difficulty": "hard" if task in HARD else "easy"})
    samples = max(len(given) for given in results.values())
    found = Evaluation(
        **{
            "name": "n",
            "created": "2026-01-01T00:00:00+00:00",
            "model": "m",
            "tasks": "t.jsonl",
            "tasks_sha256": "ab" * 32,
            "grader": "ocaml",
            "grader_description": describe_offline("ocaml"),
            "graders": ("ocaml@7",),
            "rubrics": ("ocaml/graduated@1",),
            "toolchains": ("ocaml 4.14.1",),
            "seed": 0,
            "max_new_tokens": 8,
            "duration_s": 1.0,
            "machine": {},
            "measurements": (
                compute_measurement(
                    records,
                    mode=mode,
                    temperature=float(mode == "sampled"),
                    samples=samples,
                    description=describe_offline("ocaml"),
                ),
            ),
            **changed,
        }
    )
    return found, records


def stored(folder: Path, results: Results, **changed: Any) -> Path:
    """The same as a folder of `gradus eval`."""
    found, records = made(results, **{"name": folder.name, **changed})
    write_text(folder / "results.json", found.model_dump_json(by_alias=True))
    write_lines(folder / "completions.jsonl", records)
    return folder


BEFORE: Results = {
    "a": (RIGHT,),
    "b": (WRONG,),
    "c": (UNTYPED,),
    "d": (WRONG,),
    "e": (RIGHT,),
    "f": (STUCK,),
    "g": (UNTYPED,),
    "h": (RIGHT,),
}
AFTER: Results = {
    "a": (RIGHT,),
    "b": (RIGHT,),
    "c": (WRONG,),
    "d": (NEARLY,),
    "e": (UNTYPED,),
    "f": (RIGHT,),
    "g": (RIGHT,),
    "i": (RIGHT,),
}


# ----------------------------------------------------------------------------------------- figures


def test_one_completion_each_gives_exactly_these_figures() -> None:
    found = compare(made(BEFORE)[0], made(AFTER)[0])
    # f was not judged before, h not asked after, i not asked before: a, b, c, d, e and g are left.
    assert (found.tasks, found.only_before, found.only_after) == (6, 1, 2)
    assert found.turns == {
        "improved": 2,
        "regressed": 1,
        "both pass": 1,
        "both fail": 2,
        "unchanged": 0,
    }
    assert (found.pass_rate.before, found.pass_rate.after) == pytest.approx((2 / 6, 3 / 6))
    assert found.pass_rate.change.value == pytest.approx(1 / 6)
    rewards = ((1 + 0.25 + 0 + 0.25 + 1 + 0) / 6, (1 + 1 + 0.25 + 0.28 + 0 + 1) / 6)
    assert (found.reward.before, found.reward.after) == pytest.approx(rewards)
    assert found.reward.change.low < found.reward.change.value < found.reward.change.high
    # McNemar: 2 gained, 1 lost: 2 * (C(3,0) + C(3,1)) / 8 = 1.
    assert (found.test.method, found.test.gained, found.test.lost, found.test.p_value) == (
        "exact McNemar",
        2,
        1,
        1.0,
    )
    assert found.migration == {
        "types": {"types": 0, "tests": 1, "passed": 1},
        "tests": {"types": 0, "tests": 1, "passed": 1},
        "passed": {"types": 1, "tests": 0, "passed": 1},
    }
    assert found.frozen == ("d",)
    assert [change.id for change in found.problems] == ["g", "b", "c", "d", "a", "e"]


def test_many_completions_each_are_compared_by_their_shares() -> None:
    before: Results = {
        "a": (RIGHT, WRONG),
        "b": (WRONG, WRONG),
        "c": (RIGHT, RIGHT),
        "d": (RIGHT, UNTYPED),
    }
    after: Results = {
        "a": (RIGHT, RIGHT),
        "b": (WRONG, UNTYPED),
        "c": (RIGHT, RIGHT),
        "d": (WRONG, RIGHT),
    }
    found = compare(made(before, "sampled")[0], made(after, "sampled")[0])
    assert found.mode == "sampled"
    assert found.pass_rate.change.value == pytest.approx(0.5 / 4)
    assert found.pass_rate.change.method == "bootstrap over problems"
    assert (found.test.method, found.test.p_value, found.test.gained) == (
        "sign flips over tasks",
        1.0,
        None,
    )
    assert {change.id: change.turn for change in found.problems} == {
        "a": "improved",
        "b": "both fail",
        "c": "both pass",
        "d": "unchanged",
    }
    # The middle one of two is the lower: a stopped at tests before, d at types before and at tests
    # after.
    assert {change.id: (change.before.stage, change.after.stage) for change in found.problems} == {
        "a": ("tests", "passed"),
        "b": ("tests", "types"),
        "c": ("passed", "passed"),
        "d": ("types", "tests"),
    }
    assert found.frozen == ()


@pytest.mark.parametrize(
    ("after", "frozen"), [(0.28, True), (0.2999, True), (0.3, False), (0.2, False), (0.25, True)]
)
def test_frozen_is_the_same_stage_and_a_reward_that_moved_by_less_than_a_twentieth(
    after: float, frozen: bool
) -> None:
    found = compare(made({"a": (WRONG,)})[0], made({"a": (verdict(after),)})[0])
    assert (found.frozen == ("a",)) is frozen


def test_another_stage_or_a_pass_is_never_frozen() -> None:
    almost = verdict(0.25, stage=Stage.COMPILE)
    assert compare(made({"a": (WRONG,)})[0], made({"a": (almost,)})[0]).frozen == ()
    assert compare(made({"a": (RIGHT,)})[0], made({"a": (RIGHT,)})[0]).frozen == ()


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"tasks_sha256": "cd" * 32}, "different tasks"),
        ({"graders": ("ocaml@8",)}, "different graders"),
        ({"rubrics": ("ocaml/strict@1",)}, "different rubrics"),
    ],
)
def test_what_was_measured_otherwise_is_refused_unless_it_is_wanted_anyway(
    changed: dict[str, Any], why: str
) -> None:
    before = made(BEFORE)[0]
    after = made(AFTER, **changed)[0]
    with pytest.raises(Misuse, match=why):
        compare(before, after)
    assert any(why in warning for warning in compare(before, after, anyway=True).warnings)


def test_what_may_matter_is_a_warning_and_no_refusal() -> None:
    found = compare(made(BEFORE)[0], made(AFTER, toolchains=("ocaml 5.3.0",), max_new_tokens=9)[0])
    assert found.warnings == ("different toolchains", "a different limit on new tokens")


def test_no_common_task_and_no_common_way_of_sampling_are_refused() -> None:
    with pytest.raises(Misuse, match="no task was judged both times"):
        compare(made({"a": (RIGHT,)})[0], made({"b": (RIGHT,)})[0])
    with pytest.raises(Misuse, match="no task was judged both times"):
        compare(made({"a": (STUCK,)})[0], made({"a": (RIGHT,)})[0])
    with pytest.raises(Misuse, match="way of sampling"):
        compare(made(BEFORE)[0], made(AFTER, "sampled")[0])
    with pytest.raises(Misuse, match="sampled completions"):
        compare(made(BEFORE)[0], made(AFTER)[0], mode="sampled")


# ---------------------------------------------------------------------- the command


def test_folders_and_files_are_compared_and_the_json_is_named_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = stored(tmp_path / "before", BEFORE), stored(tmp_path / "after", AFTER)
    out = tmp_path / "out" / "c.json"
    page = tmp_path / "out" / "c.html"
    assert main(before, after / "results.json", None, page, out, anyway=False) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == str(out)
    assert "2 improved, 1 regressed" in said
    assert Comparison.model_validate_json(out.read_text()).turns["improved"] == 2
    told = answer_in(page, "/api/changes")
    change = told["comparisons"][0]["pass_rate"]["change"]
    assert change["low"] <= 0 <= change["high"]
    sides = [card["sides"] for group in told["groups"] for card in group["cards"]]
    before, after = (list(map(itemgetter("completion"), side)) for side in zip(*sides, strict=True))
    assert ("let f x = before", "let f x = after") in zip(before, after, strict=True)
    assert all("completion" not in one["before"] for one in told["comparisons"][0]["problems"])


def test_evaluations_of_a_training_run_can_be_compared(tmp_path: Path) -> None:
    for name, results in (("before", BEFORE), ("after", AFTER)):
        found, records = made(results, name=name)
        write_text(tmp_path / f"{name}.json", found.model_dump_json(by_alias=True))
        write_lines(tmp_path / f"{name}.completions.jsonl", records)
    out = tmp_path / "c.json"
    assert (
        main(
            tmp_path / "before.json",
            tmp_path / "after.json",
            "greedy",
            None,
            out,
            anyway=False,
        )
        == 0
    )
    changed = {
        change.id: change for change in Comparison.model_validate_json(out.read_text()).problems
    }
    assert changed["b"].after.passed == 1


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "no json", '{"schema": "gradus/evaluation@2"}', '{"measurements": NaN}'],
)
def test_what_is_no_evaluation_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(Misuse, match=r"x\.json: is no evaluation"):
        read_evaluation(tmp_path / "x.json")
    with pytest.raises(Misuse, match=r"results\.json: cannot be read"):
        read_evaluation(tmp_path)


def test_hostile_names_neither_style_nor_steer_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "[/red] \x1b[2J \u202e [bold]"
    results: tuple[Results, Results] = (
        {name: (WRONG,), "b": (WRONG,)},
        {name: (RIGHT,), "b": (WRONG,)},
    )
    paths = [
        stored(tmp_path / side, given, name=name) for side, given in zip("xy", results, strict=True)
    ]
    assert main(paths[0], paths[1], None, None, None, anyway=False) == 0
    printed = capsys.readouterr().out
    assert "[/red]" in printed
    assert not any(character in printed for character in ("\x1b", "\u202e"))
