"""Completions that no grader judges, kept in a file and continued where they stopped: `gradus
sample`.

`calling` and `declining`, which read completions themselves, ask by this too.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from gradus.errors import Misuse
from gradus.row_reader import Row, read_non_empty_rows
from gradus.whole_file import write_text
from trainer.config.run import PromptConfig
from trainer.data.prompts import Message, Prompt, render_text
from trainer.evaluate.breakdowns import compute_text_metrics
from trainer.evaluate.collect import collect, report_troubles, show_progress_bar
from trainer.evaluate.completion_store import is_chat, open_store
from trainer.evaluate.intervals import Part
from trainer.evaluate.plan import CompletionSource, EvalPlan, Problem
from trainer.evaluate.setup import (
    SamplingOptions,
    build_plan,
    create_source,
    resolve_config,
    resolve_model,
    resolve_prompt_config,
)
from trainer.rewards.judge import Record

EXIT_WRITTEN, EXIT_UNWRITTEN = 0, 3
ROLES = ("system", "user", "assistant", "developer", "tool")


class UngradedFigures(Part):
    """The fields of figures without a grader that say what was measured, and how."""

    model: str
    data: str
    data_sha256: str
    unwritten: dict[str, int]
    """Generation errors by kind; what was not written is in no share."""
    temperature: float
    seed: int
    max_new_tokens: int
    duration_s: float

    @staticmethod
    def compute_fields(
        plan: EvalPlan, records: Sequence[Record], duration_s: float
    ) -> dict[str, Any]:
        """Return the values of these fields."""
        return {
            "model": plan.model,
            "data": plan.tasks,
            "data_sha256": plan.tasks_sha256,
            "unwritten": dict(
                Counter(
                    record["error"]["kind"] for record in records if record["status"] != "written"
                )
            ),
            **{name: getattr(plan, name) for name in ("temperature", "seed", "max_new_tokens")},
            "duration_s": round(duration_s, 3),
        }


def generate_completions(
    options: SamplingOptions,
    data: Path,
    problems: Sequence[Problem],
    prompt: PromptConfig,
    file: Path,
    *,
    keep_special: bool,
) -> tuple[EvalPlan, list[Record]]:
    """Return one completion of each problem, in their order; `options` has its model. Raises what
    asking raises."""
    plan = build_plan(
        options.model_copy(update={"greedy": options.temperature == 0}), data.name, problems, prompt
    )
    digest = hashlib.sha256(data.read_bytes() + f"\0{options.limit}".encode()).hexdigest()
    plan = plan.model_copy(update={"tasks_sha256": digest})
    source = create_source(options, plan, resolve_config(options), keep_special=keep_special)
    return plan, _collect_records(options, plan, problems, file, source)


def _collect_records(
    options: SamplingOptions,
    plan: EvalPlan,
    problems: Sequence[Problem],
    file: Path,
    source: CompletionSource,
) -> list[Record]:
    """Return the records of a plan, with its troubles on the terminal."""
    console = Console(stderr=True)
    with (
        open_store(file, plan, fresh=options.fresh) as store,
        show_progress_bar(console) as on_progress,
    ):
        records = asyncio.run(collect(source, None, problems, plan, store, on_progress))
    report_troubles(console, records)
    return records


def print_figures(figures: UngradedFigures, lines: Iterable[str], file: Path) -> int:
    """Write the figures to `file` and print `lines` and its path; returns the exit status."""
    write_text(file, figures.model_dump_json(by_alias=True, indent=1) + "\n")
    for line in lines:
        print(line)
    print(file)
    return EXIT_UNWRITTEN if figures.unwritten else EXIT_WRITTEN


def read_named_rows(data: Path, limit: int | None) -> Iterator[tuple[str, Row]]:
    """Yield the first `limit` rows, checked, each with its id or, without one, its number."""
    for number, row in enumerate(islice(read_non_empty_rows(data), limit), start=1):
        yield str(row.values.get("id") or f"row-{number}"), row


def main(options: SamplingOptions, prompts: Path, out: Path, *, metrics: bool = False) -> int:
    """Write completions of the prompts of a file to `out`; its path is printed last.

    `metrics`: also print their metrics, and write them beside `out`, as `NAME.metrics.json`.

    Rows have `prompt`, a text or messages, or `messages`, and perhaps `id`; other columns are left
    alone. Returns 0 when all were written, else 3. Raises Misuse, and QueueFault when the server is
    away.
    """
    options = asyncio.run(resolve_model(options))
    config = resolve_prompt_config(options, resolve_config(options))
    problems = []
    for name, row in read_named_rows(prompts, options.limit):
        problems.append(
            Problem(
                name,
                _parse_prompt(row, config),
                None,
                row.values.get("kind") and str(row.values["kind"]),
            )
        )
    plan = build_plan(options, prompts.name, problems, config)
    source = create_source(options, plan, resolve_config(options))
    records = _collect_records(options, plan, problems, out, source)
    missing = sum(record["status"] == "generation_error" for record in records)
    print(f"{len(records) - missing} of {len(records)} completions written")
    if metrics:
        texts = []
        for record in records:
            if record["status"] == "written":
                texts.append(record["completion"])
        figures = dict(compute_text_metrics(texts) or ())
        summary = {"schema": "gradus/sample@1", "model": plan.model, "completions": len(texts)}
        write_text(
            out.with_suffix(".metrics.json"),
            json.dumps({**summary, "text": figures}, indent=1) + "\n",
        )
        for name, value in figures.items():
            print(f"{name:<12}{value:.4g}")
    print(out)
    return EXIT_UNWRITTEN if missing else EXIT_WRITTEN


def _parse_prompt(row: Row, config: PromptConfig) -> Prompt:
    value = row.values.get("messages", row.values.get("prompt"))
    if isinstance(value, str) and value.strip():
        return render_text(config, value)
    if value and is_chat(value, ROLES):
        if config.style != "chat":
            raise Misuse(f"{row.where}: holds messages; ask with --set chat=true")
        return [Message(role=turn["role"], content=turn["content"]) for turn in value]
    raise Misuse(
        f"{row.where}: prompt: is missing, empty, or neither a text nor messages with role and"
        " content"
    )
