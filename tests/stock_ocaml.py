"""Answers and tests as plain OCaml: the stock compiler, no harness, no box. Our verdicts beside it
show that rewriting tests changes none."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from gradus.tasks.ocaml import Framework, OcamlTask
from services.graders.ocaml.attempt import GradingAttempt
from services.graders.ocaml.cold_path import ColdPath
from services.graders.ocaml.warm_path import WarmPath

LIMIT_S = 60
_COUNTING = """let total = ref 0
let held = ref 0
let check condition = incr total; if condition then incr held
let () = at_exit (fun () -> Printf.eprintf "\\nheld %d of %d\\n" !held !total)
"""
_ASSERT = re.compile(r"(?<![\w.])assert(?![\w'])")
_COUNTED = re.compile(r"\nheld (\d+) of (\d+)\n")
_SUITE = re.compile(r"Cases: (\d+)\s+Tried: \d+\s+Errors: (\d+)\s+Failures: (\d+)\s+Skip:\s+(\d+)")
_SUITE_PASSED = re.compile(r"^Ran: (\d+) tests", re.MULTILINE)


class Verdict(NamedTuple):
    passed: bool
    counts: tuple[int, int] | None
    """Passed and all tests; None where that cannot be told."""


def run(folder: Path, task: OcamlTask, code: str) -> Verdict | None:
    """Return what the stock compiler shows; None where answer and tests do not compile or do not
    end."""
    module = task.module[:1].lower() + task.module[1:]
    is_suite = GradingAttempt(task, code, 0).framework is Framework.OUNIT2
    opening = "" if is_suite else f"open {module.capitalize()}\n"
    answer = {**task.files, f"{module}.ml": code}
    if task.signature is not None:
        answer[f"{module}.mli"] = task.signature
    whole = _run(folder / "whole", task, {**answer, "tests.ml": opening + task.tests}, is_suite)
    if whole is None:
        return None
    if is_suite:
        return Verdict(whole.returncode == 0, _read_suite(whole.stdout + whole.stderr))
    counting = {
        **answer,
        "stock.ml": _COUNTING,
        "tests.ml": opening + _ASSERT.sub("Stock.check", task.tests),
    }
    counted = _run(folder / "counted", task, counting, is_suite)
    counts = None
    if counted is not None and counted.returncode == 0:
        found = _COUNTED.search(counted.stderr)
        counts = (int(found[1]), int(found[2])) if found else None
    return Verdict(whole.returncode == 0, counts)


def _run(
    folder: Path, task: OcamlTask, sources: dict[str, str], is_suite: bool
) -> subprocess.CompletedProcess[str] | None:
    folder.mkdir(parents=True)
    for name, text in sources.items():
        (folder / name).write_text(text)
    interfaces = [name for name in sources if name.endswith(".mli")]
    implementations = [name for name in sources if name.endswith(".ml")]
    packages = [name for name in task.packages if name not in ("ounit2", "oUnit")]
    if is_suite:
        packages.append("ounit2")
    command = ["ocamlc", "-w", "-a", "-o", "program"]
    if packages:
        command = ["ocamlfind", *command, "-package", ",".join(packages), "-linkpkg"]
    try:
        done = subprocess.run(
            [*command, *interfaces, *implementations],
            cwd=folder,
            capture_output=True,
            check=False,
            timeout=LIMIT_S,
        )
        if done.returncode != 0:
            return None
        return subprocess.run(
            ["ocamlrun", "program"],
            cwd=folder,
            env={**os.environ, "OUNIT_RUNNER": "sequential"},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return None


def _read_suite(output: str) -> tuple[int, int] | None:
    if failed := _SUITE.search(output):
        cases, errors, failures, skipped = map(int, failed.groups())
        return cases - errors - failures - skipped, cases - skipped
    if passed := _SUITE_PASSED.search(output):
        return int(passed[1]), int(passed[1])
    return None


def find_difference(
    way: WarmPath | ColdPath, folder: Path, task: OcamlTask, code: str, reference: Verdict | None
) -> str | None:
    """Return how our verdict on an answer that compiles differs from the stock one; None where it
    does not.

    `reference`: what the stock compiler shows of the reference answer. Asserts are counted test by
    test where it evaluates as many as we count tests.
    """
    stock = run(folder, task, code)
    if stock is None:
        return None
    ours = way.facts(GradingAttempt(task, code, 0))
    if ours.passed != stock.passed:
        return f"we say passed is {ours.passed}, the stock compiler {stock.passed}"
    if ours.tests is None or stock.counts is None or reference is None or not reference.counts:
        return None
    counts = ours.tests.passed, ours.tests.total
    is_countable = stock.counts[1] == reference.counts[1] == ours.tests.total
    if is_countable and counts != stock.counts:
        return f"we count {counts}, the stock compiler {stock.counts}"
    return None
