"""The story grader on its real model: honest answers earn, others do not, and neither order nor
layout matters."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradus.contract import Graded, OcamlSubmission, Stage, StorySubmission
from gradus.errors import Fault, InternalFault, Misuse
from gradus.resources import configs
from gradus.row_reader import read_rows
from gradus.tasks.story import StoryTask
from services.graders.base import load
from services.graders.base.config_loader import read_settings
from services.graders.story import grader as story_module
from services.graders.story.config import StoryConfig
from services.graders.story.encoder import Embeddings, Encoder
from services.graders.story.fact_builder import build_task_spec, measure_stories
from services.graders.story.grader import StoryGrader
from services.graders.story.parser import read
from services.sandbox.cancellation import CANCELLED, CancelToken, enter_attempt
from tests.rubrics import rubrics_of

WEIGHTED, SCRUM = rubrics_of("story")
ASKED = (
    "As a shopper, I want to pay by card, so that I can leave my cash at home.",
    "As a shop owner, I want to see what was sold today, so that I can order in time.",
    "As a cashier, I want to cancel a receipt, so that mistakes can be corrected.",
    "As a shopper, I want to send goods back within a month, so that I can buy without worry.",
)
HONEST = (
    "As a customer, I want to use my credit card at the till, so that I need no coins.",
    "As an owner, I want a summary of the sales of the day, so that I know what is running out.",
    "As a cashier, I want to void a wrong receipt, so that the books are right.",
    (
        "As a customer, I want to return what I bought within 30 days, so that I dare to buy as a"
        " present."
    ),
)


def submission(
    completion: str, references: tuple[str, ...] = ASKED, **task: Any
) -> StorySubmission:
    values = {"id": "one", "completion": completion, "task": {"references": references, **task}}
    return StorySubmission.model_validate(values)


@pytest.fixture(scope="module")
def grade(story_grader: StoryGrader) -> Any:
    def graded(
        completion: str, references: tuple[str, ...] = ASKED, rubric: str = WEIGHTED, **task: Any
    ) -> Graded:
        return story_grader.grade(submission(completion, references, **task), rubric, 0)

    return graded


def test_the_references_themselves_earn_nearly_all_and_pass(grade: Any) -> None:
    found = grade("\n".join(ASKED))
    assert found.reward >= 0.95
    assert found.passed
    assert (found.stage, found.tests, found.flags, found.diagnostics) == (Stage.SCORE, None, (), ())


def test_an_honest_answer_in_other_words_earns_most_of_it(grade: Any) -> None:
    assert grade("\n".join(HONEST)).reward >= 0.75


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.permutations(range(len(HONEST))), st.permutations(range(len(ASKED))))
def test_neither_the_order_of_stories_nor_of_references_matters(
    grade: Any, lines: list[int], asked: list[int]
) -> None:
    found = grade("\n".join(HONEST[at] for at in lines), tuple(ASKED[at] for at in asked))
    usual = grade("\n".join(HONEST))
    assert found.components == usual.components
    assert (found.reward, found.passed, found.flags) == (usual.reward, usual.passed, usual.flags)


def test_formatted_issues_are_references(story_grader: StoryGrader) -> None:
    values = {
        "id": "one",
        "completion": "\n".join(HONEST),
        "task": {"formatted_issues": " ||||| ".join(ASKED)},
    }
    found = story_grader.grade(StorySubmission.model_validate(values), WEIGHTED, 0)
    assert (
        found.components
        == story_grader.grade(submission("\n".join(HONEST)), WEIGHTED, 0).components
    )


def test_bare_titles_are_good_references_and_bad_answers(grade: Any) -> None:
    titles = (
        "Pay by card",
        "[Backend] Show sales of the day",
        "Cancel receipts",
        "(Later) Returns within a month",
    )
    assert grade("\n".join(ASKED), titles).reward > 0.85
    assert grade("\n".join(titles), titles).reward == 0.0


def test_references_that_ask_for_the_same_are_one(grade: Any) -> None:
    assert grade("\n".join(HONEST), (*ASKED, ASKED[0], ASKED[0] + ".")).reward == pytest.approx(
        grade("\n".join(HONEST)).reward, abs=0.01
    )


def test_blank_references_ask_for_nothing(grade: Any) -> None:
    assert grade("\n".join(ASKED), (" ", "\n")).reward == 0.0
    assert grade("\n".join(ASKED), (*ASKED, " ")).reward >= 0.95


def test_no_text_of_the_references_is_told(grade: Any) -> None:
    secret = "As a zookeeper, I want to weigh the quagga, so that it is fed well."
    found = grade("\n".join([*HONEST, "As a spy, I want the plans", "nonsense"]), (*ASKED, secret))
    assert "quagga" not in found.model_dump_json()
    assert found.diagnostics


def test_diagnostics_name_the_lines(grade: Any) -> None:
    found = grade("\n".join([HONEST[0], "nonsense", "As a whale, I want to sing in the deep sea"]))
    assert [(one.line, "form" in one.message) for one in found.diagnostics] == [
        (2, True),
        (3, False),
    ]


def test_scrum_is_the_weighted_sum_of_its_authors(grade: Any) -> None:
    found = grade("\n".join(ASKED), rubric=SCRUM)
    assert found.components["coverage"] == pytest.approx(0.3, abs=1e-4)
    assert found.components["clause"] == pytest.approx(0.2)
    assert found.components["count"] == pytest.approx(0.1)
    assert found.reward == pytest.approx(0.85, abs=0.02)
    assert grade("", rubric=SCRUM).reward == pytest.approx(0.1 * 2.718281828**-2, abs=1e-5)


def test_what_passed_means_does_not_depend_on_the_rubric(grade: Any) -> None:
    for text in ("\n".join(ASKED), "\n".join(HONEST[:2]), "<think>"):
        assert grade(text).passed == grade(text, rubric=SCRUM).passed


@pytest.mark.parametrize("rubric", [WEIGHTED, SCRUM])
@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t\n",
        "\u200b" * 1000,
        "As a user, I want " * 1700,
        "\n".join([ASKED[0]] * 900),
        "\n" * 30_000,
        "a" * 1_000_000,
        "🦆" * 5000,
        "\u202e".join(ASKED),
        "<think>" * 1000,
        "As a " + "x" * 300 + ", I want " + "y" * 20_000,
    ],
    ids=range(11),
)
def test_no_text_breaks_the_grader_or_earns_much(grade: Any, rubric: str, text: str) -> None:
    assert 0 <= grade(text, rubric=rubric).reward < 0.5


class Rounded:
    """The encoder, with vectors that are rounded in another way, as they are in another company in
    a pass."""

    def __init__(self, encoder: Encoder, seed: int) -> None:
        self._encoder = encoder
        self._seed = seed

    def embed(self, texts: Sequence[str]) -> Embeddings:
        found = self._encoder.embed(texts)
        random = np.random.default_rng(self._seed)
        kinds = list(dict.fromkeys(texts))  # the same text has the same vector
        noise = random.normal(0, 2e-7, (len(kinds), found.vectors.shape[1])).astype(np.float32)
        return found._replace(vectors=found.vectors + noise[[kinds.index(text) for text in texts]])


@pytest.mark.parametrize("number", range(3))
def test_rounding_does_not_decide_which_of_the_stories_that_want_the_same_answers_what(
    story_grader: StoryGrader, number: int
) -> None:
    task = list(read_rows(str(configs() / "tasks/story.jsonl")))[number].values
    asked = build_task_spec(StoryTask(references=task["references"]))
    heads = [text.partition("I want")[0] for text in task["references"]]
    said = "\n".join(
        f"{head}I want to {task['sprint_goal'].rstrip('.')}, so that all is well." for head in heads
    )
    limits = story_grader.config.limits
    gate = story_grader.config.gate
    answer = read(said, limits.characters, limits.lines)
    roles = [
        measure_stories(answer, asked, gate, Rounded(story_grader.encoder, seed)).facts.roles
        for seed in range(8)
    ]
    assert roles == pytest.approx([roles[0]] * 8, abs=1e-3)


def test_a_task_with_the_most_references_is_judged_and_one_with_more_is_a_fault(
    story_grader: StoryGrader,
) -> None:
    most = story_grader.config.limits.references
    many = tuple(
        f"Show the report number {number} of department {number % 7}" for number in range(most)
    )
    found = story_grader.grade(
        submission("As a clerk, I want to see report number 3", many), WEIGHTED, 0
    )
    assert found.reward < 0.1
    with pytest.raises(Fault, match="limits.references is"):
        story_grader.grade(submission("x", (*many, "one more")), WEIGHTED, 0)


def test_what_stands_behind_far_more_than_was_asked_for_is_not_compared(
    story_grader: StoryGrader,
) -> None:
    seen: list[str] = []

    class Noting:
        def embed(self, texts: Sequence[str]) -> Embeddings:
            seen.extend(texts)
            return story_grader.encoder.embed(texts)

    lines = [f"As a clerk, I want to {f'file{number} form ' * 50}." for number in range(45)]
    answer = read("\n".join(lines), 32_000, 256)
    found = measure_stories(
        answer,
        build_task_spec(StoryTask(references=HONEST[:2])),
        story_grader.config.gate,
        Noting(),
    ).facts
    assert (len(answer.stories), found.lines, found.stories) == (45, 45, 5)
    assert len({text for text in seen if text.startswith("file")}) == 5
    assert "behind far more" in found.diagnostics[-1].message


def test_what_is_kept_of_long_tasks_is_bounded_in_bytes() -> None:
    def long_task(number: int) -> StoryTask:
        words = " ".join(f"w{number}x{at}" for at in range(2500))
        return StoryTask(
            references=HONEST, sprint_goal="Less waiting.", team_context={"notes": words}
        )

    tracemalloc.start()
    try:
        for number in range(110):
            build_task_spec(long_task(number))
        assert tracemalloc.get_traced_memory()[0] < 60 * 2**20
    finally:
        tracemalloc.stop()


def test_a_submission_of_another_kind_is_a_fault(story_grader: StoryGrader) -> None:
    other = OcamlSubmission.model_validate({"id": "a", "completion": "", "task": {"tests": "x"}})
    with pytest.raises(InternalFault):
        story_grader.grade(other, WEIGHTED, 0)


def test_many_slots_get_the_same_verdicts_as_one(story_grader: StoryGrader) -> None:
    made = [submission("\n".join(HONEST[: 1 + number % 4])) for number in range(64)]
    alone = [story_grader.grade(one, WEIGHTED, 0).reward for one in made]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda one: story_grader.grade(one, WEIGHTED, 0).reward, made))
    assert together == pytest.approx(alone, abs=1e-5)


def test_large_texts_are_graded_one_after_the_other_and_small_ones_beside_them(
    story_grader: StoryGrader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story_module, "LOOK_S", 0.01)
    measure = StoryGrader._measure
    has_begun, may_end = threading.Event(), threading.Event()
    active: list[str] = []
    counts = []

    def note(self: StoryGrader, one: StorySubmission, rubric: str) -> Any:
        if len(one.completion) <= story_module.LARGE_CHARS:
            return measure(self, one, rubric)
        active.append(one.id)
        counts.append(len(active))
        has_begun.set()
        may_end.wait(60)
        facts = measure(self, one, rubric)
        active.pop()
        return facts

    monkeypatch.setattr(StoryGrader, "_measure", note)
    large = submission("\n".join(HONEST * 20))
    with ThreadPoolExecutor(4) as pool:
        grading = [pool.submit(story_grader.grade, large, WEIGHTED, 0) for _ in range(4)]
        has_begun.wait(60)
        assert story_grader.grade(submission(HONEST[0]), WEIGHTED, 0).reward > 0
        token = CancelToken()
        token.cancel()
        with enter_attempt(token, brief=False), pytest.raises(InternalFault, match=CANCELLED):
            story_grader.grade(large, WEIGHTED, 0)
        token.close()
        may_end.set()
        assert len({done.result().reward for done in grading}) == 1
    assert counts == [1, 1, 1, 1]


def test_the_revision_names_the_model_the_backend_and_the_calibration(
    story_grader: StoryGrader, tmp_path: Path
) -> None:
    text = (configs() / "graders" / "story.yaml").read_text()
    other = tmp_path / "story.yaml"
    other.write_text(text.replace("high: 0.95", "high: 0.96"))
    assert "sentence-transformers-fp32" in story_grader.info().toolchain
    assert (
        load(story_grader.info().name, config=other).info().revision != story_grader.info().revision
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("low: 0.16", "low: 0.50", "less than"),
        ("low: 0.16", "low: .nan", "gate"),
        ("precision: fp32", "precision: fp33", "precision"),
        ("judge: none", "judge: abacus", "judge"),
        ("cache_mb: 64", "cache_mb: -1", "cache_mb"),
        ("lines: 256", "lines: many", "lines"),
        ("threads: 1", "threds: 1", "threds"),
        ("rubric: story/weighted@1", "rubric: ocaml/strict@1", "rubric"),
    ],
)
def test_a_wrong_configuration_is_refused_and_named(
    story_grader: StoryGrader, tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = (configs() / "graders" / "story.yaml").read_text()
    assert old in text
    wrong = tmp_path / "story.yaml"
    wrong.write_text(text.replace(old, new))
    with pytest.raises((Misuse, InternalFault), match=message):
        StoryGrader(wrong)


def test_the_shipped_configuration_is_what_the_documents_say() -> None:
    config = read_settings(StoryConfig, "story")
    assert (config.rubric, config.judge, config.precision) == (WEIGHTED, "none", "fp32")
    assert json.loads(config.model_dump_json())["gate"] == {"low": 0.16, "knee": 0.38, "high": 0.95}
