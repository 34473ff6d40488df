"""Completions that no grader judges, kept in a file and continued where they stopped: `gradus sample`.

`calling` and `declining`, which read completions themselves, ask by this too.
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
from trainer.evaluate.collect import collect, progress_bar, troubles
from trainer.evaluate.plan import Plan, Problem
from trainer.evaluate.preparing import Asked, config_of, plan_of, prompt_config, source_of, with_model
from trainer.evaluate.store import opened
from trainer.prompts import Message, Prompt, render_text
from trainer.rewards import Record

EXIT_WRITTEN, EXIT_UNWRITTEN = 0, 3
ROLES = frozenset({"system", "user", "assistant", "developer", "tool"})


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
    digest = hashlib.sha256(data.read_bytes() + f"\0{asked.limit}".encode()).hexdigest()
    plan = plan.model_copy(update={"tasks_sha256": digest})
    records = _written(asked, plan, problems, file, keep_special=keep_special)
    return Asking(plan, round(time.monotonic() - started, 3)), records


def _written(
    asked: Asked, plan: Plan, problems: Sequence[Problem], file: Path, *, keep_special: bool = False
) -> list[Record]:
    """The records of a plan, with its troubles on the terminal."""
    console = Console(stderr=True)
    with opened(file, plan, fresh=asked.fresh) as store, progress_bar(console) as on_progress:
        source = source_of(asked, plan, config_of(asked), keep_special=keep_special)
        records = asyncio.run(collect(source, None, problems, plan, store, on_progress))
    for line in troubles(records):
        console.print(f"gradus: {line}", highlight=False, markup=False, soft_wrap=True)
    return records


def named_rows(data: Path | str, limit: int | None) -> Iterator[tuple[str, Row]]:
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


# --------------------------------------------------------------------------------------------------- `gradus sample`


def main(asked: Asked, prompts: str, out: Path) -> int:
    """Write completions of the prompts of a file to `out`; its path is printed last.

    Rows have `prompt`, a text or messages, or `messages`, and perhaps `id`; other columns are left alone. Returns 0
    when all were written, else 3. Raises Misuse, and QueueFault when the server is away.
    """
    asked = asyncio.run(with_model(asked))
    config = prompt_config(asked, config_of(asked))
    problems = [
        Problem(name, _prompt(row, config), None, row.values.get("kind") and str(row.values["kind"]), config.opening)
        for name, row in named_rows(prompts, asked.limit)
    ]
    plan = plan_of(asked, Path(prompts).name, problems, config)
    records = _written(asked, plan, problems, out)
    missing = sum(record["status"] == "generation_error" for record in records)
    print(f"{len(records) - missing} of {len(records)} completions written")
    print(out)
    return EXIT_UNWRITTEN if missing else EXIT_WRITTEN


def _prompt(row: Row, config: PromptConfig) -> Prompt:
    given = row.values.get("messages", row.values.get("prompt"))
    if isinstance(given, str) and given.strip():
        return render_text(config, given)
    if isinstance(given, list) and given and all(map(_is_message, given)):
        if config.style != "chat":
            raise Misuse(f"{row.where}: holds messages; ask with --chat")
        return [Message(role=turn["role"], content=turn["content"]) for turn in given]
    raise Misuse(f"{row.where}: prompt: is missing, empty, or neither a text nor messages with role and content")


def _is_message(turn: object) -> bool:
    return isinstance(turn, dict) and turn.get("role") in ROLES and isinstance(turn.get("content"), str)
