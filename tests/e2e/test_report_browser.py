"""Reports in a real browser, from files: what they say, no errors, no network, labels, three
widths, two schemes."""

from __future__ import annotations

import base64
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browser import NEEDS_BROWSER, colored, drawn, flaws
from browser import opened_from_a_file as opened
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
from sample_evaluations import hostile_evaluation, rich_evaluation, stored

from gradus.contract import Graded
from trainer.evaluate.report import write_report

pytestmark = NEEDS_BROWSER
SLOW = pytest.mark.slow
LOADS = [
    ("report", 1280),
    ("comparison", 375),
    *(pytest.param("report", width, marks=SLOW) for width in (768, 375)),
    *(pytest.param("evaluation", width, marks=SLOW) for width in (1280, 768, 375)),
    *(pytest.param("comparison", width, marks=SLOW) for width in (1280, 768)),
]
"""Kinds of page and widths. One narrow and one wide page show most of what can go wrong."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each kind of page, with what a real one looks like, and of hostile texts."""
    folder = tmp_path_factory.mktemp("pages")
    before, after = rich_evaluation("before", 0.4), rich_evaluation("after", 0.6)
    odd = hostile_evaluation()
    sides = [
        stored(folder / name, *made)
        for name, made in (("before", before), ("after", after), ("odd", odd))
    ]
    return {
        "report": write_report(rich_run(folder / "rich"), folder / "report.html"),
        "evaluation": write_report(sides[1], folder / "evaluation.html"),
        "comparison": comparison_page(sides[0], sides[1], folder / "comparison.html"),
        "hostile": write_report(hostile_run(folder / "hostile"), folder / "hostile.html"),
        "hostile evaluation": write_report(sides[2], folder / "hostile-evaluation.html"),
        "hostile comparison": comparison_page(
            sides[2], sides[2], folder / "hostile-comparison.html"
        ),
    }


def text_of(browser: Any, page: Path, **how: Any) -> str:
    """All that a page says, closed parts too."""
    opened(browser, page, **how)
    drawn(browser)
    browser.execute_script(
        "document.querySelectorAll('details:not(.figures)').forEach((one) => (one.open = true))"
    )
    return re.sub(r"\s+", " ", browser.execute_script("return document.body.innerText"))


def written(browser: Any, run: Path) -> str:
    return text_of(browser, write_report(run, run / "report.html"))


@pytest.fixture(scope="module")
def tiny(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(browser, tiny_run(tmp_path_factory.mktemp("runs") / "tiny"))


# ---------------------------------------------------------------------- every page


@pytest.mark.parametrize(("kind", "width"), LOADS)
def test_it_opens_from_a_file_without_flaws_and_without_the_network(
    browser: Any, pages: dict[str, Path], kind: str, width: int
) -> None:
    page = pages[kind]
    assert opened(browser, page, width=width) == [page.as_uri()]
    drawn(browser)
    assert flaws(browser, kind, width, 20_000) == []
    assert browser.execute_script(SMALL_TEXTS) == []
    for scheme in ("light", "dark"):
        colored(browser, scheme)
        ground = browser.execute_script(
            "return getComputedStyle(document.documentElement).backgroundColor"
        )
        assert (sum(map(int, ground[4:-1].split(","))) > 3 * 128) is (scheme == "light")


SMALL_TEXTS = """
  return [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility() &&
    [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) &&
    !one.closest("script, .unseen") && parseFloat(getComputedStyle(one).fontSize) < 11)
    .map((one) => one.outerHTML.slice(0, 80));
"""
"""JavaScript that lists the texts of less than eleven pixels."""


@pytest.mark.parametrize(
    "kind",
    [
        "hostile",
        pytest.param("hostile evaluation", marks=SLOW),
        pytest.param("hostile comparison", marks=SLOW),
    ],
)
def test_hostile_texts_run_nothing_and_are_shown(
    browser: Any, pages: dict[str, Path], kind: str
) -> None:
    assert opened(browser, pages[kind]) == [pages[kind].as_uri()]
    drawn(browser)
    assert flaws(browser, kind.replace(" ", "-"), 1280) == []
    text = text_of(browser, pages[kind])
    assert "<img src=x onerror=alert(1)>" in text
    assert "{{7*7}}" in text
    if kind == "hostile":
        assert XSS[:100] in text
        assert re.search(r"29\d,\d{3} more characters are in the completions of “after”", text)


@pytest.mark.parametrize("kind", ["report", "evaluation", "comparison"])
def test_pictures_tables_and_regions_are_labelled(
    browser: Any, pages: dict[str, Path], kind: str
) -> None:
    text_of(browser, pages[kind])
    unlabelled = """
      const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
      const bad = ids.filter((id, n) => ids.indexOf(id) !== n);
      const none = (selector, fits) => [...document.querySelectorAll(selector)].filter((one) => !fits(one));
      return [
        ...none(".canvas", (one) => one.ariaLabel && one.getAttribute("aria-valuetext")),
        ...none("table", (one) => one.querySelector("caption")?.textContent),
        ...none("th", (one) => one.hasAttribute("scope")),
        ...none("main section", (one) => ids.includes(one.getAttribute("aria-labelledby")) || one.ariaLabel),
      ].map((one) => one.outerHTML.slice(0, 100)).concat(bad);
    """  # noqa: E501
    assert browser.execute_script(unlabelled) == []
    assert browser.execute_script("return document.querySelectorAll('canvas').length") >= (
        8 if kind == "report" else 0
    )
    levels = browser.execute_script(
        "return [...document.querySelectorAll('h1, h2, h3, h4')].filter((one) =>"
        " one.checkVisibility()).map((one) => Number(one.tagName[1]))"
    )
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_curves_can_be_read_with_the_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, pages["report"])
    chart = browser.find_element("css selector", "figure.large")
    canvas = chart.find_element("css selector", "[role=slider]")
    canvas.send_keys(Keys.HOME)
    assert canvas.get_attribute("aria-valuetext").startswith("step 1: reward 0.")
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert chart.find_element("css selector", ".readout").text.startswith("step 2: reward 0.")


def test_curves_can_be_drawn_over_time_and_tokens(browser: Any, tmp_path: Path) -> None:
    rows = [
        {"step": n, "reward": n / 4, "time": 1000 + 60 * n, "num_tokens": 500 * n}
        for n in (1, 2, 3)
    ]
    lines(tmp_path / "metrics.jsonl", rows)
    opened(browser, write_report(tmp_path, tmp_path / "report.html"))
    for axis, first in (("tokens", "tokens 500"), ("time", "minutes 0")):
        choose = "const axis = document.getElementById('axis'); axis.value = arguments[0];"
        browser.execute_script(f"{choose} axis.dispatchEvent(new Event('change'))", axis)
        label = browser.find_element("css selector", "figure.large [role=slider]").get_attribute(
            "aria-label"
        )
        assert f"{first}: reward 0.25" in label


def test_it_prints_with_everything_opened(browser: Any, pages: dict[str, Path]) -> None:
    opened(browser, pages["report"])
    drawn(browser)
    closed = "return document.querySelectorAll('details:not([open], .figures)').length"
    assert browser.execute_script(closed) > 0
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(closed) == 0
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


# ---------------------------------------------------------------------- what they say


def test_the_headline_has_the_change_and_its_interval(tiny: str) -> None:
    assert "The pass rate on 4 held-out tasks rose from 37.5% to 87.5%." in tiny
    assert "+50.0 percentage points, 95% interval +12.5 to +87.5." in tiny
    assert "95% interval 0.0% to 75.0% · 3 of 7 verdicts passed" in tiny
    assert "pass@2 66.7% (" in tiny


def test_the_run_card_says_what_ran(tiny: str) -> None:
    for shown in (
        "Model fresh:qwen3", "Grader ocaml@7", "Rubric ocaml/graduated@1", "Seed 7", "GRPO steps 3 of 3",  # noqa: E501
        "Training time 12 s",  # 110 - 100 by the clock, and the first step's own 2 s
        "Evaluation time 3.0 s", "Graded in training 5 completions, 40.0% passed, 1 faulted",
        "Held-out tasks 4 tasks of demo:ocaml/held-out (sha256 abababababab)",
        "Machine Linux x86_64, 2 CPU cores, 8 GiB, Python 3.11.7, torch 2.13.0",
    ):  # fmt: skip
        assert shown in tiny


def test_the_funnel_flags_and_faults_are_in_words(tiny: str) -> None:
    for level in (
        "verdicts 7 (100.0%) 8 (100.0%)", "an answer was found 7 (100.0%) 8 (100.0%)",
        "it type-checks 5 (71.4%) 8 (100.0%)", "it compiles 5 (71.4%) 8 (100.0%)",
        "every test passes 3 (42.9%) 7 (87.5%)", "only a stub 0 (0.0%) 0 (0.0%) 1 (20.0%)",
        "training, step 2 worker 1 the worker that held job '81ab' died after 12 s",
        "evaluation “before” worker 1 the worker that held job '81ab' died after 12 s",
    ):  # fmt: skip
        assert level in tiny


@pytest.mark.parametrize(
    ("first", "last", "tone", "verb"),
    [
        (WRONG, RIGHT, "up", "rose"),
        (RIGHT, WRONG, "down", "fell"),
        (WRONG, WRONG, "flat", "did not change measurably"),
    ],
)
def test_the_headline_claims_only_what_the_interval_holds(
    browser: Any, tmp_path: Path, first: Graded, last: Graded, tone: str, verb: str
) -> None:
    for name, result in (("before", first), ("after", last)):
        evaluation(tmp_path, name, {f"t{n}": (result,) for n in range(20)}, mode="greedy")
    assert verb in written(browser, tmp_path)
    assert browser.find_elements("css selector", f"h2.headline.{tone}")


def test_doubts_are_said_before_anything_else(browser: Any, tmp_path: Path) -> None:
    evaluation(
        tmp_path,
        "before",
        {"a": (RIGHT,)},
        graders=("ocaml@6",),
        toolchains=("ocaml 4.14.1 unsandboxed",),
    )
    evaluation(tmp_path, "after", {"a": (RIGHT,)})
    text = written(browser, tmp_path)
    assert (
        "“before” and “after” were measured with different graders: they cannot be compared."
        in text
    )
    assert "Judged without a sandbox" in text


def test_a_lone_evaluation_has_its_own_interval(browser: Any, tmp_path: Path) -> None:
    evaluation(tmp_path, "eval", {"a": (RIGHT, WRONG), "b": (RIGHT, RIGHT)})
    text = written(browser, tmp_path)
    assert "fresh:qwen3 passes 75.0% of 2 held-out tasks. 95% interval" in text
    assert text.count("75.0%") == 2, "in the headline, and in the funnel, which counts completions"


def test_intervals_by_a_fallback_name_the_method_and_the_reason(
    browser: Any, tmp_path: Path
) -> None:
    evaluation(tmp_path, "before", {"a": (WRONG, WRONG), "b": (WRONG, WRONG)})
    evaluation(tmp_path, "after", {"a": (RIGHT, RIGHT), "b": (RIGHT, RIGHT)})
    page = written(browser, tmp_path)
    alike = "wilson: all tasks came out alike, which leaves a bootstrap no width"
    assert f"pass@1 of before, pass@2 of before, pass@1 of after, pass@2 of after – {alike}" in page
    assert "change of pass@1, change of the reward – newcombe: all tasks changed alike" in page
    evaluation(tmp_path / "lone", "after", {"a": (RIGHT, WRONG)})
    page = written(browser, tmp_path / "lone")
    assert (
        "Intervals by a fallback: pass@1, mean reward – no interval: a bootstrap needs two tasks"
        in page
    )


def test_what_was_not_measured_is_said(browser: Any, tmp_path: Path) -> None:
    for name in ("before", "after"):
        evaluation(tmp_path, name, {"a": (STUCK, STUCK)})
    text = written(browser, tmp_path)
    assert "What the model can do on held-out tasks was not measured." in text
    assert "nothing was graded" in text


def test_hidden_characters_are_written_out(browser: Any, tmp_path: Path) -> None:
    completion = "let f = \u202e1 \x1b[31m \u200b \u2066 ok é 漢 🙂"
    for name in ("before", "after"):
        evaluation(tmp_path, name, {"a": (WRONG,)}, completion=completion)
    text = written(browser, tmp_path)
    assert not set("\u202e\x1b\u200b\u2066") & set(text)
    assert "⟨U+202E⟩1 ␛[31m ⟨U+200B⟩ ⟨U+2066⟩ ok é 漢 🙂" in text


def test_the_page_of_an_evaluation_has_rates_turns_groups_and_faults(
    browser: Any, pages: dict[str, Path]
) -> None:
    text = text_of(browser, pages["evaluation"])
    for wanted in (
        "passes 62.3% of 40 tasks.", "completions were never written", "green by turn 2",
        "type-checks", "tests that pass, on average", "Tasks that pass, by difficulty", "Tasks that pass, by kind",  # noqa: E501
        "tokens per second, all together", "Did not pass",
        "Names that do not exist", "List.summ", "What the figures are",
    ):  # fmt: skip
        assert wanted in text
    assert text.count("62.3%") == 3, (
        "the pass rate once; the tests that pass and turn 1 happen to be as many"
    )


def test_a_run_over_turns_has_rates_repairs_tokens_and_reasons_by_turn(
    browser: Any, tmp_path: Path
) -> None:
    run = rich_run(tmp_path / "turns", steps=3)
    shown = {
        "pass_by_1": 0.5,
        "pass_by_2": 0.7,
        "repaired": 0.4,
        "asked_again": 0.5,
        "tokens_1": 14,
        "tokens_2": 9,
    }
    ends = {"stopped/passed": 0.7, "stopped/turns": 0.2, "stopped/cut": 0.1, "stopped/window": 0.0}
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told = {f"turns/{name}": value for name, value in (shown | ends).items()}
    lines(run / "metrics.jsonl", [{**one, **told} for one in metrics])
    text = written(browser, run)
    for wanted in (
        "Pass rate by turn", "by turn 2", "Tokens per turn", "turn 1",
        "Why chains end", "passed", "turns", "cut", "turns/asked_again", "turns/repaired",
    ):  # fmt: skip
        assert wanted in text
    single = written(browser, rich_run(tmp_path / "single", steps=3))
    assert not any(
        absent in single for absent in ("Pass rate by turn", "Tokens per turn", "Why chains end")
    )


def test_odd_figures_cost_their_own_part_of_the_page_only(browser: Any, tmp_path: Path) -> None:
    run = rich_run(tmp_path / "rich")
    odd = {
        "mode": "greedy",
        "pass_at": {"1": {"value": "high"}},
        "mean_reward": 5,
        "details": 7,
        "stopped_at": [],
    }
    for name in ("before", "after"):
        (run / "eval" / f"{name}.json").write_text(
            json.dumps({"measurements": [odd], "graders": 5})
        )
    text = written(browser, run)
    for wanted in ("Where answers stop", "How completions ended", "Behind it"):
        assert wanted in text


def test_the_page_of_a_comparison_has_both_sides(browser: Any, pages: dict[str, Path]) -> None:
    text = text_of(browser, pages["comparison"])
    for wanted in (
        "percentage points, 95% interval", "What was compared",
        "before: type check", "The largest gains first", "Wrong before, right after", "Improved",  # noqa: E501
        "Tasks by where their middle completion stopped, before and after",
    ):  # fmt: skip
        assert wanted in text
    values = [one.text for one in browser.find_elements("css selector", ".hero dd")]
    assert values
    assert not {"0", "–", ""} & set(values), "the first screen has no rows of zeros"
