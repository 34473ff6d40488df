"""The data of reports against runs made by hand: exact figures, hostile texts, missing files; what
stands around it.

What the page makes of them is in tests/e2e/test_report_browser.py.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_data import answer_in, report_data, tasks_by_title
from report_runs import (
    RIGHT,
    STUCK,
    WRONG,
    XSS,
    comparison_page,
    evaluation,
    hostile_run,
    lines,
    rich_run,
    tiny_run,
)
from sample_evaluations import hostile_evaluation, stored

from gradus.contract import Graded
from gradus.errors import Misuse
from services.dashboard.files import ConfinedDirectory
from services.dashboard.run import FollowedRun
from services.dashboard.views import build_detail
from trainer.evaluate.report import write_comparisons, write_report
from trainer.runs.folder import RunFolder

Json = dict[str, Any]


class Parsed(HTMLParser):
    """Elements with attributes, in document order."""

    VOID = frozenset({"meta", "link"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], "an element is never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def written(run: Path) -> Path:
    return write_report(run, run / "report.html")


def told(run: Path) -> Json:
    return answer_in(written(run), "/api/run")


def samples(run: Path) -> Json:
    return answer_in(written(run), "/api/samples")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tiny_run(tmp_path / "tiny")


def test_the_comparison_that_a_run_leaves_at_its_end_is_that_of_its_report(tiny: Path) -> None:
    folder = RunFolder(tiny)
    before, after = (tiny / "eval" / f"{name}.json" for name in ("before", "after"))
    write_comparisons(before, tiny / "eval" / "missing.json", folder.comparison)
    assert not folder.comparison.exists()
    write_comparisons(before, after, folder.comparison)
    run = FollowedRun(ConfinedDirectory(tiny), tiny, "tiny")
    run.read_changes()
    assert build_detail(run, 0.0)["comparisons"] == told(tiny)["comparisons"] != []


# ---------------------------------------------------------------------- exact figures


def test_the_change_is_the_paired_difference_over_tasks(tiny: Path) -> None:
    # Before: 1, 1/2, 0, 0 (of one verdict: the other is a fault). After: 1, 1, 1/2, 1. Changes: 0,
    # 1/2, 1/2, 1. The mean of four draws from the changes is Binomial(8, 1/2) / 8, whose 2.5 % and
    # 97.5 % quantiles are 1/8 and 7/8.
    [found] = told(tiny)["comparisons"]
    rates = found["pass_rate"]
    assert (found["tasks"], rates["before"], rates["after"]) == (4, 0.375, 0.875)
    assert [rates["change"][name] for name in ("value", "low", "high")] == [0.5, 0.125, 0.875]


def test_each_rate_has_its_interval_and_its_basis(tiny: Path) -> None:
    before, after = (one["measurements"][0] for one in told(tiny)["measured"])
    # The sum of four draws from 1, 1/2, 0, 0: P(0) = 1/16 > 2.5 %; P(>= 3.5) = 5/256 < 2.5 % < P(>=
    # 3) = 19/256.
    assert [before["pass_at"]["1"][name] for name in ("value", "low", "high")] == [0.375, 0.0, 0.75]
    assert (before["passed"], before["graded"], before["faulted"], before["tasks"]) == (3, 7, 1, 4)
    assert (after["pass_at"]["1"]["value"], after["passed"], after["graded"], after["faulted"]) == (
        0.875,
        7,
        8,
        0,
    )
    # pass@2 leaves task d out before: it has one verdict.
    assert before["pass_at"]["2"]["value"] == pytest.approx(2 / 3)
    assert after["pass_at"]["2"]["value"] == 1.0


def test_what_the_run_card_needs_is_told(tiny: Path) -> None:
    run = told(tiny)
    assert (run["model"], run["step"], run["max_steps"], run["evaluation_s"]) == (
        "fresh:qwen3",
        3,
        3,
        3.0,
    )
    assert (run["completions"], run["passed"], run["faulted"], run["graders"]) == (
        6,
        2,
        1,
        ["ocaml@7"],
    )
    assert dict(run["settings"])["seed"] == "7"
    assert run["measured"][1]["machine"]["memory_gib"] == 8


def test_the_curves_are_the_metrics_and_the_outcomes_the_completions(tiny: Path) -> None:
    run = told(tiny)
    assert run["metrics"]["values"]["reward"] == [0.25, 0.5, 0.75]
    assert run["outcomes"]["counts"] == {
        "stopped at tests": [1, 0, 1],
        "stopped at types": [1, 0, 0],
        "passed": [0, 1, 1],
        "faulted": [0, 1, 0],
    }


def test_times_are_told_from_the_first_step_on(tmp_path: Path) -> None:
    lines(
        tmp_path / "metrics.jsonl",
        [{"step": n, "reward": 0.5, "time": 1.8e9 + 7.5 * n} for n in (1, 2, 3)],
    )
    assert told(tmp_path)["metrics"]["values"]["time"] == [0.0, 7.5, 15.0]


def test_flags_are_counted_over_verdicts(tiny: Path) -> None:
    run = told(tiny)
    assert run["flags"] == {"degenerate:stub": 1}
    assert [one["measurements"][0]["flags"] for one in run["measured"]] == [{}, {}]


def test_faults_stand_apart_with_their_place_and_message(tiny: Path) -> None:
    message = "the worker that held job '81ab' died after 12 s"
    [training] = told(tiny)["faults"]
    [measured] = samples(tiny)["faults"]
    expected = {"kind": "worker", "message": message, "count": 1}
    assert training == {"where": "training", "first_step": 2, "last_step": 2, **expected}
    assert measured == {
        "where": "evaluation “before”",
        "first_step": None,
        "last_step": None,
        **expected,
    }


def test_completions_of_one_task_stand_side_by_side(tiny: Path) -> None:
    groups = samples(tiny)["groups"]
    # Of c the middle ones do not pass: the lower of (wrong, untyped) and of (right, wrong).
    assert tasks_by_title(groups) == {
        "Wrong before, right after": ["b", "d"],
        "Wrong both times": ["c"],
        "Right both times": ["a"],
    }
    before, after = groups[0]["cards"][1]["sides"]
    assert (before["name"], before["stage"], before["reward"], before["passed"]) == (
        "before",
        "types",
        0,
        False,
    )
    assert before["diagnostics"] == [{"stage": "types", "line": 1, "message": "Error: no"}]
    assert (before["completion"], after["completion"]) == ("let f x = x - 1", "let f x = x + 1")


# ---------------------------------------------------------------------- what it concludes


@pytest.mark.parametrize(
    ("first", "last", "sign"), [(WRONG, RIGHT, 1), (RIGHT, WRONG, -1), (WRONG, WRONG, 0)]
)
def test_the_interval_tells_whether_anything_changed(
    tmp_path: Path, first: Graded, last: Graded, sign: int
) -> None:
    for name, result in (("before", first), ("after", last)):
        evaluation(tmp_path, name, {f"t{n}": (result,) for n in range(20)}, mode="greedy")
    change = told(tmp_path)["comparisons"][0]["pass_rate"]["change"]
    assert (change["low"] > 0) - (change["high"] < 0) == sign


def test_a_lone_evaluation_is_reported_without_a_comparison(tmp_path: Path) -> None:
    evaluation(tmp_path, "eval", {"a": (RIGHT, WRONG), "b": (RIGHT, RIGHT)})
    found = told(tmp_path)
    assert found["comparisons"] == []
    assert [one["measurements"][0]["pass_at"]["1"]["value"] for one in found["measured"]] == [0.75]
    assert not any("eval/" in text for text in found["missing"])
    assert tasks_by_title(samples(tmp_path)["groups"]) == {"Did not pass": ["a"], "Passed": ["b"]}


def test_an_evaluation_with_nothing_but_faults_is_reported(tmp_path: Path) -> None:
    for name in ("before", "after"):
        evaluation(tmp_path, name, {"a": (STUCK, STUCK)})
    found = told(tmp_path)
    assert (found["comparisons"], found["measured"][0]["measurements"][0]["pass_at"]) == ([], {})
    assert [one["count"] for one in samples(tmp_path)["faults"]] == [2, 2]


def test_what_was_compared_stays_in_the_folder_for_the_dashboard(
    tiny: Path, tmp_path: Path
) -> None:
    compared = told(tiny)["comparisons"]
    assert json.loads((tiny / "comparison.json").read_text())["comparisons"] == compared
    evaluation(tiny, "after", {"a": (RIGHT,)}, created="2026-02-02T00:00:00+00:00")
    elsewhere = write_report(tiny, tmp_path / "elsewhere.html")
    assert answer_in(elsewhere, "/api/run")["comparisons"] != compared
    assert json.loads((tiny / "comparison.json").read_text())["comparisons"] == compared, (
        "only beside its report"
    )


# ---------------------------------------------------------------------- what is missing


def test_an_empty_folder_holds_no_run(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="holds no run and no evaluation"):
        written(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["config.resolved.json", "metrics.jsonl", "completions.jsonl"])
@pytest.mark.parametrize(
    "content", [None, "", "not json\n", "[1, 2]\n", "\x00\xff\n", '{"step": "x"}\n{"torn": ']
)
def test_any_file_may_be_missing_or_torn(tiny: Path, name: str, content: str | None) -> None:
    if content is None:
        (tiny / name).unlink()
    else:
        (tiny / name).write_bytes(content.encode("latin-1"))
    found = told(tiny)
    assert any(name in text for text in found["missing"])
    assert found["comparisons"][0]["pass_rate"]["before"] == 0.375


def test_a_torn_evaluation_is_named_and_the_rest_is_reported(tiny: Path) -> None:
    (tiny / "eval" / "before.json").write_text('{"schema": "gradus/evaluation@1"}')
    found = told(tiny)
    assert any("eval/before.json" in text for text in found["missing"])
    assert [one["name"] for one in found["measured"]] == ["after"]


def test_numbers_that_are_none_are_gaps_and_not_zeros(tmp_path: Path) -> None:
    text = (
        '{"step": 1, "reward": 0.5}\n{"step": 2, "reward": NaN, "entropy": Infinity}\n{"step": 3,'
        ' "reward": null}\n'
    )
    (tmp_path / "metrics.jsonl").write_text(
        text + '{"step": 4, "reward": 0.5, "reward_std": 1e999}\n'
    )
    assert told(tmp_path)["metrics"]["values"] == {"reward": [0.5, None, None, 0.5]}
    assert "NaN" not in (tmp_path / "report.html").read_text()


def test_a_record_without_reward_and_fault_is_no_verdict(tmp_path: Path) -> None:
    lines(
        tmp_path / "completions.jsonl", [{"step": 1, "reward": None}, {"step": 1, "reward": "1.0"}]
    )
    found = told(tmp_path)
    assert (found["completions"], found["faulted"]) == (2, 2)
    assert found["faults"][0]["message"] == "it has neither a reward nor a fault"


def test_a_resumed_run_counts_each_step_once(tmp_path: Path) -> None:
    lines(
        tmp_path / "metrics.jsonl",
        [{"step": n, "reward": r} for n, r in ((1, 0.1), (2, 0.2), (1, 0.1), (2, 0.3))],
    )
    assert told(tmp_path)["metrics"]["values"]["reward"] == [0.1, 0.3]


def test_there_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Misuse):
        write_report(tmp_path / "nowhere", tmp_path / "report.html")


# ---------------------------------------------------------------------- hostile texts


def hostile_page(kind: str, folder: Path) -> Path:
    if kind == "report":
        return written(hostile_run(folder / "hostile"))
    found, records = hostile_evaluation()
    of_both = stored(folder / "a", found, records)
    if kind == "evaluation":
        return write_report(of_both, folder / "page.html")
    return comparison_page(of_both, of_both, folder / "page.html")


@pytest.mark.parametrize("kind", ["report", "evaluation", "comparison"])
def test_no_text_of_a_run_becomes_markup(tmp_path: Path, kind: str) -> None:
    page = hostile_page(kind, tmp_path)
    html = page.read_text()
    parsed = Parsed(html)
    assert [one.get("type") for one in parsed.named("script")] == ["application/json", None]
    assert "The MIT License" in html, "the library in it is not ours"
    assert parsed.named("img") == []
    assert all(name in ALLOWED for name, _ in parsed.elements)
    for _, attributes in parsed.elements:
        assert not [name for name in attributes if name.startswith("on")]
    assert XSS not in html
    assert "\\u003cimg src=x onerror=alert(1)\\u003e" in html
    assert XSS in json.dumps(report_data(page)).replace('\\"', '"')


STRUCTURE = "html head meta title style link script body header main h1 p a noscript"
ALLOWED = frozenset(STRUCTURE.split())


def test_only_our_own_script_may_run(tiny: Path) -> None:
    policy = next(
        m["content"] for m in Parsed(written(tiny).read_text()).named("meta") if "http-equiv" in m
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for what in ("script", "style"):
        assert re.search(rf"{what}-src 'sha256-[A-Za-z0-9+/]{{43}}=';", policy)
    assert "unsafe" not in policy


def test_huge_completions_are_cut_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "hostile")
    page = written(run)
    assert (run / "eval" / "after.completions.jsonl").stat().st_size > 600_000
    assert len(page.read_text()) < 250_000
    [side, *_] = answer_in(page, "/api/samples")["groups"][0]["cards"][0]["sides"]
    assert 290_000 < side["left_out"] < 300_000


def test_half_a_surrogate_pair_is_an_escape(tmp_path: Path) -> None:
    (tmp_path / "completions.jsonl").write_text('{"step": 1, "reward": 1, "flags": ["\\ud800"]}\n')
    assert told(tmp_path)["flags"] == {"\ud800": 1}


# ---------------------------------------------------------------------- a page of its own


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    html = written(rich_run(tmp_path / "rich")).read_text()
    # uPlot names its home in a comment.
    assert "http" not in html.replace("https://github.com/leeoniya/uPlot", "").replace(
        "http-equiv", ""
    )
    assert "@import" not in html
    assert "url(" not in html
    for _, attributes in Parsed(html).elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))


def test_a_long_run_makes_a_page_of_bounded_size(tmp_path: Path) -> None:
    many = [
        {"step": n, "reward": n / 20_000, "reward_std": 0.1, "entropy": 1 / n}
        for n in range(1, 20_001)
    ]
    lines(tmp_path / "metrics.jsonl", many)
    assert len(written(tmp_path).read_text()) < 300_000


def test_the_report_is_replaced_as_a_whole(tiny: Path) -> None:
    first = written(tiny).read_text()
    (tiny / "metrics.jsonl").unlink()
    assert written(tiny).read_text() != first
    assert [path.name for path in tiny.glob("report*")] == ["report.html"]
