"""Tasks from files and hubs: rows are read, checked and split here. Renders no prompt and grades
nothing.

A row has `id`, `prompt` and the fields of the grader's task (`tests`, `signature`, `module` ... as
in `gradus.contract`), flat or under `task`. Of a grader that this SDK has no task class for, all
other columns are fields of the task, which the grader checks. Rows that cannot be used are refused
with file and line, and skipped only where that is asked for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from gradus.contract import GraderName
from gradus.errors import Misuse
from gradus.row_reader import SUFFIXES, Row
from gradus.row_reader import read_rows as read_file
from gradus.strict_json import parse_strict_json
from gradus.tasks import get_task_class
from gradus.tasks.base import AnyTask, Task
from gradus.validation import explain
from trainer.config.run import DataConfig, RowSource, describe_nearest

T = TypeVar("T")

DESCRIBING = (
    *(
        "difficulty",
        "kind",
        "source",
        "stub",
        "tags",
        "title",
        "topics",
        "licence",
        "license",
        "notes",
    ),
    *("group", "message"),
)
"""Columns that describe a task. They are known, but neither prompts nor grading use them."""

ALIASES = {"story": ("formatted_issues",)}
"""Other names that the contract knows for fields of a task."""

LEVELS = ("easy", "medium", "hard")
"""Difficulties in words, ascending from 0."""

_STRUCTURED = (
    "packages",
    "dependencies",
    "cases",
    "files",
    "limits",
    "team_context",
    "references",
    "public_tests",
    "public_cases",
    "checker",
    "points",
)


@dataclass(frozen=True, slots=True)
class Example:
    """One task as the trainer holds it."""

    id: str
    prompt: str
    task: Task | None
    """None where no grader judges: a prompt for reward models."""
    solution: str | None = None
    kind: str | None = None
    """A column `kind` or `difficulty`, for tables that compare kinds of tasks."""
    difficulty: str | None = None
    """A column `difficulty`, for the same."""

    @property
    def task_for_grading(self) -> Task:
        """The task, for graders. Raises Misuse where there is none."""
        if self.task is None:
            raise Misuse(f"{self.id}: is a bare prompt, which no grader can judge")
        return self.task


@dataclass(frozen=True, slots=True)
class Tasks:
    """What to train on and what to measure on; no test text is in both."""

    train: tuple[Example, ...]
    held_out: tuple[Example, ...]
    skipped: tuple[str, ...] = ()
    """Why, for each row that was left out."""


# ------------------------------------------------------------------------------------------- tasks


def load_tasks(config: DataConfig, grader: GraderName | None, seed: int = 42) -> Tasks:
    """Return the tasks of a run, split; bare prompts without a grader. Raises Misuse naming file
    and line."""
    examples, skipped = read_examples(config, config.dataset, grader)
    examples = examples[: config.limit]
    examples = _sort_examples(examples, config.order)
    if grader is None:
        return Tasks(examples, (), skipped)
    if config.eval_dataset is not None:
        held_out, skipped_too = read_examples(config, config.eval_dataset, grader)
        overlap = _find_overlap(examples, held_out, config)
        if overlap and config.unusable == "refuse":
            raise Misuse(f"{next(iter(overlap.values()))}; a held-out task must not be trained on")
        examples = tuple(example for example in examples if example.id not in overlap)
        return Tasks(examples, held_out, (*skipped, *skipped_too, *overlap.values()))
    # Drawn by what judges them, so that variants of one task stay on one side.
    train, held_out = split(
        examples, lambda example: _compute_sha256(str(seed), _encode_task(example)), config.held_out
    )
    if not train:
        raise Misuse(f"{config.dataset}: held_out {config.held_out} leaves no task to train on")
    return Tasks(train, held_out, skipped)


def read_examples(
    config: DataConfig, dataset: str, grader: GraderName | None
) -> tuple[tuple[Example, ...], tuple[str, ...]]:
    """Return all tasks of one dataset, in its order, and what is wrong with those that are skipped.

    Without a grader bare prompts, whose `id` is made where there is none. Raises Misuse naming file
    and line.
    """
    column_names = ["id", "prompt", *DESCRIBING]
    is_foreign = False
    if grader is not None:
        column_names += ["task", "solution", *get_task_class(grader).model_fields]
        is_foreign = get_task_class(grader) is AnyTask
    examples: list[Example] = []
    skipped: list[str] = []
    first: dict[str, str] = {}
    rows = read_named_rows(dataset, config, column_names, keeps_others=is_foreign)
    for number, row in enumerate(rows, start=1):
        try:
            if grader is None:
                example = Example(
                    str(row.values.get("id") or f"row-{number}"), row.text("prompt"), None
                )
            else:
                example = _parse_example(row, grader)
            _refuse_duplicate(row, example, first)
            examples.append(example)
        except Misuse as misuse:
            if config.unusable == "refuse":
                raise
            skipped.append(str(misuse))
    if not examples:
        raise Misuse(
            f"{dataset}: holds no rows" + (f" that can be used: {skipped[0]}" if skipped else "")
        )
    return tuple(examples), tuple(skipped)


def _sort_examples(examples: tuple[Example, ...], order: str) -> tuple[Example, ...]:
    """Return the tasks in the order that `data.order` names. Raises Misuse naming a task whose
    difficulty is no number."""
    if order == "shuffled":
        return examples
    return tuple(
        sorted(
            examples,
            key=_parse_difficulty if order == "difficulty" else lambda example: len(example.prompt),
        )
    )


def _parse_difficulty(example: Example) -> float:
    level = (example.difficulty or "").strip().lower()
    with suppress(ValueError):
        if math.isfinite(value := LEVELS.index(level) if level in LEVELS else float(level)):
            return value
    raise Misuse(
        f"data.order: difficulty: task {example.id!r} has the difficulty {example.difficulty!r}; "
        f"write numbers, or {', '.join(LEVELS)}"
    )


def _parse_example(row: Row, grader: GraderName) -> Example:
    values = row.values
    task_class = get_task_class(grader)
    fields = (*task_class.model_fields, *ALIASES.get(grader, ()))
    if task_class is AnyTask:
        others = ("id", "prompt", "task", "solution", *DESCRIBING)
        fields = tuple(name for name in values if name not in others)
    if isinstance(values.get("task"), Mapping):
        task_values = dict(values["task"])
    else:
        task_values = {}
    task_values |= {
        name: _parse_cell(name, values[name]) for name in fields if not _is_empty(values.get(name))
    }
    try:
        task = task_class.model_validate(task_values)
    except ValidationError as error:
        raise Misuse(f"{row.where}: {explain(error)}") from None
    label = values.get("kind") or values.get("difficulty")
    return Example(
        id=str(values["id"]) if isinstance(values.get("id"), int) else row.text("id"),
        prompt=row.text("prompt"),
        task=task,
        solution=values.get("solution") or None,
        kind=None if label is None else str(label),
        difficulty=None if _is_empty(values.get("difficulty")) else str(values["difficulty"]),
    )


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _parse_cell(name: str, value: Any) -> Any:
    """A CSV cell holds lists and mappings as JSON, or names with spaces or commas between them."""
    if name not in _STRUCTURED or not isinstance(value, str):
        return value
    if value.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError):
            return parse_strict_json(value)
    elif name in ("packages", "dependencies"):
        return value.replace(",", " ").split()
    return value


# ---------------------------------------------------------------------- duplicates and splits


def split(
    items: Sequence[T], draw: Callable[[T], str], share: float
) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return what to train on and what is held out; items with the same draw never part."""
    draws = [draw(item) for item in items]
    ranked = sorted(set(draws))
    kept_out = set(ranked[: round(share * len(ranked))])
    train = tuple(item for item, drawn in zip(items, draws, strict=True) if drawn not in kept_out)
    return train, tuple(item for item, drawn in zip(items, draws, strict=True) if drawn in kept_out)


def _compute_sha256(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()


def _compute_content_key(example: Example) -> str:
    return _compute_sha256(example.prompt.strip(), _encode_task(example))


def _encode_task(example: Example) -> str:
    return example.task.model_dump_json() if example.task is not None else ""


def _refuse_duplicate(row: Row, example: Example, first: dict[str, str]) -> None:
    """Raise Misuse when `first`, places by key, has this id, or this prompt with these tests; else
    adds the place."""
    keys = {f"id:{example.id}": f"id {example.id!r}"}
    if example.task is not None:
        keys[_compute_content_key(example)] = "this prompt with these tests"
    for key, description in keys.items():
        if key in first:
            raise Misuse(f"{row.where}: {description} occurred before, at {first[key]}")
    first |= dict.fromkeys(keys, row.where)


def _find_overlap(
    train: Sequence[Example], held_out: Sequence[Example], config: DataConfig
) -> dict[str, str]:
    """Mistakes by id of a task: it is to be trained on and held out as well."""
    trained = {_compute_content_key(example): example.id for example in train}
    pairs = ((candidate.id, trained.get(_compute_content_key(candidate))) for candidate in held_out)
    overlaps = {}
    for name, same in pairs:
        if same is not None:
            overlaps[same] = (
                f"{config.eval_dataset}: task {name!r} is also in {config.dataset} (as {same!r})"
            )
    return overlaps


# -------------------------------------------------------------------------------------------- rows


def read_named_rows(
    dataset: str, config: RowSource, column_names: Iterable[str], *, keeps_others: bool = False
) -> Iterator[Row]:
    """Yield rows with the column names of Gradus. Raises Misuse for unknown columns, unless
    `keeps_others`."""
    ours_of = {theirs: ours for ours, theirs in config.columns.items()}
    column_names = list(column_names)
    if unknown_targets := sorted(set(config.columns) - set(column_names)):
        raise Misuse(
            f"data.columns: {', '.join(unknown_targets)}: no such column; known:"
            f" {', '.join(column_names)}"
        )
    for row in read_rows(dataset, config.split):
        values = {ours_of.get(name, name): value for name, value in row.values.items()}
        ignored = set(values) if "*" in config.ignore_columns else {*config.ignore_columns}
        strangers = [name for name in values if name not in column_names and name not in ignored]
        if strangers and not keeps_others:
            hints = ", ".join(name + describe_nearest(name, column_names) for name in strangers)
            raise Misuse(
                f"{row.where}: unknown columns: {hints}; known: {', '.join(column_names)}. "
                "Rename with data.columns, drop with data.ignore_columns"
            )
        kept = {*column_names, *strangers}
        yield Row(row.where, {name: value for name, value in values.items() if name in kept})


def read_rows(dataset: str, split: str = "train") -> Iterator[Row]:
    """Yield the records of a file, of a demo, or of a dataset on the hub. Raises Misuse naming file
    and line."""
    if dataset.startswith("demo:"):
        from trainer.data.demo_tasks import generate_demo_rows

        yield from (
            Row(f"{dataset} row {n}", values)
            for n, values in enumerate(generate_demo_rows(dataset), start=1)
        )
    elif Path(dataset).suffix in SUFFIXES:
        yield from (row.require_valid() for row in read_file(dataset))
    else:
        yield from _load_hub_rows(dataset, split)


def _load_hub_rows(dataset: str, split: str) -> Iterator[Row]:
    import datasets

    try:
        loaded = datasets.load_dataset(dataset, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise Misuse(
            f"{dataset}: is neither a {'/'.join(SUFFIXES)} file nor a dataset that the hub gives us"
            f" ({type(error).__name__}:"
            f" {str(error).splitlines()[0] if str(error) else 'no reason given'})"
        ) from None
    for number, values in enumerate(loaded, start=1):
        yield Row(f"{dataset}[{split}] row {number}", dict(values))
