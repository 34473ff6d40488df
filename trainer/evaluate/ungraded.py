"""Asking a model for what no grader judges: one completion of each problem, kept in a file, continued where it stopped.

For measurements that read completions themselves, `calling` and `declining`. Makes no figures.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from gradus.errors import Misuse
from gradus.row_reader import Row, read_rows
from trainer.config import PromptConfig
from trainer.evaluate.asking import Plan
from trainer.evaluate.collect import collect
from trainer.evaluate.console import progress_bar, troubles
from trainer.evaluate.measure import Problem
from trainer.evaluate.preparing import Asked, config_of, plan_of, source_of
from trainer.evaluate.store import opened
from trainer.rewards import Record

EXIT_WRITTEN, EXIT_UNWRITTEN = 0, 3


@dataclass(frozen=True, slots=True)
class Asking:
    """What was asked, for the figures."""

    plan: Plan
    duration_s: float

    @property
    def seed(self) -> int:
        return self.plan.seed

    def told(self) -> dict[str, Any]:
        """The fields of figures that say what was measured."""
        plan = self.plan
        named = {"model": plan.model, "data": plan.tasks, "data_sha256": plan.tasks_sha256}
        same = ("temperature", "seed", "max_new_tokens")
        return named | {name: getattr(plan, name) for name in same} | {"duration_s": self.duration_s}


def asked_for(
    asked: Asked,
    data: Path,
    problems: Sequence[Problem],
    prompt: PromptConfig,
    file: Path,
    *,
    keep_special: bool = False,
) -> tuple[Asking, list[Record]]:
    """One completion of each problem, in their order; `asked` has its model. Raises what asking raises."""
    started = time.monotonic()
    if asked.samples != 1 or asked.turns != 1:
        raise Misuse("here everything is asked for once: leave --samples and --turns out")
    asked = replace(asked, greedy=asked.temperature == 0)
    plan = plan_of(asked, data.name, problems, prompt)
    plan = plan.model_copy(update={"tasks_sha256": _sha256(data, asked.limit)})
    console = Console(stderr=True)
    with opened(file, plan, fresh=asked.fresh) as store, progress_bar(console) as on_progress:
        source = source_of(asked, plan, config_of(asked), keep_special=keep_special)
        records = asyncio.run(collect(source, None, problems, plan, store, on_progress))
    for line in troubles(records):
        console.print(f"gradus: {line}", highlight=False, markup=False, soft_wrap=True)
    return Asking(plan, round(time.monotonic() - started, 3)), records


def named_rows(data: Path, limit: int | None) -> Iterator[tuple[str, Row]]:
    """The first `limit` rows, checked, each with its id or, without one, its number. Raises Misuse for an id that
    occurred before, and for a file without rows."""
    seen: dict[str, str] = {}
    for number, row in enumerate(islice(read_rows(data), limit), start=1):
        checked = row.checked()
        name = str(checked.values.get("id") or f"row-{number}")
        if name in seen:
            raise Misuse(f"{row.where}: id {name!r} occurred before, at {seen[name]}")
        seen[name] = row.where
        yield name, checked
    if not seen:
        raise Misuse(f"{data}: holds no rows")


def unwritten_of(records: Sequence[Record]) -> dict[str, int]:
    """Generation errors by kind."""
    return dict(Counter(one["error"]["kind"] for one in records if one["status"] != "written"))


def _sha256(file: Path, limit: int | None) -> str:
    return hashlib.sha256(file.read_bytes() + f"\0{limit}".encode()).hexdigest()
