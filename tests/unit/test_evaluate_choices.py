"""Multiple choice: the letter that a model holds most likely, figures with intervals, and refused
rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import make_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from gradus.errors import Misuse
from trainer.evaluate.choice_eval import Choices, main

ROW = {"question": "What is 1 + 1?", "choices": ["1", "2", "3"], "answer": 1}
PROMPT = "What is 1 + 1?\nA. 1\nB. 2\nC. 3\nAnswer:"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("qwen2", tmp_path_factory.mktemp("choices") / "model")


def write(file: Path, *rows: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def letter_by_hand(folder: Path, prompt: str, letters: str) -> int:
    """The choice with the highest sum of log-probabilities of its tokens, by one pass for each."""
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    sums = []
    for letter in letters:
        start, ids = tokenizer(prompt)["input_ids"], tokenizer(f" {letter}")["input_ids"]
        with torch.no_grad():
            chances = torch.log_softmax(
                model(torch.tensor([[*start, *ids]])).logits[0].double(), -1
            )
        sums.append(
            sum(float(chances[len(start) - 1 + place, token]) for place, token in enumerate(ids))
        )
    return sums.index(max(sums))


def test_the_model_chooses_the_letter_it_holds_most_likely(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An untrained model prefers one letter; the file has that one right half of the time."""
    chosen = letter_by_hand(model, PROMPT, "ABC")
    rows = [
        {**ROW, "answer": chosen, "subject": "sums"},
        {**ROW, "answer": "ABC"[chosen], "subject": "sums"},
        {**ROW, "answer": (chosen + 1) % 3, "subject": "other"},
        {**ROW, "answer": "ABC"[(chosen + 2) % 3]},
    ]
    assert main(str(model), write(tmp_path / "q.jsonl", *rows), tmp_path / "out") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == str(tmp_path / "out/choices.json")
    found = Choices.model_validate_json(Path(said[-1]).read_text())
    assert (found.questions, found.accuracy.value, found.chance) == (4, 0.5, pytest.approx(1 / 3))
    assert found.accuracy.low < 0.5 < found.accuracy.high
    assert {name: rate.value for name, rate in found.by_subject.items()} == {
        "sums": 1.0,
        "other": 0.0,
    }
    assert main(str(model), tmp_path / "q.jsonl", tmp_path / "out", limit=2) == 0
    assert Choices.model_validate_json(Path(said[-1]).read_text()).accuracy.value == 1.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"question": " "}, "q.jsonl:2: question: is missing or empty"),
        ({"choices": ["one"]}, "choices: must be a list of 2 to 26 texts"),
        ({"choices": "ABCD"}, "choices: must be a list"),
        ({"choices": ["1", ""]}, "choices: one of them is empty"),
        ({"answer": 3}, "answer: must be an index from 0 to 2 or a letter from A to C, not 3"),
        ({"answer": -1}, "answer: must be an index"),
        ({"answer": True}, "answer: must be an index"),
        ({"answer": "D"}, "answer: must be an index"),
        ({"answer": ""}, "answer: must be an index"),
        ({"answer": None}, "answer: must be an index"),
        ({"subject": 7}, "subject: is not a text"),
    ],
)
def test_rows_that_are_no_questions_are_refused_by_line(
    change: dict[str, Any], why: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(Misuse, match=why):
        main(str(model), write(tmp_path / "q.jsonl", ROW, ROW | change), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_whose_numbers_are_not_finite_earns_no_accuracy(
    model: Path, tmp_path: Path
) -> None:
    broken = AutoModelForCausalLM.from_pretrained(model)
    with torch.no_grad():
        broken.model.norm.weight.fill_(float("nan"))
    broken.save_pretrained(tmp_path / "broken")
    AutoTokenizer.from_pretrained(model).save_pretrained(tmp_path / "broken")
    with pytest.raises(Misuse, match="not finite"):
        main(str(tmp_path / "broken"), write(tmp_path / "q.jsonl", ROW), tmp_path / "out")
