"""Files of an evaluation: the completions of a plan, which survive a crash, and the folder that
`gradus eval` leaves.

Each completion is a line when it was written, and another when it was judged; the last line of a
key counts. `finish` leaves one line for each, in the plan's order. The folder:

    plan.json          what was asked
    tasks.jsonl        the tasks with the prompts as the model read them
    completions.jsonl  every first answer with its verdict, in the plan's order
    turns.jsonl        every later one, where more turns than one were asked for
    results.json       the figures, `results.Evaluation`
    results.csv        a row for each completion, without its text
    report.html        the figures to look at
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.folder_lock import locked
from gradus.validation import read_as
from gradus.whole_file import write_text
from trainer.evaluate.plan import EvalPlan, Key, Problem
from trainer.rewards.judge import Record
from trainer.runs.folder import append_lines, find_free_name, replace_nonfinite

COMPLETIONS, TASKS, TURNS = "completions.jsonl", "tasks.jsonl", "turns.jsonl"


def get_key(record: Record) -> Key:
    return (
        str(record["mode"]),
        str(record["prompt_id"]),
        int(record["sample"]),
        int(record.get("turn", 1)),
    )


class Completions:
    """The completions of a plan, in memory and, with a path, on the disk alike."""

    def __init__(self, path: Path | None = None, records: dict[Key, Record] | None = None) -> None:
        self._path = path
        self.records = records or {}

    def append(self, records: Iterable[Record]) -> None:
        """Add records, or newer ones of the same keys."""
        batch = list(records)
        if self._path is not None:
            append_lines(self._path, batch)
        self.records |= {get_key(record): record for record in batch}

    def finish(self, order: Iterable[Key]) -> list[Record]:
        """Leave one line for each key, in that order; returns the records."""
        records = [self.records[key] for key in order if key in self.records]
        if self._path is not None:
            write_lines(self._path, records)
        return records


@contextmanager
def open_store(path: Path, plan: EvalPlan, *, fresh: bool = False) -> Iterator[Completions]:
    """The file at `path`, with what earlier runs of the same plan left there; `fresh` sets that
    aside first.

    The plan stands beside it in `plan.json` of the folder, or `<name>.plan.json` where the file is
    not called `completions.jsonl`. Raises Misuse for another plan, a damaged file, and while
    another process writes there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name("plan.json" if path.name == COMPLETIONS else path.name + ".plan.json")
    refusal = f"{path}: another process is writing here; choose another --out"
    with locked(path.with_name(f".{path.name}.lock"), refusal):
        if fresh:
            for file in (path, beside):
                if file.exists():
                    file.rename(find_free_name(file.with_name(f"{file.name}.previous-")))
        _check_plan(beside, plan, path)
        yield Completions(path, _read_records(path))


def write_lines(path: Path, records: Iterable[Record]) -> None:
    """Write a whole file of JSON lines, at once or not at all."""
    write_text(path, "".join(map(_render_line, records)))


def _render_line(record: Record) -> str:
    return json.dumps(replace_nonfinite(record), ensure_ascii=False, allow_nan=False) + "\n"


def _check_plan(beside: Path, plan: EvalPlan, path: Path) -> None:
    """Check that the stored plan is the same, or store the plan where no completion exists yet."""
    if not path.exists() or not path.stat().st_size:
        beside.write_text(plan.model_dump_json(by_alias=True, indent=1) + "\n", encoding="utf-8")
        return
    if not beside.exists():
        raise Misuse(f"{path}: exists without {beside.name}; use --no-resume, or another --out")
    earlier = read_as(EvalPlan, beside, "plan", "; use --no-resume")
    changed = []
    for name, was in earlier:
        if was != getattr(plan, name):
            changed.append(
                f"{name} was {_format_value(was)} and is now {_format_value(getattr(plan, name))}"
            )
    if changed:
        raise Misuse(
            f"{path}: holds completions of another plan: {'; '.join(changed)}. "
            "To resume, use the earlier options; else use --no-resume, or another --out"
        )


def _format_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _read_records(path: Path) -> dict[Key, Record]:
    """Return the last record of each key. A line that a crash tore off at the end is cut away."""
    if not path.exists():
        return {}
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end != len(data):
        os.truncate(path, end)
    records: dict[Key, Record] = {}
    for number, line in enumerate(data[:end].split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if record["status"] not in STATUSES or not isinstance(record["completion"], str):
                raise ValueError("no such status")
            records[get_key(record)] = record
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Misuse(
                f"{path}:{number}: not a completion of Gradus; use --no-resume, or another --out"
            ) from None
    return records


STATUSES = frozenset({"written", "graded", "faulted", "generation_error"})
"""States of a completion: not judged yet, judged, not judged because of a fault, or never
written."""


def is_chat(value: Any, roles: Collection[str] | None = None) -> bool:
    """Return whether a stored value is messages, each with a content and a role: one of `roles`,
    where these are given."""
    return isinstance(value, list) and all(
        isinstance(turn, Mapping)
        and isinstance(turn.get("content"), str)
        and ("role" in turn if roles is None else turn.get("role") in roles)
        for turn in value
    )


def write_tasks(path: Path, problems: Iterable[Problem]) -> None:
    """The tasks as they are asked, for reading completions and for grading them again."""
    rows: list[Record] = []
    for problem in problems:
        rows.append(
            {
                "id": problem.id,
                "kind": problem.kind,
                "difficulty": problem.difficulty,
                "prompt": problem.prompt,
                "task": problem.task.model_dump(mode="json") if problem.task is not None else None,
            }
        )
    write_lines(path, rows)
