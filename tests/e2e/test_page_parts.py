"""The pieces of the page: words, marks, geometry. Its modules run in a real browser, without a page
around them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from browser import NEEDS_BROWSER

from services.dashboard.document import joined
from services.dashboard.samples import cut, varied
from services.dashboard.series import finite

pytestmark = NEEDS_BROWSER
MODULES = ("words", "dom", "store", "series", "chart", "samples")


def value_of(browser: Any, expression: str, *given: Any) -> Any:
    """What JavaScript makes of `given`, with the names of the page's modules; a sequence is
    `given[0]`, and so on."""
    browser.get("about:blank")
    return browser.execute_script(
        f"{joined(MODULES)}\nconst given = {json.dumps(given)};\nreturn {expression};"
    )


# ------------------------------------------------------------------------------------------- words


def test_percent_never_rounds_to_all_or_nothing(browser: Any) -> None:
    texts = {
        0.426: "42.6%",
        0.0: "0.0%",
        1.0: "100.0%",
        0.99996: "> 99.9%",
        0.00001: "< 0.1%",
        0.9994: "99.9%",
        None: "–",
    }
    assert value_of(browser, "given[0].map(percent)", list(texts)) == list(texts.values())
    assert value_of(browser, "percent(NaN)") == "–"


def test_differences_are_signed_points(browser: Any) -> None:
    assert value_of(browser, "given.map(points)", 0.543, -0.0421, 0.0, -0.0001) == [
        "+54.3",
        "−4.2",
        "0.0",
        "0.0",
    ]
    assert value_of(browser, "signed(0.05, 2)") == "+0.05"


def test_numbers_have_three_digits_and_no_tail(browser: Any) -> None:
    texts = {
        0.0005: "0.0005",
        0.53142: "0.531",
        17.0: "17",
        12400.0: "12,400",
        -0.25: "−0.25",
        0.0: "0",
        1.5e-7: "1.50e−7",
        3e9: "3.00e+9",
        None: "–",
    }
    assert value_of(browser, "given[0].map((one) => number(one))", list(texts)) == list(
        texts.values()
    )
    assert value_of(browser, "number(Infinity)") == "–"


def test_durations_are_read_at_a_glance(browser: Any) -> None:
    texts = {0.42: "0.42 s", 42: "42 s", 252: "4 min 12 s", 11100: "3 h 05 min", None: "–", -1: "–"}
    assert value_of(browser, "given[0].map(duration)", list(texts)) == list(texts.values())


def test_counts_agree_with_their_noun(browser: Any) -> None:
    found = value_of(browser, "given.map((one) => counted(one, 'task'))", 0, 1, 1000)
    assert found == ["0 tasks", "1 task", "1,000 tasks"]


def test_only_finite_numbers_are_numbers(browser: Any) -> None:
    assert [finite(value) for value in (1, 0.5, True, "1", None, float("nan"), 10**400)] == [
        1.0,
        0.5,
        *[None] * 5,
    ]
    assert (
        value_of(browser, "[1, 0.5, true, '1', null, NaN].map((one) => finite(one))")
        == [True] * 2 + [False] * 4
    )


def test_scales_have_round_labels(browser: Any) -> None:
    assert value_of(browser, "onAxis.get(percent)(0.4)") == "40%"


def test_ends_of_intervals_are_all_or_nothing_only_when_they_are(browser: Any) -> None:
    assert value_of(browser, "interval({ low: 0, high: 0.99999 })") == "0.0% to 99.9%"


def test_hidden_characters_are_written_out_and_others_stay(browser: Any) -> None:
    assert value_of(browser, "visible(given[0])", "a\tb\nc é 漢 🙂") == "a\tb\nc é 漢 🙂"
    found = value_of(browser, "visible(given[0])", "\r\x00\x7f\u202e\u200d\ufeff\ud800")
    assert found == "␍␀⟨U+007F⟩⟨U+202E⟩⟨U+200D⟩⟨U+FEFF⟩⟨U+D800⟩"


def test_long_texts_are_cut_by_characters_and_by_lines() -> None:
    assert cut("abc", 2, 40) == ("ab", 1)
    assert cut("a\nb\nc", 2000, 2) == ("a\nb", 2)
    assert cut("abc", 2000, 40) == ("abc", 0)


# ------------------------------------------------------------------------------------------- marks


def test_marks_show_the_words_that_differ(browser: Any) -> None:
    left, right = value_of(browser, "difference(...given)", "let f x = x - 3", "let f x = x + 3")
    assert [text for text, changed in left if changed] == ["-"]
    assert [text for text, changed in right if changed] == ["+"]
    assert "".join(text for text, _ in left) == "let f x = x - 3"


@pytest.mark.parametrize(
    ("before", "after"),
    [("let f x = 1", "The quick brown fox"), ("a " * 2000, "b " * 2000)],
    ids=["unlike", "long"],
)
def test_texts_with_little_in_common_or_too_long_are_not_marked(
    browser: Any, before: str, after: str
) -> None:
    assert value_of(browser, "difference(...given)", before, after) is None


def test_an_empty_text_is_like_none_but_itself(browser: Any) -> None:
    assert value_of(browser, "difference('', 'let f = 1')") is None
    assert value_of(browser, "difference('', '')") == [[], []]


# ---------------------------------------------------------------------------------------- geometry


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 15, [0, 5, 10, 15]),
        (0, 0.6, [0, 0.2, 0.4, 0.6]),
        (-0.5, 1, [-0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_are_round(browser: Any, low: float, high: float, expected: list[float]) -> None:
    assert value_of(browser, "ticks(given[0], given[1], 5)", low, high) == pytest.approx(expected)


CHART = """(() => {
  const chart = new Chart("t", "large");
  const paths = (selector) => [...chart.picture.querySelectorAll(selector)].map((one) => one.getAttribute("d"));
  const isDrawn = chart.draw(given[0]);
  const texts = (axis) => [...axis.querySelectorAll("span:not(.x-name)")].map((one) => one.textContent);
  return {
    drawn: isDrawn,
    lines: paths(".line:not(.dot, .whisker)"), dots: paths(".dot"), whiskers: paths(".whisker"), areas: paths(".area"),
    y: texts(chart.yAxis), x: texts(chart.xAxis), said: chart.values.map(([, text]) => text),
  };
})()"""  # noqa: E501


def chart(browser: Any, **plan: Any) -> dict[str, Any]:
    return dict(value_of(browser, CHART, plan))


def test_a_curve_is_broken_where_a_value_is_missing(browser: Any) -> None:
    line = {"name": "c", "style": "raw", "y": [0, 1, None, 1, 0]}
    found = chart(browser, x=[0, 1, 2, 3, 4], lines=[line], range=[0, 1])
    assert found["lines"] == ["M0.0 1000.0L250.0 0.0M750.0 0.0L1000.0 1000.0"]
    assert found["x"] == ["0", "1", "2", "3", "4"]


def test_nothing_to_draw_is_no_chart(browser: Any) -> None:
    assert (
        chart(browser, x=[1], lines=[{"name": "c", "style": "raw", "y": [None]}])["drawn"] is False
    )
    assert chart(browser, x=[])["drawn"] is False


def test_one_value_everywhere_still_has_a_scale(browser: Any) -> None:
    found = chart(browser, x=[1, 2], lines=[{"name": "c", "style": "raw", "y": [0, 0]}])
    assert found["y"] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_whiskers_are_drawn(browser: Any) -> None:
    line = {"name": "rate", "style": "raw", "dots": True, "y": [0.5, 1]}
    whiskers = [{"x": 0, "low": 0.25, "high": 0.75}]
    found = chart(browser, x=[0, 10], lines=[line], whiskers=whiskers, range=[0, 1])
    assert (found["whiskers"], found["dots"]) == (
        ["M0.0 750.0V250.0"],
        ["M0.0 500.0h0M1000.0 0.0h0"],
    )
    assert found["said"][0] == "step 0: rate 0.5"


def test_parts_pile_up_and_what_takes_away_hangs_below(browser: Any) -> None:
    piles = value_of(
        browser,
        "stacked([['a', [0.25], 's'], ['b', [-0.5], 's'], ['c', [0.5], 's'], ['d', [0], 's']])",
    )
    assert [(one["name"], one["low"], one["high"]) for one in piles] == [
        ("a", [0], [0.25]),
        ("b", [-0.5], [0]),
        ("c", [0.25], [0.75]),
    ]


def test_a_part_over_one_step_is_a_bar(browser: Any) -> None:
    area = {"name": "a", "style": "s", "low": [0], "high": [1], "y": [1]}
    found = chart(browser, x=[1], areas=[area], range=[0, 1])
    assert found["areas"] == ["M485 0L515 0L515 1000L485 1000Z"]


def test_another_axis_leaves_out_what_has_no_place_on_it(browser: Any) -> None:
    log = {"steps": [1, 2, 4], "values": {"num_tokens": [100, None, 400]}}
    assert value_of(browser, "[1, 2, 3, 4, 5].map(axisOf(given[0], 'tokens').at)", log) == [
        100,
        200,
        300,
        400,
        None,
    ]


# ----------------------------------------------------------------------------------------- choices


def test_every_kind_is_shown_once_before_any_is_shown_twice() -> None:
    records = {f"{kind}{n}": {"kind": kind} for kind in "xyz" for n in range(3)}
    assert varied(list(records), records, 4) == ["x0", "y0", "z0", "x1"]
