"""`gradus sample`: completions of prompts from a server or a model here, as JSON lines. Grades nothing.

The same asking as `gradus eval`'s: bounded, tried again, continued where it was left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from gradus.errors import Misuse
from gradus.row_reader import Row, read_rows
from trainer.config import PromptConfig
from trainer.evaluate.collect import collect
from trainer.evaluate.console import progress_bar, troubles
from trainer.evaluate.measure import Problem
from trainer.evaluate.preparing import Asked, config_of, plan_of, prompt_config, source_of, with_model
from trainer.evaluate.store import opened
from trainer.prompts import Message, Prompt, render_text

EXIT_WRITTEN, EXIT_UNWRITTEN = 0, 3
ROLES = frozenset({"system", "user", "assistant", "developer", "tool"})


def main(asked: Asked, prompts: str, out: Path) -> int:
    """Write completions of the prompts of a file to `out`; its path is printed last.

    Rows have `prompt`, a text or messages, or `messages`, and perhaps `id`; other columns are left alone. Returns 0
    when all were written, else 3. Raises Misuse, and QueueFault when the server is away.
    """
    asked = asyncio.run(with_model(asked))
    trained_with = config_of(asked)
    config = prompt_config(asked, trained_with)
    problems = list(_problems(prompts, config))[: asked.limit]
    plan = plan_of(asked, Path(prompts).name, problems, config)
    console = Console(stderr=True)
    with opened(out, plan, fresh=asked.fresh) as store, progress_bar(console) as on_progress:
        source = source_of(asked, plan, trained_with)
        records = asyncio.run(collect(source, None, problems, plan, store, on_progress))
    for line in troubles(records):
        console.print(f"gradus: {line}", highlight=False, markup=False, soft_wrap=True)
    missing = sum(record["status"] == "generation_error" for record in records)
    print(f"{len(records) - missing} of {len(records)} completions written")
    print(out)
    return EXIT_UNWRITTEN if missing else EXIT_WRITTEN


def _problems(prompts: str, config: PromptConfig) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for number, row in enumerate(read_rows(prompts), start=1):
        values = row.checked().values
        name = str(values.get("id") or f"row-{number}")
        if name in seen:
            raise Misuse(f"{row.where}: id {name!r} occurred before, at {seen[name]}")
        seen[name] = row.where
        yield Problem(name, _prompt(row, config), None, _label(values.get("kind")), config.opening)


def _label(value: object) -> str | None:
    return None if value is None else str(value)


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
