"""The demo's tasks before their graders: answers are right, the mistakes that the warm start
teaches are seen."""

from __future__ import annotations

import re

from gradus.contract import SUBMISSIONS, GraderName
from services.graders.base import Grader
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.grader import RustGrader
from services.graders.story.grader import StoryGrader
from trainer.data.demo_sprints import DEEDS, THINGS, render_mistaken_story, render_story
from trainer.data.demo_tasks import KINDS, LANGUAGES, generate_demo_rows


def passed(grader: Grader, name: GraderName) -> dict[str, list[bool]]:
    """Kind -> did its answer pass, and, where it has one, its mistake? For one constant."""
    language = LANGUAGES[name]
    found: dict[str, list[bool]] = {}
    for row in generate_demo_rows(f"demo:{name}"):
        kind = str(row["kind"])
        if kind in found:
            continue
        a = str(row["id"]).rpartition("-")[2]
        answers = [
            row["solution"],
            *(text.replace("{a}", a) for text in [language["mistakes"].get(kind)] if text),
        ]
        task = {"tests": row["tests"], "signature": row["signature"]}
        asked = [{"id": kind, "completion": answer, "task": task} for answer in answers]
        rubric = grader.info().rubrics[0]
        found[kind] = [
            grader.grade(SUBMISSIONS[name].model_validate(one), rubric, 0).passed for one in asked
        ]
    return found


def wanted() -> dict[str, list[bool]]:
    return {kind.name: [True, False] if kind.mistaken else [True] for kind in KINDS}


def test_the_demo_in_ocaml_passes_right_answers_and_no_mistakes(ocaml_grader: OcamlGrader) -> None:
    assert passed(ocaml_grader, "ocaml") == wanted()


def test_new_kinds_pass_and_share_nothing_with_the_warm_start(ocaml_grader: OcamlGrader) -> None:
    rubric = ocaml_grader.info().rubrics[0]
    shown = {str(row["prompt"]) for row in generate_demo_rows("demo:ocaml/warm-start")}
    numbers = {number for prompt in shown for number in re.findall(r"[0-9]+", prompt)}
    words = {re.sub(r"[0-9]+", "", prompt) for prompt in shown}
    ids = []
    for part in ("", "-held-out"):
        rows = list(generate_demo_rows(f"demo:ocaml/new-kinds{part}"))
        ids.append({row["id"] for row in rows})
        for row in rows:
            prompt = str(row["prompt"])
            assert not numbers & set(re.findall(r"[0-9]+", prompt))
            assert re.sub(r"[0-9]+", "", prompt) not in words
        for row in rows[::25]:
            task = {"tests": row["tests"], "signature": row["signature"]}
            asked = {"id": row["id"], "completion": row["solution"], "task": task}
            assert ocaml_grader.grade(
                SUBMISSIONS["ocaml"].model_validate(asked), rubric, 0
            ).passed, row["id"]
    assert not ids[0] & ids[1]


def test_the_demo_in_rust_passes_right_answers_and_no_mistakes(rust_grader: RustGrader) -> None:
    assert passed(rust_grader, "rust") == wanted()


def test_the_demo_of_stories_rewards_right_ones_and_no_mistake_as_much(
    story_grader: StoryGrader,
) -> None:
    rubric = story_grader.info().rubrics[0]

    def reward(references: list[str], stories: list[str]) -> float:
        asked = {"id": "x", "completion": "\n".join(stories), "task": {"references": references}}
        return story_grader.grade(SUBMISSIONS["story"].model_validate(asked), rubric, 0).reward

    for number, thing in enumerate(THINGS):
        right = [render_story(thing, deed) for deed in DEEDS]
        deed = next(
            deed for deed in DEEDS[number % len(DEEDS) :] + DEEDS if deed.mistake is not None
        )
        at = DEEDS.index(deed)
        kept = right[:2]
        assert reward([*kept, right[at]], [*kept, right[at]]) > 0.9
        assert reward([*kept, right[at]], [*kept, render_mistaken_story(thing, deed)]) < 0.8, (
            thing,
            deed.name,
        )


def test_every_sprint_of_the_demo_gets_full_marks_for_its_solution(
    story_grader: StoryGrader,
) -> None:
    rows = [*generate_demo_rows("demo:story"), *generate_demo_rows("demo:story/held-out")]
    rubric = story_grader.info().rubrics[0]
    for row in rows:
        asked = {
            "id": "x",
            "completion": row["solution"],
            "task": {"references": row["references"]},
        }
        result = story_grader.grade(SUBMISSIONS["story"].model_validate(asked), rubric, 0)
        assert result.passed, row["id"]
        assert result.reward >= 0.9, row["id"]
