"""The pieces of the report: words, marks, geometry, choices."""

from __future__ import annotations

import math

import pytest

from trainer.evaluate.report.changes import changed_spans
from trainer.evaluate.report.charts import Area, Curve, Plan, Whisker, drawn, smoothed, stacked, thinned, ticks
from trainer.evaluate.report.comparison import Turn, pairs_of, varied
from trainer.evaluate.report.words import (
    counted,
    duration,
    finite,
    number,
    percent,
    points,
    shortened,
    signed,
    visible,
    whole_percent,
)

# -------------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.426, "42.6%"),
        (0.0, "0.0%"),
        (1.0, "100.0%"),
        (0.99996, "> 99.9%"),
        (0.00001, "< 0.1%"),
        (0.9994, "99.9%"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_percent_never_rounds_to_all_or_nothing(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_differences_are_signed_points() -> None:
    assert [points(value) for value in (0.543, -0.0421, 0.0, -0.0001)] == ["+54.3", "−4.2", "0.0", "0.0"]
    assert signed(0.05, 2) == "+0.05"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0005, "0.0005"),
        (0.53142, "0.531"),
        (17.0, "17"),
        (12400.0, "12,400"),
        (-0.25, "−0.25"),
        (0.0, "0"),
        (1.5e-7, "1.50e−07"),
        (3e9, "3.00e+09"),
        (math.inf, "–"),
        (None, "–"),
    ],
)
def test_numbers_have_three_digits_and_no_tail(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.42, "0.4 s"), (42, "42 s"), (252, "4 min 12 s"), (11100, "3 h 05 min"), (None, "–"), (-1, "–")],
)
def test_durations_are_read_at_a_glance(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_counts_agree_with_their_noun() -> None:
    assert [counted(n, "task") for n in (0, 1, 1000)] == ["0 tasks", "1 task", "1,000 tasks"]


def test_only_finite_numbers_are_numbers() -> None:
    assert [finite(value) for value in (1, 0.5, True, "1", None, math.nan, 10**400)] == [1.0, 0.5, *[None] * 5]


def test_scales_have_round_labels() -> None:
    assert whole_percent(0.4) == "40%"


def test_hidden_characters_are_written_out_and_others_stay() -> None:
    assert visible("a\tb\nc é 漢 🙂") == "a\tb\nc é 漢 🙂"
    assert visible("\r\x00\x7f\u202e\u200d\ufeff\ud800") == "␍␀⟨U+007F⟩⟨U+202E⟩⟨U+200D⟩⟨U+FEFF⟩⟨U+D800⟩"


def test_long_texts_are_cut_by_characters_and_by_lines() -> None:
    assert shortened("abc", chars=2) == ("ab", 1)
    assert shortened("a\nb\nc", lines=2) == ("a\nb", 2)
    assert shortened("abc") == ("abc", 0)


# -------------------------------------------------------------------------------------------------------------- marks


def test_marks_show_the_words_that_differ() -> None:
    left, right = changed_spans("let f x = x - 3", "let f x = x + 3")
    assert [span.text for span in left if span.changed] == ["-"]
    assert [span.text for span in right if span.changed] == ["+"]
    assert "".join(span.text for span in left) == "let f x = x - 3"


def test_texts_with_little_in_common_or_too_long_are_not_marked() -> None:
    for before, after in (("let f x = 1", "The quick brown fox"), ("a " * 2000, "b " * 2000)):
        for spans in changed_spans(before, after):
            assert [span.changed for span in spans] == [False]


def test_an_empty_text_has_one_empty_span_at_most() -> None:
    left, right = changed_spans("", "let f = 1")
    assert "".join(span.text for span in left) == ""
    assert "".join(span.text for span in right) == "let f = 1"


# ----------------------------------------------------------------------------------------------------------- geometry


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 15, [0, 5, 10, 15]),
        (0, 0.6, [0, 0.2, 0.4, 0.6]),
        (-0.5, 1, [-0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_a_curve_is_broken_where_a_value_is_missing() -> None:
    chart = drawn(Plan("t", [Curve("c", "raw", [(0, 0.0), (1, 1.0), (2, None), (3, 1.0), (4, 0.0)])], y_range=(0, 1)))
    assert chart is not None
    assert chart.lines[0].path == "M0.0 1000.0L250.0 0.0M750.0 0.0L1000.0 1000.0"
    assert [tick.text for tick in chart.x_ticks] == ["0", "1", "2", "3", "4"]


def test_nothing_to_draw_is_no_chart() -> None:
    assert drawn(Plan("t", [Curve("c", "raw", [(1, None)])])) is None
    assert drawn(Plan("t")) is None


def test_one_value_everywhere_still_has_a_scale() -> None:
    chart = drawn(Plan("t", [Curve("c", "raw", [(1, 0.0), (2, 0.0)])]))
    assert chart is not None
    assert [tick.text for tick in chart.y_ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_whiskers_are_drawn_and_said() -> None:
    chart = drawn(Plan("t", whiskers=[Whisker(0, 0.5, 0.25, 0.75), Whisker(10, 1, 1, 1)], y_range=(0, 1), show=percent))
    assert chart is not None
    assert chart.lines[0].path == "M0.0 750.0L0.0 250.0"
    assert chart.dots[0].path == "M0.0 500.0h0"
    assert chart.readout[0] == (0.0, "step 0: 50.0%, 95% interval 25.0% to 75.0%")


def test_parts_pile_up_and_what_takes_away_hangs_below() -> None:
    piles = stacked(["a", "b", "c"], [(1.0, {"a": 0.25, "b": -0.5, "c": 0.5})])
    assert piles == [
        ("a", [(1.0, 0.0)], [(1.0, 0.25)]),
        ("b", [(1.0, -0.5)], [(1.0, 0.0)]),
        ("c", [(1.0, 0.25)], [(1.0, 0.75)]),
    ]
    assert [Area(name, "s", low, high).heights()[0][1] for name, low, high in piles] == [0.25, -0.5, 0.5]


def test_a_part_over_one_step_is_a_bar() -> None:
    chart = drawn(Plan("t", areas=[Area("a", "s", [(1, 0.0)], [(1, 1.0)])], y_range=(0, 1)))
    assert chart is not None
    assert chart.areas[0].path == "M485.0 0.0 515.0 0.0 515.0 1000.0 485.0 1000.0Z"


def test_long_series_are_averaged_and_keep_their_end() -> None:
    thin = thinned([(float(n), float(n % 2)) for n in range(1000)], most=10)
    assert len(thin) == 10
    assert thin[-1] == (999.0, 0.5)
    assert thinned([(1.0, None), (2.0, None)], most=1) == [(2.0, None)]


def test_a_running_mean_looks_back_only() -> None:
    assert smoothed([(1, 1.0), (2, 3.0), (3, 5.0)], 2) == [(1, 1.0), (2, 2.0), (3, 4.0)]


# ------------------------------------------------------------------------------------------------------------ choices


def record(task: str, passed: bool, mode: str = "greedy", kind: str = "k", **more: object) -> dict[str, object]:
    return {
        "prompt_id": task,
        "passed": passed,
        "mode": mode,
        "kind": kind,
        "reward": float(passed),
        "fault": None,
        **more,
    }


def test_greedy_completions_are_compared_where_there_are_any() -> None:
    before = [record("a", True, "sampled"), record("a", False), record("b", False)]
    after = [record("b", False), record("a", True)]
    assert [(pair.task_id, pair.turn) for pair in pairs_of(before, after)] == [
        ("a", Turn.LEARNED),
        ("b", Turn.STILL_WRONG),
    ]


def test_a_task_that_was_faulted_once_is_in_no_pair() -> None:
    stuck = record("a", False) | {"reward": None, "fault": {"kind": "worker"}}
    assert pairs_of([stuck], [record("a", True)]) == []


def test_every_kind_is_shown_once_before_any_is_shown_twice() -> None:
    records = [record(f"{kind}{n}", True, kind=kind) for kind in "xyz" for n in range(3)]
    pairs = pairs_of(records, records)
    assert [pair.task_id for pair in varied(pairs, 4)] == ["x0", "y0", "z0", "x1"]
