"""An evaluation's completions for other programs: a CSV table and JUnit XML. Computes no figures.

Whatever a model wrote is text: XML gets no character that it forbids, and no cell of the table can
be a formula.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from gradus.descriptions import description_of
from gradus.languages import language_of
from trainer.evaluate.results import Evaluation
from trainer.evaluate.verdicts import Record, cause_of, code_of, grader_of, is_judged

AS_STORED = ("kind", "difficulty", "mode", "sample", "status", "passed", "reward", "stage")
AS_MADE = ("finish_reason", "prompt_tokens", "completion_tokens")
"""Columns that are a record's own fields."""
MOST_DIAGNOSTICS = 5
FORMULA = ("=", "+", "-", "@", "\t", "\r")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def table_of(records: Sequence[Record]) -> str:
    """CSV with a row for each completion; parts of the reward are columns `component:NAME`."""
    parts = {f"component:{name}": name for record in records for name in record["components"]}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number, record in enumerate(records):
        tests = record.get("tests") or {}
        tokens, latency_s = record.get("completion_tokens"), record.get("latency_s")
        grader = grader_of([record])
        is_imperative, fences = language_of(grader).is_imperative, description_of(grader).fences
        cells = {
            "id": record["prompt_id"],
            **{name: record.get(name) for name in AS_STORED},
            "cause": cause_of(record),
            "tests_passed": tests.get("passed"),
            "tests_total": tests.get("total"),
            **{name: record.get(name) for name in AS_MADE},
            "tokens_per_s": round(tokens / latency_s, 3)
            if tokens is not None and latency_s
            else None,
            "latency_s": latency_s,
            "attempts": record.get("attempts"),
            "completion_chars": len(record["completion"]),
            "imperative": is_imperative(code_of(record["completion"], fences))
            if is_imperative
            else None,
            "flags": " ".join(record["flags"]),
            **{column: record["components"].get(name) for column, name in parts.items()},
        }
        if number == 0:
            writer.writerow(cells)
        writer.writerow(map(_safe, cells.values()))
    return out.getvalue()


def _safe(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe in front."""
    if isinstance(cell, str):
        cell = cell.replace("\0", "\N{REPLACEMENT CHARACTER}")
        return "'" + cell if cell.startswith(FORMULA) else cell
    return cell


def junit_of(evaluation: Evaluation, records: Sequence[Record]) -> str:
    """JUnit XML: a suite for each way of sampling, a case for each completion.

    A wrong answer is a failure; what was not written or not judged is an error.
    """
    root = ElementTree.Element("testsuites", name=_clean(evaluation.name))
    for measurement in evaluation.measurements:
        found = [record for record in records if record["mode"] == measurement.mode]
        suite = ElementTree.SubElement(
            root, "testsuite", name=f"{_clean(evaluation.name)} {measurement.mode}"
        )
        suite.set("tests", str(len(found)))
        suite.set("failures", str(sum(is_judged(r) and not r["passed"] for r in found)))
        suite.set("errors", str(sum(not is_judged(r) for r in found)))
        suite.set("skipped", "0")
        suite.set("time", f"{sum(r.get('latency_s') or 0.0 for r in found):.3f}")
        suite.set("timestamp", evaluation.created.removesuffix("+00:00"))
        for record in found:
            _add_case(suite, record, several=measurement.samples > 1)
    ElementTree.indent(root, " ")
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _add_case(suite: ElementTree.Element, record: Record, *, several: bool) -> None:
    name = str(record["prompt_id"]) + (f" [{record['sample']}]" if several else "")
    case = ElementTree.SubElement(
        suite, "testcase", name=_clean(name), time=f"{record.get('latency_s') or 0.0:.3f}"
    )
    case.set("classname", _clean(str(record.get("kind") or record.get("difficulty") or "tasks")))
    if not is_judged(record):
        trouble = record.get("fault") or record.get("error") or {}
        kind = cause_of(record)
        element = ElementTree.SubElement(
            case, "error", type=_clean(kind), message=_clean(str(trouble.get("message", kind)))
        )
    elif not record["passed"]:
        element = ElementTree.SubElement(case, "failure", type=_clean(cause_of(record)))
        element.set("message", f"reward {record['reward']:g}, stopped at {record['stage']}")
        shown = record["diagnostics"][:MOST_DIAGNOSTICS]
        lines = [
            f"{remark['stage']}, line {remark['line'] or '-'}: {remark['message']}"
            for remark in shown
        ]
        element.text = _clean("\n".join(lines))


def _clean(text: str) -> str:
    """The text without what XML 1.0 cannot hold."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
