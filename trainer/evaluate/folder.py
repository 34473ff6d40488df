"""The folder that `gradus eval` leaves: what lies where, written and read again. Asks, grades and draws nothing.

    plan.json          what was asked
    tasks.jsonl        the tasks with the prompts as the model read them
    completions.jsonl  every first answer with its verdict, in the plan's order
    turns.jsonl        every later one, where more turns than one were asked for
    results.json       the figures, `outcome.Evaluation`
    results.csv        a row for each completion, without its text
    junit.xml          a test case for each completion
    report.html        the figures to look at

What reads an evaluation also takes results.json by itself, and RUN/eval/NAME.json of a training run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gradus.errors import Misuse
from gradus.row_reader import Row, read_rows
from gradus.validation import explain
from trainer.evaluate.measure import Problem
from trainer.evaluate.outcome import Evaluation
from trainer.evaluate.store import write_lines
from trainer.rewards import Record


class EvalFolder:
    """Names of everything in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan = path / "plan.json"
        self.tasks = path / "tasks.jsonl"
        self.completions = path / "completions.jsonl"
        self.turns = path / "turns.jsonl"
        self.results = path / "results.json"
        self.table = path / "results.csv"
        self.junit = path / "junit.xml"
        self.report = path / "report.html"


@dataclass(frozen=True, slots=True)
class Read:
    """An evaluation that was read again."""

    path: Path
    """Of its figures."""
    evaluation: Evaluation
    completions: Path
    """May be missing: figures can be compared without."""

    def records(self) -> list[Record]:
        """Every completion; empty where the file is missing. Raises Misuse for a damaged one."""
        return [dict(row.values) for row in stored_rows(self.completions)] if self.completions.exists() else []


def read_evaluation(path: Path) -> Read:
    """The evaluation in a folder of `gradus eval`, or in a file of figures. Raises Misuse when there is none."""
    figures = path / "results.json" if path.is_dir() else path
    beside = figures.name == "results.json"
    completions = figures.with_name("completions.jsonl" if beside else f"{figures.stem}.completions.jsonl")
    try:
        return Read(figures, Evaluation.model_validate_json(figures.read_bytes()), completions)
    except OSError as error:
        raise Misuse(f"{figures}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise Misuse(f"{figures}: is no evaluation that this version can read: {explain(error)}") from None


def stored_rows(file: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines that a program wrote; one that a crash tore off at the end is left out.

    Raises Misuse naming the line of any other that cannot be read.
    """
    rows = list(read_rows(file))
    if rows and rows[-1].problem is not None and not file.read_bytes().endswith(b"\n"):
        rows.pop()
    for row in rows:
        yield row.checked()


def write_tasks(path: Path, problems: Iterable[Problem]) -> None:
    """The tasks as they are asked, for reading completions and for grading them again."""
    write_lines(path, [_task_row(problem) for problem in problems])


def _task_row(problem: Problem) -> Record:
    return {
        "id": problem.id,
        "kind": problem.kind,
        "difficulty": problem.difficulty,
        "prompt": problem.prompt,
        **({"stub": problem.stub} if problem.stub is not None else {}),
        "task": problem.task.model_dump(mode="json") if problem.task is not None else None,
    }


def write_text(path: Path, text: str) -> None:
    """Write a file at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    # Half a surrogate pair can come from a record; it must not cost the reader the file.
    partial.write_text(text, encoding="utf-8", errors="replace")
    os.replace(partial, path)
