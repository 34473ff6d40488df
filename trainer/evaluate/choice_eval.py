"""`gradus eval-choices`: questions with several answers to choose from, as in MMLU. Samples
nothing.

The model reads the question and its lettered choices as plain text, without examples, and chooses
the letter that it holds most likely as the next word; of equal ones the first.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

from pydantic import Field
from rich.console import Console

from gradus.errors import Misuse
from gradus.row_reader import Row
from gradus.whole_file import write_text
from trainer.evaluate.collect import progress_bar
from trainer.evaluate.intervals import Part, Rate, pass_rate
from trainer.evaluate.likelihood import DEFAULT_WINDOW, completion_document, sums_of
from trainer.evaluate.setup import config_beside, load
from trainer.evaluate.single_sample_runs import named_rows


class Choices(Part):
    schema_: Literal["gradus/choices@1"] = Field("gradus/choices@1", alias="schema")
    model: str
    data: str
    """Name of the file."""
    data_sha256: str
    """Hash of the file and the limit."""
    questions: int
    accuracy: Rate
    """Share of the questions whose right choice the model holds most likely."""
    chance: float
    """Accuracy of choosing blindly."""
    by_subject: dict[str, Rate]
    duration_s: float


@dataclass(frozen=True, slots=True)
class Question:
    prompt: str
    """Ends where a letter is due."""
    choices: int
    right: int
    """Index of the right choice."""
    subject: str | None


def main(model: str, data: Path, out: Path, limit: int | None = None) -> int:
    """Measure a model here on a file; the accuracy is printed, and the path of its JSON file last.

    Raises Misuse for rows that are no such questions, and for a model that cannot be loaded or
    computes no finite numbers.
    """
    started = time.monotonic()
    questions = [_question(row) for _, row in named_rows(data, limit)]
    digest = hashlib.sha256(data.read_bytes() + f"\0{limit}".encode()).hexdigest()
    loaded, tokenizer = load(model, config_beside(Path(model)))
    loaded.eval()
    right: list[bool] = []
    with progress_bar(Console(stderr=True)) as on_progress:
        for number, question in enumerate(questions, start=1):
            right.append(_chosen(loaded, tokenizer, question, model) == question.right)
            on_progress("read", number, len(questions))
    subjects = sorted({question.subject for question in questions if question.subject is not None})
    of_subject = {
        name: [
            hit for hit, question in zip(right, questions, strict=True) if question.subject == name
        ]
        for name in subjects
    }
    found = Choices(
        model=model,
        data=data.name,
        data_sha256=digest,
        questions=len(questions),
        accuracy=_share(right),
        chance=math.fsum(1 / question.choices for question in questions) / len(questions),
        by_subject={name: _share(hits) for name, hits in of_subject.items()},
        duration_s=round(time.monotonic() - started, 3),
    )
    path = out / "choices.json"
    write_text(path, found.model_dump_json(by_alias=True, indent=1) + "\n")
    for name, rate in found.by_subject.items():
        print(f"{name}: {rate.text}")
    print(
        f"accuracy {found.accuracy.text} of {found.questions:,} questions; by chance"
        f" {found.chance:.1%}"
    )
    print(path)
    return 0


def _share(hits: list[bool]) -> Rate:
    rate = pass_rate([(1, int(hit)) for hit in hits])
    assert rate is not None  # no group is empty
    return rate


def _question(row: Row) -> Question:
    """A row with `question`, `choices` (2 to 26 texts), `answer` (an index from 0, or a letter),
    perhaps `subject`."""
    asked, choices, answer = (
        row.text("question"),
        row.values.get("choices"),
        row.values.get("answer"),
    )
    if not isinstance(choices, list) or not 2 <= len(choices) <= len(ascii_uppercase):
        raise Misuse(f"{row.where}: choices: must be a list of 2 to {len(ascii_uppercase)} texts")
    if not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise Misuse(f"{row.where}: choices: one of them is empty or not a text")
    letters = ascii_uppercase[: len(choices)]
    right = letters.find(answer) if isinstance(answer, str) and len(answer) == 1 else answer
    if type(right) is not int or not 0 <= right < len(choices):
        last = f"{len(choices) - 1} or a letter from A to {letters[-1]}"
        raise Misuse(f"{row.where}: answer: must be an index from 0 to {last}, not {answer!r}")
    listed = "\n".join(
        f"{letter}. {choice.strip()}" for letter, choice in zip(letters, choices, strict=True)
    )
    subject = row.text("subject") if row.values.get("subject") not in (None, "") else None
    return Question(f"{asked.strip()}\n{listed}\nAnswer:", len(choices), right, subject)


def _chosen(model: Any, tokenizer: Any, question: Question, name: str) -> int:
    """Index of the choice whose letter is most likely to follow the question."""
    window = int(getattr(model.config, "max_position_embeddings", None) or DEFAULT_WINDOW)
    asked = tokenizer(text=question.prompt)["input_ids"]
    documents = (
        completion_document(asked, f" {letter}", tokenizer)
        for letter in ascii_uppercase[: question.choices]
    )
    nats = [sums_of(model, document, window, max(1, window // 2)).nats for document in documents]
    if not all(map(math.isfinite, nats)):
        raise Misuse(f"{name}: computes likelihoods that are not finite; are its weights damaged?")
    return nats.index(min(nats))
