"""The live page in a real browser, over runs that grow while it looks: what it shows, to whom, and
what never runs."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browser import CONTRAST, NEEDS_BROWSER, drawn, flaws, opened
from dashboard_server import LivePage, append, metric, quick_looks, sample
from report_runs import failing_run, hostile_run, rich_run
from sample_evaluations import rich_evaluation, stored

from trainer.evaluate.report import comparisons

pytestmark = NEEDS_BROWSER

BAD_STEP = {
    "frac_reward_zero_std": 0.9,
    "completions/clipped_ratio": 0.3,
    "gradus/flag/degenerate:stub": 0.1,
    "gradus/component/types": 0.2,
    "gradus/component/tests": 0.3,
    "gradus/stage/types": 0.3,
    "gradus/stage/tests": 0.7,
    "gradus/passed": 0.5,
}
DRAWN = {
    "#/": "document.querySelectorAll('tbody tr').length > 3",
    "#/run?id=rich": "document.querySelectorAll('figure').length > 5",
    "#/completions?id=rich": "document.querySelector('.group-cards > section') !== null",
    "#/compare?id=rich&id=bad": "document.querySelectorAll('figure').length > 3",
}
"""Page -> JavaScript that is true when everything on the page is drawn."""
HOSTILE = {
    "#/run?id=hostile": "document.querySelectorAll('figure').length > 0",
    "#/completions?id=hostile": DRAWN["#/completions?id=rich"],
    "#/compare?id=hostile&id=rich": DRAWN["#/compare?id=rich&id=bad"],
}
"""The same for pages of the run whose texts are attacks. "#/" lists that run too."""
SLOW = pytest.mark.slow
LOADS = [
    ("#/", 1280),
    ("#/run?id=rich", 375),
    ("#/completions?id=rich", 375),
    ("#/compare?id=rich&id=bad", 1280),
    ("#/run?id=hostile", 1280),
    ("#/completions?id=hostile", 1280),
    *(pytest.param(page, 375, marks=SLOW) for page in ("#/", "#/compare?id=rich&id=bad")),
    *(pytest.param(page, 1280, marks=SLOW) for page in list(DRAWN)[1:3]),
    pytest.param("#/compare?id=hostile&id=rich", 1280, marks=SLOW),
]
"""Pages and widths: each page once, those of hostile texts too."""


def make_runs(folder: Path) -> Path:
    rich_run(folder / "rich")
    hostile_run(folder / "hostile")
    append(
        folder / "bad" / "config.resolved.json",
        [{"reward": {"grader": "ocaml"}, "grpo": {"num_generations": 3}}],
    )
    append(
        folder / "bad" / "metrics.jsonl",
        [metric(n, reward=n / 40, **BAD_STEP) for n in range(1, 31)],
    )
    append(
        folder / "bad" / "sft_metrics.jsonl",
        [{"step": n, "epoch": n / 10, "loss": 3 / n, "grad_norm": 1.0} for n in range(1, 20)],
    )
    append(
        folder / "bad" / "sft_metrics.jsonl",
        [{"step": 20, "epoch": 2.0, "loss": 0.1}, {"step": 20, "eval_loss": 0.4}],
    )
    texts = ("let f x = x + 1", 'let f x =\n  (* "one" *)\n  x + 2', "let f x = List.length x")
    for step in (29, 30):
        append(
            folder / "bad" / "completions.jsonl",
            [
                sample(
                    step,
                    n,
                    "add-1",
                    n / 2,
                    completion=text,
                    advantage=n - 1.0,
                    tests={"passed": n, "total": 2},
                )
                for n, text in enumerate(texts)
            ],
        )
    append(folder / "bad" / "completions.jsonl", [sample(30, 0, "add-2", None)])
    append(folder / "old" / "metrics.jsonl", [metric(1)])
    return folder


@pytest.fixture(scope="module", autouse=True)
def soon() -> Iterator[None]:
    """Servers that look at folders more often than usual."""
    with quick_looks():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with LivePage(folder).running() as live:
        yield live.url


def at(browser: Any, url: str, page: str, **how: Any) -> list[str]:
    """Open one of the pages and wait until it is there; returns the addresses that it requested."""
    asked = opened(browser, f"{url}/{page}", **how)
    wait(browser, "return document.querySelector('h1, h2') !== null && document.title !== 'Gradus'")
    return asked


def whole(browser: Any, url: str, page: str, **how: Any) -> list[str]:
    """The same for one of the pages in `DRAWN` and `HOSTILE`, and wait until all of it is drawn."""
    asked = at(browser, url, page, **how)
    wait(browser, f"return {(DRAWN | HOSTILE)[page]}")
    drawn(browser)
    return asked


def wait(browser: Any, condition: str) -> Any:
    """The value of JavaScript, once it is true."""
    give_up_at = time.monotonic() + 60
    while not (found := browser.execute_script(condition)):
        assert time.monotonic() < give_up_at, f"{condition}\n{text(browser)[:2000]}"
        time.sleep(0.02)
    return found


@contextmanager
def hurried(browser: Any) -> Iterator[None]:
    """Pages that are opened meanwhile have timers that are 20 times as fast."""
    source = "const timer = setTimeout; window.setTimeout = (action, ms) => timer(action, ms / 20);"
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def text(browser: Any) -> str:
    return str(browser.execute_script("return document.body.innerText"))


def wait_for_text(browser: Any, wanted: str) -> None:
    wait(browser, f"return document.body.innerText.includes({json.dumps(wanted)})")


def wait_until_live(browser: Any) -> None:
    wait(browser, "return document.getElementById('connection').textContent === 'Live'")


def one(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def shown_charts(browser: Any) -> list[str]:
    script = """
      return [...document.querySelectorAll('figure')].filter((figure) => figure.checkVisibility())
        .map((figure) => figure.querySelector('h3').textContent)
    """
    return list(browser.execute_script(script))


# ------------------------------------------------------------------------------------------- looks


BROKEN_WORDS = """
  const broken = [];
  for (const cell of document.querySelectorAll("th, td")) {
    if (!cell.checkVisibility() || cell.closest(".settings")) continue;
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node; (node = texts.nextNode()); )
      for (const { index, 0: word } of node.data.matchAll(/\\S+/g)) {
        const range = document.createRange();
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        if (word.length < 16 && new Set([...range.getClientRects()].map((r) => r.top)).size > 1) broken.push(word);
      }
  }
  return broken;
"""  # noqa: E501
"""JavaScript that lists the words of tables that go on in the next line; names may be longer than
any screen."""

LEVELS = """
  return [...document.querySelectorAll("h2, h3, h4")].filter((one) => one.checkVisibility())
    .map((one) => Number(one.tagName[1]));
"""


@pytest.mark.parametrize(("page", "width"), LOADS)
def test_every_page_fits_reads_well_has_names_and_runs_nothing(
    browser: Any, url: str, page: str, width: int
) -> None:
    asked = whole(browser, url, page, width=width)
    wait_until_live(browser)
    assert [one for one in asked if not one.startswith((url, "data:"))] == [], (
        "it requests something from elsewhere"
    )
    for landmark in ("header", "main", "h1", "a.skip[href='#main']"):
        assert len(browser.find_elements("css selector", landmark)) == 1, landmark
    levels = browser.execute_script(LEVELS)
    assert levels[0] == 2
    assert all(below - above <= 1 for above, below in pairwise(levels)), levels
    assert browser.execute_script(BROKEN_WORDS) == []
    assert "<img src=x onerror=alert(1)>" in text(browser) or page != "#/completions?id=hostile"
    assert flaws(browser, "live" + re.sub("[^a-z]+", "-", page), width) == []


@pytest.mark.parametrize("width", [375, pytest.param(1280, marks=SLOW)])
def test_the_focus_goes_through_the_head_of_the_page_as_one_reads(
    browser: Any, url: str, width: int
) -> None:
    whole(browser, url, "#/run?id=rich", width=width)
    wait_for_text(browser, "Completions")
    middles = """
      return [...document.querySelectorAll("header a, .tabs a")].filter((e) => e.checkVisibility())
        .map((e) => e.getBoundingClientRect()).map((r) => [Math.round((r.top + r.bottom) / 2), Math.round(r.left)])
    """  # noqa: E501
    found = browser.execute_script(middles)
    assert len(found) == 3
    for (above, left), (below, right) in pairwise(found):
        assert below > above + 8 or (abs(below - above) <= 8 and right > left), found


# -------------------------------------------------------------------------------------------- runs


def test_runs_are_listed_sorted_and_searched(browser: Any, url: str) -> None:
    whole(browser, url, "#/")
    rows = "return [...document.querySelectorAll('tbody th')].map((cell) => cell.textContent)"

    def sort_by(head: str) -> list[str]:
        click = (
            "[...document.querySelectorAll('button.sort')].find((e) => e.textContent ==="
            " arguments[0]).click()"
        )
        browser.execute_script(click, head)
        return list(browser.execute_script(rows))

    assert set(browser.execute_script(rows)) == {"rich", "hostile", "bad", "old"}
    by_reward = ["hostile", "old", "bad", "rich"]
    assert sort_by("reward") == by_reward
    assert sort_by("reward") == by_reward[::-1]
    assert one(browser, "th[aria-sort=descending]").text.startswith("reward")
    assert sort_by("run") == ["bad", "hostile", "old", "rich"]
    one(browser, "#find").send_keys("QWEN3 ri")
    assert browser.execute_script(rows) == ["rich"]


def test_evaluations_have_a_list_and_pages_of_their_own(browser: Any, tmp_path: Path) -> None:
    append(tmp_path / "a" / "metrics.jsonl", [metric(1)])
    for name, level in (("base", 0.4), ("trained", 0.6)):
        stored(tmp_path / "eval" / name, *rich_evaluation(name, level))
    with LivePage(tmp_path, compare=comparisons).running() as live:
        at(browser, live.url, "#/")
        names = (
            "return [...document.querySelectorAll('[aria-label=Evaluations] tbody th')].map((e) =>"
            " e.textContent)"
        )
        assert set(
            wait(browser, f"const found = (() => {{ {names} }})(); return found.length && found")
        ) == {
            "eval/base",
            "eval/trained",
        }
        for name in ("base", "trained"):
            one(browser, f"input[aria-label='compare eval/{name}']").click()
        one(browser, "a.button").click()
        wait_for_text(browser, "The pass rate on 40 tasks rose from")
        wait_for_text(browser, "sign flips over tasks, p")
        wait_for_text(browser, "Wrong before, right after")
        assert "Settings that differ" not in text(browser)
    with LivePage(tmp_path).running() as live:
        at(browser, live.url, "#/compare?id=eval%2Fbase&id=eval%2Ftrained")
        wait_for_text(browser, "Settings that differ")
        wait_for_text(browser, "gradus report and gradus compare say how sure a difference is.")
        wait(browser, "return document.querySelectorAll('.panel').length === 2")
        at(browser, live.url, "#/run?id=eval%2Fbase")
        wait_for_text(browser, "of 40 tasks.")
        wait_for_text(browser, "Did not pass")


def test_chosen_runs_are_drawn_in_the_same_charts(browser: Any, url: str) -> None:
    whole(browser, url, "#/")
    for name in ("rich", "bad"):
        one(browser, f"input[aria-label='compare {name}']").click()
    one(browser, "a.button").click()
    wait_for_text(browser, "Settings that differ")
    wait(browser, "return document.querySelectorAll('figure').length > 3")
    legend = "return [...document.querySelectorAll('figure')][0].querySelector('.legend').innerText"
    assert set(browser.execute_script(legend).split()) == {"rich", "bad"}
    dashed = "return document.querySelectorAll('figure.large .legend .dashed').length"
    assert browser.execute_script(dashed) == 1, "told apart without colours too"


# --------------------------------------------------------------------------------------------- run


def test_a_run_shows_what_was_asked_for(browser: Any, url: str) -> None:
    whole(browser, url, "#/run?id=rich")
    browser.execute_script("document.querySelector('#settings').open = true")
    assert {
        "Reward", "Where answers stop", "Time per step", "Pass rate", "Entropy",
        "Gradient norm", "Groups without signal", "Completion length", "Held-out pass rate",
    } <= set(shown_charts(browser))  # fmt: skip
    shown = text(browser)
    for wanted in (
        "60 of 60",
        "How completions ended",
        "Completions that came so far",
        "grpo.max_steps\t60",
    ):
        assert wanted in shown
    assert "No completion was flagged." in shown


def test_outcomes_have_one_order_in_the_chart_and_the_table(browser: Any, url: str) -> None:
    at(browser, url, "#/run?id=bad")
    wait_for_text(browser, "How completions ended")
    names = """
      const chart = [...document.querySelectorAll("figure")]
        .find((one) => one.querySelector("h3").textContent === "Where answers stop");
      const rows = document.querySelectorAll('[aria-label="How completions ended"] tbody th');
      return [[...chart.querySelectorAll(".legend li")], [...rows]].map((all) => all.map((e) => e.textContent.trim()))
    """  # noqa: E501
    in_chart, in_table = browser.execute_script(names)
    assert len(in_chart) > 1
    assert in_chart == in_table


def test_a_warm_start_has_charts_of_its_own(browser: Any, url: str) -> None:
    at(browser, url, "#/run?id=bad")
    wait_for_text(browser, "Warm start")
    names = """
      const figures = document.querySelectorAll("section[aria-labelledby=warm-start] figure");
      return [...figures].map((one) => one.querySelector("h3").textContent)
    """
    assert browser.execute_script(names) == ["Loss", "Gradient norm"]
    loss = "return document.querySelector('[aria-labelledby=warm-start] .legend').innerText"
    assert browser.execute_script(loss).split("\n") == ["training", "held out"]
    assert {"Flags", "Cut off", "Parts of the reward"} <= set(shown_charts(browser))


def test_values_can_be_read_with_the_keyboard_and_from_a_table(browser: Any, url: str) -> None:
    from selenium.webdriver.common.keys import Keys

    whole(browser, url, "#/run?id=rich")
    chart = one(browser, "figure.large")
    canvas = chart.find_element("css selector", "[role=slider]")
    canvas.send_keys(Keys.HOME)
    assert canvas.get_attribute("aria-valuetext").startswith("step 1: reward 0.")
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert chart.find_element("css selector", ".readout").text.startswith("step 2: reward 0.")
    chart.find_element("css selector", "summary").click()
    texts = (
        "return [...document.querySelectorAll('figure.large tbody tr')].map((row) => row.innerText)"
    )
    rows = wait(browser, f"const rows = (() => {{ {texts} }})(); return rows.length && rows")
    assert 30 <= len(rows) <= 60
    assert rows[-1].split()[0] == "60"


def test_the_focus_can_be_seen(browser: Any, url: str) -> None:
    from selenium.webdriver.common.keys import Keys

    whole(browser, url, "#/")
    one(browser, "body").send_keys(Keys.TAB)
    outline = """
      const style = getComputedStyle(document.activeElement);
      return [document.activeElement.className, style.outlineStyle, style.outlineWidth];
    """
    name, style, width = browser.execute_script(outline)
    assert (name, style, width) == ("skip", "solid", "2px")


def test_a_run_that_is_not_there_is_said_to_be_missing(browser: Any, url: str) -> None:
    at(browser, url, "#/run?id=nothing")
    wait_for_text(browser, "there is no such run")
    at(browser, url, "#/completions?id=nothing")
    wait_for_text(browser, "there is no such run")


# ---------------------------------------------------------------------- completions


def test_the_completions_of_a_prompt_stand_side_by_side(browser: Any, url: str) -> None:
    at(browser, url, "#/completions?id=bad")
    wait_for_text(browser, "add-2")
    assert "Not graded, sandbox: the box broke" in text(browser)
    one(browser, "button[aria-label='Group before']").click()
    wait_for_text(browser, "add-1")
    wait(browser, "return document.querySelectorAll('.group-cards > section').length === 3")
    cards = browser.find_elements("css selector", ".group-cards > section")
    assert "advantage +1" in cards[2].text
    assert "1 of 2 tests" in cards[1].text


def test_prompts_are_stepped_through(browser: Any, url: str) -> None:
    from selenium.webdriver.common.keys import Keys

    at(browser, url, "#/completions?id=bad")
    wait_for_text(browser, "group 3 of 3")
    for place in (2, 1):
        one(browser, "button[aria-label='Group before']").send_keys(Keys.ENTER)
        wait_for_text(browser, f"group {place} of 3")
    assert not one(browser, "button[aria-label='Group before']").is_enabled()
    one(browser, "input[aria-label='Go to step']").send_keys("30", Keys.ENTER)
    wait_for_text(browser, "group 2 of 3")
    one(browser, "button[aria-label='Latest group, and follow']").click()
    wait_for_text(browser, "group 3 of 3")


# ------------------------------------------------------------------------------------------- alive


def test_the_page_follows_a_run_that_goes_on(browser: Any, tmp_path: Path) -> None:
    run = tmp_path / "a"
    append(run / "metrics.jsonl", [metric(n, reward=0.25) for n in range(1, 4)])
    append(run / "completions.jsonl", [sample(3, completion="the third")])
    with hurried(browser), LivePage(tmp_path).running() as live:
        at(browser, live.url, "#/run?id=a")
        wait_for_text(browser, "0.25 ± 0.1")
        append(run / "metrics.jsonl", [metric(4, reward=0.75)])
        wait_for_text(browser, "0.75 ± 0.1")
        at(browser, live.url, "#/completions?id=a")
        wait_for_text(browser, "the third")
        append(run / "completions.jsonl", [sample(4, completion="the fourth")])
        wait_for_text(browser, "the fourth")
        one(browser, "button[aria-label='Group before']").click()
        wait_for_text(browser, "the third")
        append(run / "completions.jsonl", [sample(5, completion="the fifth")])
        wait_for_text(browser, "of 3")
        assert "the third" in text(browser)
        at(browser, live.url, "#/")
        append(tmp_path / "b" / "metrics.jsonl", [metric(1)])
        wait(
            browser,
            "return [...document.querySelectorAll('tbody th')].some((cell) => cell.textContent ==="
            " 'b')",
        )
        shutil.rmtree(run)
        wait(
            browser,
            "return [...document.querySelectorAll('tbody th')].every((cell) => cell.textContent ==="
            " 'b')",
        )


def test_a_page_that_lost_its_server_goes_on_when_it_is_back(browser: Any, tmp_path: Path) -> None:
    append(tmp_path / "a" / "metrics.jsonl", [metric(1)])
    with hurried(browser), LivePage(tmp_path).running() as live:
        port = int(live.url.rsplit(":", 1)[1])
        at(browser, live.url, "#/")
        wait_until_live(browser)
    wait_for_text(browser, "The server does not answer")
    append(tmp_path / "a" / "metrics.jsonl", [metric(2, reward=0.875)])
    with LivePage(tmp_path, port=port).running():
        wait_until_live(browser)
        wait_for_text(browser, "0.875 ± 0.1")


def test_who_has_the_token_enters_once(browser: Any, tmp_path: Path) -> None:
    append(tmp_path / "a" / "metrics.jsonl", [metric(1)])
    token = "correct-horse-battery-staple"
    with hurried(browser), LivePage(tmp_path, token=token).running() as live:
        opened(browser, f"{live.url}/")
        assert browser.current_url == f"{live.url}/enter"
        assert browser.execute_script(CONTRAST) == []
        one(browser, "#token").send_keys("wrong\n")
        wait_for_text(browser, "That is not the token.")
        one(browser, "#token").send_keys(token + "\n")
        wait(browser, "return document.title === 'Runs: Gradus'")
        wait_until_live(browser)
        append(tmp_path / "a" / "metrics.jsonl", [metric(2, reward=0.625)])
        wait_for_text(browser, "0.625 ± 0.1")


# ----------------------------------------------------------------------------------------- hostile


def test_markup_that_got_into_the_page_could_not_run(browser: Any, url: str) -> None:
    whole(browser, url, "#/")
    attack = """
      try { document.body.innerHTML = "<img src=x onerror=document.title='fooled'>"; return "let through"; }
      catch (error) { return error.name; }
    """  # noqa: E501
    assert browser.execute_script(attack) == "TypeError"
    script = """
      const made = document.createElement('script');
      try { made.text = "document.title = 'fooled'"; document.body.append(made); return "let through"; }
      catch (error) { return error.name; }
    """  # noqa: E501
    assert browser.execute_script(script) == "TypeError"
    assert browser.title != "fooled"


def test_a_run_without_rewards_shows_its_losses(browser: Any, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"step": n, "loss": 3 / n, "learning_rate": 1e-3, "epoch": n / 10} for n in (10, 20, 30)
    ]
    lines[1:1] = [{"step": 10, "eval_loss": 0.5}]
    append(tmp_path / "a" / "metrics.jsonl", [*lines, {"step": 30, "eval_loss": 0.25}])
    append(tmp_path / "a" / "config.resolved.json", [{"stage": "sft", "sft": {"max_steps": 40}}])
    with LivePage(tmp_path).running() as live:
        at(browser, live.url, "#/run?id=a")
        wait_for_text(browser, "Loss, held out")
        wait(browser, "return document.querySelectorAll('figure').length > 1")
        tiles = one(browser, ".strip").text
        for wanted in ("30 of 40", "Loss, held out", "0.25"):
            assert wanted in tiles
        for unwanted in ("Reward", "Held-out pass rate"):
            assert unwanted not in tiles
        # Two measurements, ten steps apart from each other, are one line with dots.
        measured = "return document.querySelector('.canvas').chart.plot.data[2]"
        assert browser.execute_script(measured) == [0.5, None, 0.25]


def test_a_run_that_earned_nothing_is_drawn_in_a_comparison(browser: Any, tmp_path: Path) -> None:
    rich_run(tmp_path / "rich")
    failing_run(tmp_path / "failing")
    with LivePage(tmp_path).running() as live:
        at(browser, live.url, "#/compare?id=rich&id=failing")
        wait(browser, "return document.querySelectorAll('figure').length > 3")
        legend = browser.execute_script(
            "return [...document.querySelector('figure').querySelectorAll('.legend li')]"
            ".map((one) => one.textContent)"
        )
    assert legend == ["rich", "failing"]
