"""Completions as the page shows them, and which of an evaluation are shown, by a rule that does not
read them.

Of each task it is the middle one by how far they came, then by reward, in the order of the file of
completions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from services.dashboard.evaluations import MODES, Evaluation
from services.dashboard.files import ConfinedDirectory, Json, parsed
from services.dashboard.groups import Faults, is_verdict, numbers_in, texts_in
from services.dashboard.series import finite

MAX_PROMPT_CHARS = 1200
MAX_COMPLETION_CHARS, MAX_COMPLETION_LINES = 2000, 40
MAX_DIAGNOSTICS = 6
MAX_DIAGNOSTIC_CHARS = 600
MAX_TURNS = 24
"""Messages of a prompt that is a conversation."""
MAX_FILE_BYTES = 256 << 20
PAIRED = (
    ("Wrong before, right after", (False, True), 6),
    ("Right before, wrong after", (True, False), 6),
    ("Wrong both times", (False, False), 4),
    ("Right both times", (True, True), 2),
)
SINGLE = (("Did not pass", (False,), 24), ("Passed", (True,), 8))
"""Title, whether each side's completion passes, and the most tasks that are shown."""


def text_of(given: Any) -> str:
    """A prompt or completion as one text; of a conversation, what each says after its role."""
    if isinstance(given, list):
        turns = [one for one in given[:MAX_TURNS] if isinstance(one, Mapping)]
        return "\n\n".join(f"[{one.get('role')}]\n{one.get('content')}" for one in turns)
    return given if isinstance(given, str) else ""


def cut(text: str, chars: int, lines: int | None = None) -> tuple[str, int]:
    """The beginning, and how many characters were left out."""
    kept = "\n".join(text[:chars].split("\n")[:lines])
    return kept, len(text) - len(kept)


def sample_of(
    record: Json, chars: int = MAX_COMPLETION_CHARS, lines: int | None = MAX_COMPLETION_LINES
) -> Json:
    """One completion with what was said of it."""
    completion, left_out = cut(text_of(record.get("completion")), chars, lines)
    given = record.get("diagnostics")
    diagnostics = (
        [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
    )
    tests = numbers_in(record.get("tests"))
    passed, total = tests.get("passed"), tests.get("total")
    fault = record.get("fault")
    return {
        "completion": completion,
        "left_out": left_out,
        "reward": finite(record.get("reward")),
        "advantage": finite(record.get("advantage")),
        "passed": record.get("passed") is True,
        "stage": str(record.get("stage") or "")[:40],
        "components": numbers_in(record.get("components")),
        "tests": None
        if passed is None or total is None
        else {"passed": int(passed), "total": int(total)},
        "flags": texts_in(record.get("flags")),
        "diagnostics": [
            {
                "stage": str(one.get("stage"))[:40],
                "line": None if (line := finite(one.get("line"))) is None else int(line),
                "message": str(one.get("message"))[:MAX_DIAGNOSTIC_CHARS],
            }
            for one in diagnostics[:MAX_DIAGNOSTICS]
        ],
        "more_diagnostics": max(0, len(diagnostics) - MAX_DIAGNOSTICS),
        "fault": {name: str(fault.get(name))[:MAX_DIAGNOSTIC_CHARS] for name in ("kind", "message")}
        if isinstance(fault, Mapping)
        else None,
        "cached": record.get("cached") is True,
        "cut_off": record.get("finish_reason") == "length",
    }


def samples_of(
    confined: ConfinedDirectory, sides: Sequence[Evaluation], modes: Sequence[str] = MODES[::-1]
) -> Json:
    """Examples of one evaluation, or of the same tasks in two, in the first of the modes that all
    have; and faults."""
    faults = Faults()
    if not sides:
        return {"groups": [], "faults": []}
    records = [list(_records(confined, one, faults)) for one in sides]
    chosen: list[dict[str, Json]] = [{} for _ in sides]
    for mode in modes:
        chosen = [
            _middle(given, mode, one.stages) for given, one in zip(records, sides, strict=True)
        ]
        if all(chosen):
            break
    names = [one.name for one in sides]
    tasks = [task for task in chosen[0] if all(task in side for side in chosen)]
    groups = []
    for title, passes, most in PAIRED if len(sides) == 2 else SINGLE:
        found = [
            task
            for task in tasks
            if tuple(side[task].get("passed") is True for side in chosen) == passes
        ]
        cards = []
        for task in varied(found, chosen[-1], most):
            last = chosen[-1][task]
            prompt, left_out = cut(text_of(last.get("prompt")), MAX_PROMPT_CHARS, 24)
            shown = [
                {"name": name, **sample_of(side[task])}
                for name, side in zip(names, chosen, strict=True)
            ]
            kind = str(last.get("kind") or "")[:100]
            cards.append(
                {
                    "task": task,
                    "kind": kind,
                    "prompt": prompt,
                    "prompt_left_out": left_out,
                    "sides": shown,
                }
            )
        if cards:
            groups.append({"title": title, "tasks": len(found), "cards": cards})
    return {"groups": groups, "faults": faults.most_frequent()}


def _records(confined: ConfinedDirectory, evaluation: Evaluation, faults: Faults) -> Iterator[Json]:
    """The verdicts on first answers; what has none, in later turns too, is counted as faults."""
    if evaluation.completions is None:
        return
    for path in (evaluation.completions, evaluation.completions.with_name("turns.jsonl")):
        if (file := confined.open(path)) is None:
            continue
        with file:
            while file.tell() < MAX_FILE_BYTES and (line := file.readline()):
                record = parsed(line)
                if record is not None and not is_verdict(record):
                    faults.add(record, f"evaluation “{evaluation.name}”")
                elif record is not None and path == evaluation.completions:
                    yield record


def _middle(records: Sequence[Json], mode: str, stages: Sequence[str]) -> dict[str, Json]:
    """The middle completion of each task, the lower of two; `passed` comes after all stages."""
    by_task: dict[str, list[Json]] = {}
    for record in records:
        if record.get("mode") == mode:
            by_task.setdefault(str(record.get("prompt_id") or "")[:200], []).append(record)

    def key(record: Json) -> tuple[int, float]:
        stage = str(record.get("stage"))
        rank = (
            len(stages)
            if record.get("passed") is True
            else stages.index(stage)
            if stage in stages
            else -1
        )
        return rank, finite(record.get("reward")) or 0.0

    return {task: sorted(found, key=key)[(len(found) - 1) // 2] for task, found in by_task.items()}


def varied(tasks: Sequence[str], records: Mapping[str, Json], most: int) -> list[str]:
    """Up to `most` of them, in their order, but the first of every kind of task before the second
    of any."""
    counts: Counter[str] = Counter()
    ranked = []
    for place, task in enumerate(tasks):
        kind = str(records[task].get("kind"))
        ranked.append((counts[kind], place, task))
        counts[kind] += 1
    return [task for _, _, task in sorted(ranked)[:most]]
