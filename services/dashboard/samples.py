"""Completions as the page shows them, and the choice of those of an evaluation, which does not
depend on their texts.

Of each task the middle completion is shown, by stage and then by reward; of more tasks than are
shown, those at even distances in the file of completions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from services.dashboard.evaluations import MODES, Evaluation
from services.dashboard.files import ConfinedDirectory, Json, parse_object
from services.dashboard.groups import Faults, is_verdict, read_texts
from services.dashboard.series import read_numbers, to_finite, to_list, to_mapping

MAX_PROMPT_CHARS = 1200
MAX_COMPLETION_CHARS = 2000
MAX_COMPLETION_LINES = 40
MAX_DIAGNOSTICS = 6
MAX_DIAGNOSTIC_CHARS = 600
MAX_TURNS = 24  # messages that are shown of a conversation
MAX_FILE_BYTES = 256 << 20
# Title, whether each side's completion passes, and the most tasks that are shown.
PAIRED = (
    ("Wrong before, right after", (False, True), 6),
    ("Right before, wrong after", (True, False), 6),
    ("Wrong both times", (False, False), 4),
    ("Right both times", (True, True), 2),
)
SINGLE = (("Did not pass", (False,), 24), ("Passed", (True,), 8))


def render_text(value: Any) -> str:
    """Return a prompt or completion as one text; of a conversation, each message after its role."""
    if isinstance(value, str):
        return value
    messages = map(to_mapping, to_list(value)[:MAX_TURNS])
    return "\n\n".join(
        f"[{message.get('role')}]\n{message.get('content')}" for message in messages if message
    )


def cut(text: str, chars: int, lines: int | None = None) -> tuple[str, int]:
    """Return the beginning, and how many characters were left out."""
    beginning = "\n".join(text[:chars].split("\n")[:lines])
    return beginning, len(text) - len(beginning)


def build_sample(
    record: Json, chars: int = MAX_COMPLETION_CHARS, lines: int | None = MAX_COMPLETION_LINES
) -> Json:
    completion, left_out = cut(render_text(record.get("completion")), chars, lines)
    diagnostics = list(map(_build_diagnostic, to_list(record.get("diagnostics"))))
    tests = {name: int(value) for name, value in read_numbers(record.get("tests")).items()}
    fault = record.get("fault")
    if isinstance(fault, Mapping):
        kind = str(fault.get("kind"))[:MAX_DIAGNOSTIC_CHARS]
        fault = {"kind": kind, "message": str(fault.get("message"))[:MAX_DIAGNOSTIC_CHARS]}
    return {
        "completion": completion,
        "left_out": left_out,
        "reward": to_finite(record.get("reward")),
        "advantage": to_finite(record.get("advantage")),
        "passed": record.get("passed") is True,
        "stage": str(record.get("stage") or "")[:40],
        "components": read_numbers(record.get("components")),
        "tests": tests if {"passed", "total"} <= tests.keys() else None,
        "flags": read_texts(record.get("flags")),
        "diagnostics": diagnostics[:MAX_DIAGNOSTICS],
        "more_diagnostics": max(0, len(diagnostics) - MAX_DIAGNOSTICS),
        "fault": fault if isinstance(fault, dict) else None,
        "cached": record.get("cached") is True,
        "cut_off": record.get("finish_reason") == "length",
    }


def _build_diagnostic(value: Any) -> Json:
    diagnostic = to_mapping(value)
    line = to_finite(diagnostic.get("line"))
    return {
        "stage": str(diagnostic.get("stage"))[:40],
        "line": None if line is None else int(line),
        "message": str(diagnostic.get("message"))[:MAX_DIAGNOSTIC_CHARS],
    }


def select_samples(
    confined: ConfinedDirectory, sides: Sequence[Evaluation], modes: Sequence[str] = MODES[::-1]
) -> Json:
    """Choose examples of one evaluation, or of the same tasks in two, in the first of the modes
    that all have; and count faults."""
    if not sides:
        return {"groups": [], "faults": []}
    faults = Faults()
    records = [list(_iter_records(confined, evaluation, faults)) for evaluation in sides]
    chosen: list[dict[str, Json]] = []
    for mode in modes:
        chosen = []
        for evaluation, side_records in zip(sides, records, strict=True):
            chosen.append(_select_middle(side_records, mode, evaluation.content["stages"]))
        if all(chosen):
            break
    names = [evaluation.name for evaluation in sides]
    by_passes: dict[tuple[bool, ...], list[str]] = {}
    common_tasks = chosen[-1].keys()
    for task in chosen[0]:
        if task in common_tasks:
            passes = tuple(side[task].get("passed") is True for side in chosen)
            by_passes.setdefault(passes, []).append(task)
    groups: list[Json] = []
    for title, pass_pattern, max_cards in PAIRED if len(sides) == 2 else SINGLE:
        tasks = by_passes.get(pass_pattern, [])
        cards = []
        for task in tasks[:: math.ceil(len(tasks) / max_cards) or 1]:
            cards.append(_build_card(task, names, [side[task] for side in chosen]))
        if cards:
            groups.append({"title": title, "tasks": len(tasks), "cards": cards})
    return {"groups": groups, "faults": faults.list_most_frequent()}


def _build_card(task: str, names: Sequence[str], records: Sequence[Json]) -> Json:
    prompt, left_out = cut(render_text(records[-1].get("prompt")), MAX_PROMPT_CHARS, 24)
    sides = []
    for name, record in zip(names, records, strict=True):
        sides.append({"name": name, **build_sample(record)})
    return {"task": task, "prompt": prompt, "prompt_left_out": left_out, "sides": sides}


def _iter_records(
    confined: ConfinedDirectory, evaluation: Evaluation, faults: Faults
) -> Iterator[Json]:
    """Yield the verdicts on first answers. Count records without a verdict, also of later turns, as
    faults."""
    for path in (evaluation.completions, evaluation.completions.with_name("turns.jsonl")):
        file = confined.open(path)
        if file is None:
            continue
        with file:
            for line in file:
                if file.tell() > MAX_FILE_BYTES:
                    break
                record = parse_object(line)
                if record is not None and not is_verdict(record):
                    faults.add(record, f"evaluation “{evaluation.name}”")
                elif record is not None and path == evaluation.completions:
                    yield record


def _select_middle(records: Sequence[Json], mode: str, stages: Sequence[str]) -> dict[str, Json]:
    """Return the middle completion of each task, the lower of two; `passed` comes after all
    stages."""
    by_task: dict[str, list[Json]] = {}
    for record in records:
        if record.get("mode") == mode:
            by_task.setdefault(str(record.get("prompt_id") or "")[:200], []).append(record)
    ranks = {stage: n for n, stage in enumerate(stages)}

    def compute_rank(record: Json) -> tuple[int, float]:
        rank = ranks.get(str(record.get("stage")), -1)
        if record.get("passed") is True:
            rank = len(stages)
        return rank, to_finite(record.get("reward")) or 0.0

    typical = {}
    for task, task_records in by_task.items():
        typical[task] = sorted(task_records, key=compute_rank)[(len(task_records) - 1) // 2]
    return typical
