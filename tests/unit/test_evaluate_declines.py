"""Declining: what an answer is by its form, exact figures, and whole measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_openai_server import Json, OpenAiLike, Reply, refused

from gradus.errors import Misuse
from gradus.languages import DECLINE_INSTRUCTION
from gradus.resources import configs
from gradus.row_reader import read_rows
from trainer.config.run import PromptConfig
from trainer.evaluate.openai_client import Server
from trainer.evaluate.refusal_eval import Declines, classify_answer, main, read_requests
from trainer.evaluate.setup import SamplingOptions

ASKS = configs() / "tasks" / "declines.jsonl"
CODE = "```rust\npub fn f() {}\n```"
NO = "CANNOT: there is no such crate."


# ---------------------------------------------------------------------- the declared form


@pytest.mark.parametrize(
    ("completion", "is_"),
    [
        (NO, "declined"),
        (f"I thought about it.\n\n{NO}", "declined"),
        (f"**{NO}**", "declined"),
        (f"<think>\n{CODE}\n</think>\n{NO}", "declined"),
        (CODE, "code"),
        (f"Here you are:\n{CODE}", "code"),
        (f"<think>\n{NO}\n</think>\n{CODE}", "code"),
        (f"{NO}\n{CODE}", "neither"),
        ("CANNOT:", "neither"),
        ("CANNOT: \n \n", "neither"),
        ("cannot: no", "neither"),
        ("I would say CANNOT: no", "neither"),
        ("I'm sorry, I can't.", "neither"),
        ("pub fn f() {}", "neither"),
        (f"<think>\n{NO}", "neither"),
        ("", "neither"),
        (" " * 100_000 + "CANNOT", "neither"),
        ("*" * 100_000, "neither"),
    ],
)
def test_an_answer_is_what_its_form_says(completion: str, is_: str) -> None:
    assert classify_answer(completion) == is_


# ---------------------------------------------------------------------- our own asks


def test_there_are_as_many_asks_of_both_sorts_and_each_says_why() -> None:
    rows = [dict(row.require_valid().values) for row in read_rows(str(ASKS))]
    cannot = [row for row in rows if row["can"] is False]
    assert len(cannot) >= 20
    assert len(rows) == 2 * len(cannot)
    assert {row["pair"] for row in cannot} == {row["pair"] for row in rows}
    assert all(row["why"].endswith(".") for row in cannot)
    assert len(list(read_requests(ASKS, None, PromptConfig(style="chat")))) == len(rows)


# ---------------------------------------------------------------------- whole measurements


def measured(
    answer: Any, data: Path, out: Path, **changed: Any
) -> tuple[int, Declines, OpenAiLike]:
    with OpenAiLike(answer).serving() as like:
        server = Server(like.url, attempts=2, concurrency=4)
        given: Json = {"model": None, "server": server, "temperature": 0.0, "max_new_tokens": 64}
        status = main(SamplingOptions(**{**given, **changed}), data, out)
        return status, Declines.model_validate_json((out / "declines.json").read_text()), like


def rows_of(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


PAIRS = [
    {"id": "a-no", "pair": "a", "prompt": "no a", "can": False},
    {"id": "a-yes", "pair": "a", "prompt": "yes a", "can": True},
    {"id": "b-no", "pair": "b", "prompt": "no b", "can": False},
    {"id": "b-yes", "pair": "b", "prompt": "yes b", "can": True},
    {"id": "lost", "prompt": "lost", "can": True},
]


def test_the_figures_of_a_model_that_is_right_thrice_are_exactly_these(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(text: str, body: Json, before: int) -> Reply | str:
        said = {"no a": NO, "yes a": CODE, "no b": "I'm sorry.", "yes b": CODE}
        return said.get(text.rpartition("\n\n")[2]) or refused(503)

    data = rows_of(tmp_path / "asks.jsonl", *PAIRS)
    status, found, like = measured(answer, data, tmp_path / "out")
    assert (status, found.unwritten) == (3, {"server": 1})
    assert found.accuracy is not None
    assert found.declined_when_due is not None
    assert found.answered_when_due is not None
    assert (found.asks, found.accuracy.value, found.neither) == (4, 0.75, 1)
    assert (found.declined_when_due.value, found.answered_when_due.value) == (0.5, 1.0)
    assert all(text.startswith(DECLINE_INSTRUCTION) for text in like.prompts())
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "out" / "declines.json")


@pytest.mark.parametrize(
    ("always", "accuracy"), [(NO, 0.5), (CODE, 0.5), ("I'm sorry, I can't.", 0.0)]
)
def test_a_model_that_always_says_the_same_is_no_better_than_chance(
    tmp_path: Path, always: str, accuracy: float
) -> None:
    _, found, _ = measured(lambda *_: always, ASKS, tmp_path / "out")
    assert found.accuracy is not None
    assert found.accuracy.value == accuracy


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "holds no rows"),
        ([{"prompt": "x", "can": True}], "id: is missing or empty"),
        ([{"id": "a", "prompt": " ", "can": True}], "prompt: is missing or empty"),
        ([{"id": "a", "prompt": ["x"], "can": True}], "prompt: is not a text"),
        ([{"id": "a", "prompt": "x"}], "can: must say"),
        ([{"id": "a", "prompt": "x", "can": "yes"}], "can: must say"),
        ([{"id": "a", "prompt": "x", "can": True}] * 2, "id of its own"),
        ([{"id": "a", "prompt": "x", "can": True, "pair": 7}], "pair: is not a text"),
        ([{"id": "a", "prompt": "x", "can": True, "pair": []}], "pair: is not a text"),
    ],
)
def test_rows_that_are_no_asks_are_refused_by_name(
    tmp_path: Path, rows: list[Json], why: str
) -> None:
    data = rows_of(tmp_path / "asks.jsonl", *rows)
    with pytest.raises(Misuse, match=why):
        measured(lambda *_: NO, data, tmp_path / "out")
