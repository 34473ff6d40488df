"""An evaluation's completions as a CSV table for other programs. Computes no figures.

Whatever a model wrote is text: no cell of the table can be a formula.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from gradus.descriptions import GraderDescription
from gradus.languages import load_language
from trainer.evaluate.verdicts import Record, extract_code, find_cause

AS_STORED = ("kind", "difficulty", "mode", "sample", "status", "passed", "reward", "stage")
AS_MADE = ("finish_reason", "prompt_tokens", "completion_tokens", "latency_s")
"""Columns that are a record's own fields."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render_csv(records: Sequence[Record], description: GraderDescription) -> str:
    """CSV with a row for each completion; parts of the reward are columns `component:NAME`."""
    parts = dict.fromkeys(name for record in records for name in record["components"])
    rows = [_build_row(record, list(parts), description) for record in records]
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _build_row(
    record: Record, parts: Sequence[str], description: GraderDescription
) -> dict[str, Any]:
    is_imperative = load_language(description.name).is_imperative
    code = extract_code(record["completion"], description.fences)
    tests = record.get("tests") or {}
    row = {
        "id": record["prompt_id"],
        **{name: record.get(name) for name in AS_STORED},
        "cause": find_cause(record),
        "tests_passed": tests.get("passed"),
        "tests_total": tests.get("total"),
        **{name: record.get(name) for name in AS_MADE},
        "completion_chars": len(record["completion"]),
        "imperative": is_imperative(code) if is_imperative else None,
        "flags": " ".join(record["flags"]),
        **{f"component:{name}": record["components"].get(name) for name in parts},
    }
    return {name: _escape_cell(cell) for name, cell in row.items()}


def _escape_cell(cell: Any) -> Any:
    """Return a text that a spreadsheet would take for a formula gets an apostrophe in front."""
    if isinstance(cell, str):
        cell = cell.replace("\0", "\N{REPLACEMENT CHARACTER}")
        return "'" + cell if cell.startswith(FORMULA) else cell
    return cell
