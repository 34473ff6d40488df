"""The pieces of the page: words, marks, geometry. Its modules run in a real browser, without a page
around them."""

from __future__ import annotations

import json
from typing import Any

from browser import NEEDS_BROWSER

from services.dashboard.document import read_page_file

pytestmark = NEEDS_BROWSER
SCRIPTS = ("uPlot.iife.min", "words", "dom", "store", "series", "chart", "samples")


def value_of(browser: Any, expression: str, *given: Any) -> Any:
    """What JavaScript makes of `given`, with the names of the page's modules; a sequence is
    `given[0]`, and so on."""
    browser.get("about:blank")
    scripts = "".join(read_page_file(f"{name}.js") for name in SCRIPTS)
    return browser.execute_script(
        f"{scripts}\nconst given = {json.dumps(given)};\nreturn {expression};"
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


def test_ends_of_intervals_are_all_or_nothing_only_when_they_are(browser: Any) -> None:
    assert value_of(browser, "interval({ low: 0, high: 0.99999 })") == "0.0% to 99.9%"


def test_hidden_characters_are_written_out_and_others_stay(browser: Any) -> None:
    assert value_of(browser, "visible(given[0])", "a\tb\nc é 漢 🙂") == "a\tb\nc é 漢 🙂"
    found = value_of(browser, "visible(given[0])", "\r\x00\x7f\u202e\u200d\ufeff\ud800")
    assert found == "␍␀⟨U+007F⟩⟨U+202E⟩⟨U+200D⟩⟨U+FEFF⟩⟨U+D800⟩"


# ------------------------------------------------------------------------------------------ charts


CHART = """(() => {
  const chart = new Chart("t", "large");
  chart.draw(given[0]);
  if (chart.node.hidden) return null;
  const { data, series } = chart.plot;
  return { data, dots: series.slice(1).map((one) => one.points.filter?.()), said: chart.known.map((n) => chart.textAt(n)) };
})()"""  # noqa: E501


def chart(browser: Any, **plan: Any) -> dict[str, Any]:
    return dict(value_of(browser, CHART, plan))


def test_nothing_to_draw_is_no_chart(browser: Any) -> None:
    line = {"name": "c", "colour": "after", "y": [None]}
    assert value_of(browser, CHART, {"x": [1], "lines": [line]}) is None
    assert value_of(browser, CHART, {"x": [], "lines": []}) is None


def test_a_value_without_neighbours_and_what_is_measured_have_dots(browser: Any) -> None:
    logged = {"name": "loss", "colour": "after", "y": [1, 2, None, 3, None]}
    measured = {
        "name": "held out",
        "colour": "part-1",
        "measured": True,
        "y": [2, 2, None, None, 4],
    }
    found = chart(browser, x=[0, 1, 2, 3, 4], lines=[logged, measured])
    assert found["dots"] == [[3], [0, 1, 4]]
    assert found["said"][:2] == ["step 0: loss 1, held out 2", "step 1: loss 2, held out 2"]


def test_a_logarithmic_chart_leaves_out_what_has_no_logarithm(browser: Any) -> None:
    line = {"name": "c", "colour": "after", "y": [1, 0, -1, 10]}
    assert chart(browser, x=[1, 2, 3, 4], lines=[line], log=True)["data"][1] == [1, None, None, 10]


def test_parts_pile_up_and_what_takes_away_hangs_below(browser: Any) -> None:
    columns = {"a": [0.25, None], "b": [-0.5, None], "c": [0.5, None]}
    lines = [{"name": name, "colour": "after", "y": y} for name, y in columns.items()]
    found = chart(browser, x=[1, 2], lines=lines, isStacked=True)
    assert found["data"][1:] == [[0.75, None], [-0.5, None], [0.25, None]], "the outermost first"
