"""What one Rust submission costs, in one interleaved run: cargo, cargo kept warm, the bare
compiler, ours.

`make bench-full` runs it. Measured as for OCaml (tests/bench/ocaml.py): CPU of everything involved,
children and boxes included; every verdict is asserted while it is measured. Two rows more say what
an answer costs that does not type, and what one costs that uses crates, each beside its counterpart
without.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gradus.contract import RustSubmission
from services.graders.rust.grader import RustGrader
from services.worker import grade_with_retries
from tests.bench.answers import Written
from tests.bench.ocaml import machine, measure, measure_posts, median_of, present, ratios, services
from tests.bench.rust_answers import answers, with_crates, without_crates
from tests.rust_config import crates_are_here, write_config

CRATES = ("serde", "itertools")
EDITION = "2021"
CARGO = ("check", "clippy", "test")
TITLES = {
    "naive": "naive: `cargo new`, `cargo check`, `cargo clippy`, `cargo test`; no sandbox",
    "warm": "cargo, the same crate and target folder for all; no sandbox",
    "floor": "floor: `clippy-driver --test` of answer and tests in one file, run; no sandbox",
    "ours": "ours, sandboxed, the worker's path",
    "rest": "ours, sandboxed, through REST and Redis, all processes",
    "passing": "ours, answers that pass",
    "failing": "ours, answers that do not compile",
    "without crates": "ours, answers that pass, one helper more",
    "with crates": "ours, the same, that helper with serde and itertools",
}
PAIRS = (
    ("ours", "floor"),
    ("rest", "floor"),
    ("naive", "ours"),
    ("warm", "ours"),
    ("failing", "passing"),
    ("with crates", "without crates"),
)


# ---------------------------------------------------------------------- contestants


def naive(folder: Path, written: Written) -> bool:
    """What one writes first: a new crate for each answer, and cargo three times."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        crate = Path(name) / "solution"
        new = [
            "cargo",
            "new",
            "--quiet",
            "--lib",
            "--vcs",
            "none",
            "--edition",
            EDITION,
            str(crate),
        ]
        return _ran(new, folder) and _cargo(crate, written)


def warm(folder: Path, written: Written) -> bool:
    """The same crate again and again: cargo finds its target folder warm and one source file
    changed."""
    crate = folder / "solution"
    if not crate.exists():
        _ran(
            ["cargo", "new", "--quiet", "--lib", "--vcs", "none", "--edition", EDITION, str(crate)],
            folder,
        )
    return _cargo(crate, written)


def _cargo(crate: Path, written: Written) -> bool:
    (crate / "tests").mkdir(exist_ok=True)
    (crate / "src" / "lib.rs").write_text(written.code)
    (crate / "tests" / "hidden.rs").write_text(written.tests)
    return all(_ran(["cargo", step, "--offline", "--quiet"], crate) for step in CARGO)


def floor(folder: Path, written: Written) -> bool:
    """The least that processes can do for check, lints and tests: one compilation with the linter,
    and one run."""
    tests = written.tests.replace("solution::", "crate::")
    (folder / "m.rs").write_text(f"{written.code}\n#[cfg(test)]\nmod hidden {{\n{tests}\n}}\n")
    compile_it = ["clippy-driver", "--test", "--edition", EDITION, "m.rs", "-o", "m"]
    return _ran(compile_it, folder) and _ran(["./m", "--test-threads=1"], folder)


def _ran(command: list[str], folder: Path) -> bool:
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def submission(written: Written, crates: tuple[str, ...] = ()) -> RustSubmission:
    task = {
        "tests": written.tests,
        "signature": written.signature,
        "edition": EDITION,
        "dependencies": crates,
    }
    completion = f"```rust\n{written.code}```"
    return RustSubmission.model_validate({"id": written.id, "completion": completion, "task": task})


def ours(grader: RustGrader, _: Path, written: Written, crates: tuple[str, ...] = ()) -> bool:
    """The grader as a worker's slot runs it: extraction, boxes, judge, rubric."""
    result = grade_with_retries(
        grader, submission(written, crates), "rust/graduated@1", slot=0, brief=False
    )
    assert result is not None
    assert result.status == "graded", result
    return result.passed


def rest(url: str, pids: list[int], corpus: list[Written], round_number: int) -> dict[str, float]:
    """All answers, each round's with a comment of its own: new texts to the cache."""
    items = [submission(written).model_dump(mode="json") for written in corpus]
    for item in items:
        item["completion"] = item["completion"].replace(
            "```rust\n", f"```rust\n// round {round_number}\n"
        )
    return measure_posts(f"{url}/v1/grade/rust", pids, items, corpus)


@contextmanager
def grader_with_crates() -> Iterator[RustGrader]:
    """The grader with the shipped example of a list of crates."""
    with tempfile.TemporaryDirectory() as folder:
        yield RustGrader(write_config(Path(folder) / "rust.yaml"))


# ------------------------------------------------------------------------------------------ report

_Contestant = tuple[Callable[[Path, Written], bool], list[Written]]


def contestants(
    grader: RustGrader, richer: RustGrader, corpus: list[Written]
) -> dict[str, _Contestant]:
    """Who is measured, and with which answers."""
    right = [written for written in corpus if written.right]
    broken = [written for written in corpus if "broken_" in written.code]
    plain = partial(ours, grader)
    found: dict[str, _Contestant] = {
        "naive": (naive, corpus),
        "warm": (warm, corpus),
        "floor": (floor, corpus),
        "ours": (plain, corpus),
        "passing": (plain, right),
        "failing": (plain, broken),
    }
    if crates_are_here():
        found["without crates"] = (plain, [without_crates(written) for written in right])
        found["with crates"] = (
            partial(ours, richer, crates=CRATES),
            [with_crates(written) for written in right],
        )
    return found


def run(rounds: int, limit: int) -> dict[str, Any]:
    corpus = list(answers())[:limit]
    with grader_with_crates() as richer, services("rust") as (url, pids):
        grader = RustGrader()
        measured_ones = contestants(grader, richer, corpus)
        measured: dict[str, list[dict[str, float]]] = {
            name: [] for name in (*measured_ones, "rest")
        }
        for contestant, own in measured_ones.values():
            measure(
                contestant, own[:3]
            )  # what is read from disk once is read before the first round
        rest(url, pids, corpus[:3], -1)
        for number in range(rounds):
            for name, (contestant, own) in measured_ones.items():
                measured[name].append(measure(contestant, own))
            measured["rest"].append(rest(url, pids, corpus, number))
            print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    about = {"machine": machine(grader.info().toolchain), "answers": len(corpus), "rounds": rounds}
    rows = {name: median_of(samples) for name, samples in measured.items()}
    return {
        **about,
        "rows": rows,
        "ratios": ratios(measured, (pair for pair in PAIRS if pair[0] in measured)),
    }


if __name__ == "__main__":
    if shutil.which("cargo"):
        present(__doc__, run, TITLES, answers=50)
    else:
        print(
            "The bench for Rust is left out: it needs cargo, which is not on PATH (https://rustup.rs)"
        )
