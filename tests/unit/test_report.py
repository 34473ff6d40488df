"""The report against runs made by hand: exact figures, hostile texts, missing files, a page that needs nothing else."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_runs import RIGHT, STUCK, WRONG, XSS, evaluation, hostile_run, lines, rich_run, tiny_run
from sample_evaluations import hostile_evaluation

from gradus.contract import Graded
from gradus.errors import Misuse
from trainer.evaluate.comparison import compare
from trainer.evaluate.report import write_report
from trainer.evaluate.report.compared import write_comparison_report
from trainer.evaluate.report.evaluated import write_evaluation_report
from trainer.evaluate.report.history import read_run
from trainer.evaluate.report.page import Page, page_of


class Parsed(HTMLParser):
    """Elements with attributes, text by element, in document order."""

    VOID = frozenset({"meta", "link", "path", "br"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], "an element is never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self._open[-1] if self._open else "", data))

    @property
    def text(self) -> str:
        shown = (data for tag, data in self.texts if tag not in ("script", "style"))
        return re.sub(r"\s+", " ", " ".join(shown)).replace("\u2060", "")

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def written(run: Path) -> str:
    return write_report(run, run / "report.html").read_text(encoding="utf-8")


def page(run: Path) -> Page:
    return page_of(read_run(run), "today")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tiny_run(tmp_path / "tiny")


# ------------------------------------------------------------------------------------------------------ exact figures


def test_the_headline_is_the_paired_difference_over_tasks(tiny: Path) -> None:
    # Before: 1, 1/2, 0, 0 (of one verdict: the other is a fault). After: 1, 1, 1/2, 1. Changes: 0, 1/2, 1/2, 1.
    # The mean of four draws from the changes is Binomial(8, 1/2) / 8, whose 2.5 % and 97.5 % quantiles are 1/8 and 7/8.
    headline = page(tiny).held_out.headline
    assert headline.text == "The pass rate on 4 held-out tasks rose from 37.5% to 87.5%."
    assert headline.tone == "up"
    assert headline.detail.startswith("+50.0 percentage points, 95% interval +12.5 to +87.5.")


def test_each_rate_has_its_interval_and_its_basis(tiny: Path) -> None:
    (panel,) = page(tiny).held_out.panels
    before, after = panel.bars
    # The sum of four draws from 1, 1/2, 0, 0: P(0) = 1/16 > 2.5 %; P(>= 3.5) = 5/256 < 2.5 % < P(>= 3) = 19/256.
    assert (before.value, before.interval, before.basis) == ("37.5%", "0.0% to 75.0%", "3 of 7 verdicts passed")
    assert (after.value, after.basis) == ("87.5%", "7 of 8 verdicts passed")
    rows = {row[0]: row[1:] for row in panel.others}
    # pass@2 leaves task d out before: it has one verdict.
    assert rows["pass@2"][0].startswith("66.7%")
    assert rows["pass@2"][1].startswith("100.0%")
    assert rows["faults, left out of all rates"] == ("1", "0")


def test_the_funnel_counts_verdicts_that_came_so_far(tiny: Path) -> None:
    levels = {level.name: tuple(share.text for share in level.shares) for level in page(tiny).held_out.funnel}
    assert levels == {
        "verdicts": ("7 (100.0%)", "8 (100.0%)"),
        "an answer was found": ("7 (100.0%)", "8 (100.0%)"),
        "it type-checks": ("5 (71.4%)", "8 (100.0%)"),
        "it compiles": ("5 (71.4%)", "8 (100.0%)"),
        "every test passes": ("3 (42.9%)", "7 (87.5%)"),
    }


def test_the_run_card_says_what_ran(tiny: Path) -> None:
    facts = {fact.label: fact.value for fact in page(tiny).facts}
    assert facts["Model"] == "fresh:qwen3"
    assert facts["Grader"] == "ocaml@7"
    assert facts["Rubric"] == "ocaml/graduated@1"
    assert facts["Seed"] == "7"
    assert facts["GRPO steps"] == "3 of 3"
    assert facts["Training time"] == "12 s"  # 110 - 100 by the clock, and the first step's own 2 s
    assert facts["Evaluation time"] == "3.0 s"
    assert facts["Graded in training"] == "5 completions, 40.0% passed, 1 faulted"
    assert facts["Held-out tasks"] == "4 tasks of demo:ocaml/held-out (sha256 abababababab)"
    assert facts["Machine"] == "Linux x86_64, 2 CPU cores, 8 GiB, Python 3.11.7, torch 2.13.0"


def test_the_curves_are_the_metrics_and_the_parts_the_completions(tiny: Path) -> None:
    training = page(tiny).training
    assert training.reward is not None
    assert [text for _, text in training.reward.readout] == [
        "step 1: reward 0.25, spread 0.1",
        "step 2: reward 0.5, spread 0.2",
        "step 3: reward 0.75, spread 0.3",
    ]
    assert training.reward.lines[0].path == "M0.0 750.0L500.0 500.0 1000.0 250.0"
    assert training.reward.areas[0].path == "M0.0 650.0 500.0 300.0 1000.0 0.0 1000.0 550.0 500.0 700.0 0.0 850.0Z"
    parts, outcomes = training.medium
    # Step 1: 0.25 and 0; step 2: one verdict of 1, its neighbour is a fault; step 3: 1 and 0.25.
    assert [text for _, text in parts.readout] == [
        "step 1: types 0.125, tests 0",
        "step 2: types 0.25, tests 0.75",
        "step 3: types 0.25, tests 0.375",
    ]
    assert [text for _, text in outcomes.readout] == [
        "step 1: passed 0.0%, stopped at tests 50.0%, stopped at types 50.0%",
        "step 2: passed 100.0%, stopped at tests 0.0%, stopped at types 0.0%",
        "step 3: passed 50.0%, stopped at tests 50.0%, stopped at types 0.0%",
    ]
    assert training.steps is not None
    assert training.steps.rows[1] == ("2", "0.5", "0.2", "0.4", "2.0 s")


def test_flags_are_counted_over_verdicts(tiny: Path) -> None:
    flags = page(tiny).flags
    assert flags is not None
    assert flags.head == ("flag", "before", "after", "in training")
    assert flags.rows == (("degenerate:stub", "0 (0.0%)", "0 (0.0%)", "1 (20.0%)"),)


def test_faults_stand_apart_with_their_place_and_message(tiny: Path) -> None:
    faults = page(tiny).faults
    assert (faults.graded, faults.faulted) == (5 + 7 + 8, 2)
    message = "the worker that held job '81ab' died after 12 s"
    assert [(row.where, row.kind, row.count, row.message) for row in faults.rows] == [
        ("training, step 2", "worker", "1", message),
        ("evaluation “before”", "worker", "1", message),
    ]


def test_completions_of_one_task_stand_side_by_side_with_marks(tiny: Path) -> None:
    groups = {group.title: group for group in page(tiny).samples}
    assert [card.task_id for card in groups["Wrong before, right after"].cards] == ["c", "d"]
    assert [card.task_id for card in groups["Right both times"].cards] == ["a", "b"]
    before, after = groups["Wrong before, right after"].cards[1].shown
    assert (before.name, before.verdict, before.reward) == ("before", "stopped at types", "0")
    assert before.diagnostics == ("types, line 1: Error: no",)
    assert [span.text for span in before.spans if span.changed] == ["-"]
    assert [span.text for span in after.spans if span.changed] == ["+"]


def test_the_written_page_shows_these_figures(tiny: Path) -> None:
    text = Parsed(written(tiny)).text
    for shown in ("rose from 37.5% to 87.5%.", "+50.0", "3 of 7 verdicts passed", "2 of 22 completions could not"):
        assert shown in text


# ---------------------------------------------------------------------------------------------------- what it concludes


@pytest.mark.parametrize(
    ("first", "last", "tone", "verb"),
    [(WRONG, RIGHT, "up", "rose"), (RIGHT, WRONG, "down", "fell"), (WRONG, WRONG, "flat", "did not change measurably")],
)
def test_the_headline_claims_only_what_the_interval_holds(
    tmp_path: Path, first: Graded, last: Graded, tone: str, verb: str
) -> None:
    for name, result in (("before", first), ("after", last)):
        evaluation(tmp_path, name, {f"t{n}": (result,) for n in range(20)}, mode="greedy")
    headline = page(tmp_path).held_out.headline
    assert headline.tone == tone
    assert verb in headline.text


def test_one_task_more_is_no_measurable_change(tmp_path: Path) -> None:
    tasks = [f"t{n}" for n in range(20)]
    evaluation(tmp_path, "before", {task: (WRONG,) for task in tasks}, mode="greedy")
    evaluation(tmp_path, "after", {task: (RIGHT if task == "t3" else WRONG,) for task in tasks}, mode="greedy")
    held_out = page(tmp_path).held_out
    assert held_out.headline.tone == "flat"
    assert held_out.panels[0].pairs is not None
    assert (held_out.panels[0].pairs.gained, held_out.panels[0].pairs.lost) == (1, 0)
    assert held_out.panels[0].p_value == "p = 1.000"


def test_differences_in_how_it_was_measured_are_said(tmp_path: Path) -> None:
    evaluation(tmp_path, "before", {"a": (RIGHT,)}, graders=("ocaml@6",), tasks_sha256="cd" * 32)
    evaluation(tmp_path, "after", {"a": (RIGHT, RIGHT)})
    said = " ".join(page(tmp_path).warnings)
    assert "different graders" in said
    assert "different tasks" in said
    assert "different sampling" in said


def test_verdicts_without_a_sandbox_are_said(tmp_path: Path) -> None:
    evaluation(tmp_path, "after", {"a": (RIGHT,)}, toolchains=("ocaml 4.14.1 unsandboxed",))
    assert "without a sandbox" in " ".join(page(tmp_path).warnings)


def test_a_lone_evaluation_is_reported_without_a_comparison(tmp_path: Path) -> None:
    evaluation(tmp_path, "eval", {"a": (RIGHT, WRONG), "b": (RIGHT, RIGHT)})
    found = page(tmp_path)
    assert found.held_out.headline.text == "The model passes 75.0% of 2 held-out tasks."
    assert any("nothing to compare" in text for text in found.missing)
    assert found.samples[0].title == "Completions of “eval”"
    assert "75.0%" in Parsed(written(tmp_path)).text


def test_measurements_on_the_way_are_a_curve(tmp_path: Path) -> None:
    run = rich_run(tmp_path / "rich")
    chart = next(chart for chart in page(run).training.medium if chart.title == "Held-out pass rate on the way")
    assert [text.split(":")[0] for _, text in chart.readout] == ["step 0", "step 20", "step 40", "step 60"]


def test_an_evaluation_with_nothing_but_faults_is_reported(tmp_path: Path) -> None:
    for name in ("before", "after"):
        evaluation(tmp_path, name, {"a": (STUCK, STUCK)})
    found = page(tmp_path)
    assert found.held_out.headline.text == "What the model can do on held-out tasks was not measured."
    assert found.held_out.panels[0].bars[0].interval == "nothing was graded"
    assert "4 of 4 completions could not be judged" in Parsed(written(tmp_path)).text


# ----------------------------------------------------------------------------------------------------- what is missing


def test_an_empty_folder_still_makes_a_report_that_names_what_is_missing(tmp_path: Path) -> None:
    text = Parsed(written(tmp_path)).text
    for name in ("config.resolved.json", "metrics.jsonl", "completions.jsonl", "eval/"):
        assert f"{name} " in text
    assert "No reward was logged." in text


@pytest.mark.parametrize("name", ["config.resolved.json", "metrics.jsonl", "completions.jsonl"])
@pytest.mark.parametrize("content", [None, "", "not json\n", "[1, 2]\n", "\x00\xff\n", '{"step": "x"}\n{"torn": '])
def test_any_file_may_be_missing_or_torn(tiny: Path, name: str, content: str | None) -> None:
    if content is None:
        (tiny / name).unlink()
    else:
        (tiny / name).write_bytes(content.encode("latin-1"))
    found = page(tiny)
    assert any(name in text for text in found.missing) or name == "completions.jsonl"
    assert "37.5%" in Parsed(written(tiny)).text


def test_a_torn_evaluation_is_named_and_the_rest_is_reported(tiny: Path) -> None:
    (tiny / "eval" / "before.json").write_text('{"schema": "gradus/evaluation@1"}')
    found = page(tiny)
    assert any("eval/before.json" in text for text in found.missing)
    assert found.held_out.headline.text == "The model passes 87.5% of 4 held-out tasks."


def test_numbers_that_are_none_are_gaps_and_not_zeros(tmp_path: Path) -> None:
    text = '{"step": 1, "reward": 0.5}\n{"step": 2, "reward": NaN, "entropy": Infinity}\n{"step": 3, "reward": null}\n'
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 4, "reward": 0.5, "reward_std": 1e999}\n')
    chart = page(tmp_path).training.reward
    assert chart is not None
    assert chart.lines[0].path == ""
    assert [dot.path for dot in chart.dots] == ["M0.0 500.0h0", "M1000.0 500.0h0"]
    assert chart.areas == ()
    assert "NaN" not in written(tmp_path)


def test_a_record_without_reward_and_fault_is_no_verdict(tmp_path: Path) -> None:
    lines(tmp_path / "completions.jsonl", [{"step": 1, "reward": None}, {"step": 1, "reward": "1.0"}])
    faults = page(tmp_path).faults
    assert (faults.graded, faults.faulted) == (0, 2)
    assert faults.rows[0].message == "it has neither a reward nor a fault"


def test_one_step_is_enough_for_a_picture(tmp_path: Path) -> None:
    lines(tmp_path / "metrics.jsonl", [{"step": 5, "reward": 0.5, "entropy": 0.0}])
    assert "step 5: reward 0.5" in written(tmp_path)


def test_a_resumed_run_counts_each_step_once(tmp_path: Path) -> None:
    lines(tmp_path / "metrics.jsonl", [{"step": n, "reward": r} for n, r in ((1, 0.1), (2, 0.2), (2, 0.3))])
    chart = page(tmp_path).training.reward
    assert chart is not None
    assert [text for _, text in chart.readout] == ["step 1: reward 0.1", "step 2: reward 0.3"]


def test_there_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Misuse):
        write_report(tmp_path / "nowhere", tmp_path / "report.html")


# ------------------------------------------------------------------------------------------------------- hostile texts


def hostile_page(kind: str, folder: Path) -> str:
    if kind == "report":
        return written(hostile_run(folder / "hostile"))
    found, records = hostile_evaluation()
    if kind == "evaluation":
        return write_evaluation_report(found, records, folder / "page.html").read_text()
    sides, of_both = (found, found), (records, records)
    return write_comparison_report(compare(*sides, records=of_both), sides, of_both, folder / "page.html").read_text()


@pytest.mark.parametrize("kind", ["report", "evaluation", "comparison"])
def test_no_text_of_a_run_becomes_markup(tmp_path: Path, kind: str) -> None:
    html = hostile_page(kind, tmp_path)
    parsed = Parsed(html)
    assert len(parsed.named("script")) == 1
    assert parsed.named("img") == []
    assert all(name in ALLOWED for name, _ in parsed.elements)
    for _, attributes in parsed.elements:
        assert not [name for name in attributes if name.startswith("on")]
    assert XSS not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert "{{7*7}}" in parsed.text


STRUCTURE = "html head meta title style link script body header main section article div span p h1 h2 h3 h4 strong em"
CONTENT = "a ul li dl dt dd figure figcaption svg path table caption thead tbody tr th td details summary pre code mark"
ALLOWED = frozenset(f"{STRUCTURE} {CONTENT}".split())


def test_only_our_own_script_may_run(tmp_path: Path) -> None:
    policy = next(m["content"] for m in Parsed(written(tmp_path)).named("meta") if "http-equiv" in m)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/]{43}='", policy)
    assert "unsafe-eval" not in policy


def test_huge_completions_are_cut_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "hostile")
    html = written(run)
    assert (run / "eval" / "after.completions.jsonl").stat().st_size > 600_000
    assert len(html) < 150_000
    assert re.search(r"29\d,\d{3} more characters are in the completions of “after”", html)


def test_characters_that_hide_or_reorder_others_are_written_out(tmp_path: Path) -> None:
    completion = "let f = \u202e1 \x1b[31m \u200b \u2066 ok é 漢 🙂"
    for name in ("before", "after"):
        evaluation(tmp_path, name, {"a": (WRONG,)}, completion=completion)
    html = written(tmp_path)
    assert not set("\u202e\x1b\u200b\u2066") & set(html)
    assert "⟨U+202E⟩1 ␛[31m ⟨U+200B⟩ ⟨U+2066⟩ ok é 漢 🙂" in html


# -------------------------------------------------------------------------------------------------- a page of its own


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    html = written(rich_run(tmp_path / "rich"))
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert "url(" not in html
    for _, attributes in Parsed(html).elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))


def test_pictures_tables_and_regions_are_labelled(tmp_path: Path) -> None:
    parsed = Parsed(written(rich_run(tmp_path / "rich")))
    for svg in parsed.named("svg"):
        assert svg["role"] == "img"
        assert svg["aria-label"]
    assert len(parsed.named("svg")) >= 8
    assert len(parsed.named("caption")) == len(parsed.named("table"))
    assert all("scope" in header for header in parsed.named("th"))
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for section in parsed.named("section"):
        assert section["aria-labelledby"] in ids
    assert parsed.named("html") == [{"lang": "en"}]


def test_headings_go_down_one_level_at_a_time(tmp_path: Path) -> None:
    parsed = Parsed(written(rich_run(tmp_path / "rich")))
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))


def test_a_long_run_makes_a_page_of_bounded_size(tmp_path: Path) -> None:
    many = [{"step": n, "reward": n / 20_000, "reward_std": 0.1, "entropy": 1 / n} for n in range(1, 20_001)]
    lines(tmp_path / "metrics.jsonl", many)
    assert len(written(tmp_path)) < 300_000


def test_the_report_is_replaced_as_a_whole(tiny: Path) -> None:
    first = written(tiny)
    (tiny / "metrics.jsonl").unlink()
    assert written(tiny) != first
    assert [path.name for path in tiny.glob("report*")] == ["report.html"]


def test_an_evaluation_file_is_json_that_others_can_read(tiny: Path) -> None:
    figures = json.loads((tiny / "eval" / "after.json").read_text())
    assert figures["schema"] == "gradus/evaluation@1"
    assert figures["measurements"][0]["pass_at"]["1"]["value"] == 0.875
    assert figures["measurements"][0]["stopped_at"] == {"tests": 1}
