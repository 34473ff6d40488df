"""Every Rust program we have, judged by real cargo and by the grader: the same errors, lints and
tests, or a reason.

    python tests/e2e/rust_against_cargo.py --kept /tmp/cargo-results    # all; ten minutes, less the second time
    python tests/e2e/rust_against_cargo.py --only crates --match overflow

Prints what was compared and every difference. A difference that is meant has its reason in
`EXPLAINED`; any other makes the exit status 1, and so does a reason for a difference that is not
there any more.
"""  # noqa: E501

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradus.contract import RustSubmission, Severity, Stage
from gradus.errors import Fault
from gradus.tasks.rust import RustTask, StdioCase
from services.graders.rust.grader import RustGrader
from services.graders.rust.runner import Runner, RunResult
from tests.e2e.real_cargo import Seen, by_cargo
from tests.e2e.rust_programs import SOURCES, Program, lint_pairs, missing_corpora, programs
from tests.rust_config import crates_are_here, write_config

_SILENCED = "Meant: the answer allows the lint, and the grader counts what answers would silence"
_DENIED = (
    "Meant: the answer makes its own warnings errors, and the grader keeps what is a matter of"
    " style out of check"
)
_CERTAIN = (
    "Meant: the grader makes code in its check, and cargo only in its test; it is refused by both,"
    " earlier here"
)
_EQUAL = (
    "Meant: the answer writes `PartialEq` by hand and the task has no signature that asks for it"
)
_FAIR = (
    "Meant: equality between the answer's type and another would be the answer's word, so such an"
    " assertion fails"
)
_FILES = "Meant: three tests open the crate's Cargo.toml, and where tests run there are no files"
_TIME = "The program writes the time: its output is another in each run"
_ALLOWING = (
    "rustlings/variables3 solution",
    "rustlings/move_semantics5 solution",
    "rustlings/errors2 solution",
    "rustlings/errors2 solution as 2021",
    "rustlings/iterators4 solution",
    "rustlings/clippy3 broken",
    "rustlings/conversions4 solution",
    "exercism-rust/isbn-verifier solution",
    "exercism-rust/rectangles solution",
    "exercism-rust/csv-builder stub",
    "exercism-rust/health-statistics stub",
    "exercism-rust/low-power-embedded-game stub",
    "exercism-rust/magazine-cutout stub",
    "exercism-rust/semi-structured-logs stub",
    "crate lints that the answer allows",
    "crate lints that the answer allows in one place",
    "crate all lints allowed",
    "crate a lint that the answer expects",
)
UNSTEADY = dict.fromkeys(("rustlings/modules3 solution", "rustlings/threads1 solution"), _TIME)
EXPLAINED: Mapping[str, str] = {
    **dict.fromkeys(_ALLOWING, _SILENCED),
    **UNSTEADY,
    "crate warnings made errors": _DENIED,
    "crate a panic that is certain": _CERTAIN,
    "crate an answer that compares with other types": _FAIR,
    "exercism-rust/paasio solution": _FILES,
    "exercism-rust/custom-set solution": _EQUAL,
    "exercism-rust/custom-set solution as 2021": _EQUAL,
}
"""Program -> why the grader differs from cargo. Those that are `UNSTEADY` need not."""


class RecordingRunner(Runner):
    """Remembers what the last run was like: facts have the number of passed tests, this has their
    names."""

    last: RunResult | None = None

    def run_tests(
        self,
        program: bytes,
        task: RustTask,
        expected: Sequence[tuple[str, str]] = (),
        answer: bytes = b"",
    ) -> RunResult:
        self.last = super().run_tests(program, task, expected, answer)
        return self.last


class Ours:
    """The grader's side."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.grader = RustGrader(write_config(Path(folder) / "rust.yaml"))
        self._runner = RecordingRunner(
            self.grader.sandbox, self.grader.toolchain, self.grader.config
        )
        self.grader.runner = self._runner

    def __call__(self, program: Program, cargo: Seen) -> Seen:
        self._runner.last = None
        try:
            facts, _ = self.grader.facts(submission(program, cargo))
        except Fault as fault:
            return Seen(False, fault=fault.message)
        checks = facts.stage in (Stage.CLIPPY, Stage.TESTS)
        wrong = [
            remark
            for remark in facts.diagnostics
            if remark.severity is Severity.ERROR and remark.code
        ]
        errors = Counter(
            remark.code for remark in wrong if remark.code and remark.code.startswith("E")
        )
        return Seen(
            checks,
            dict(errors),
            dict(facts.lints) if checks else {},
            passed=facts.tests.passed if facts.tests else 0,
            names=tuple(sorted(self._runner.last.proof.passed)) if self._runner.last else (),
        )


def submission(program: Program, cargo: Seen) -> RustSubmission:
    blocks = [f"``````rust {path}\n{text}\n``````" for path, text in program.answer.items()]
    task = program.task
    if program.own_output:
        cases = [
            StdioCase(stdin=case.stdin, stdout=out or "")
            for case, out in zip(task.cases, cargo.outputs)  # noqa: B905
        ]  # noqa: B905 - none when it does not check
        task = task.model_copy(update={"cases": tuple(cases) or task.cases})
    return RustSubmission(id=program.id[:256], completion="\n\n".join(blocks), task=task)


def differences(cargo: Seen, ours: Seen) -> Iterator[str]:
    """What the grader sees otherwise than cargo; nothing when they agree."""
    if ours.fault:
        yield f"the grader does not judge it: {ours.fault}"
        return
    if cargo.checks is not ours.checks:
        yield f"cargo {_verdict(cargo)}, the grader {_verdict(ours)}"
    elif Counter(cargo.errors) != Counter(ours.errors):
        yield f"errors: cargo {cargo.errors}, the grader {ours.errors}"
    elif cargo.lints != ours.lints:
        every = sorted({*cargo.lints, *ours.lints})
        told = [f"{lint} {cargo.lints.get(lint, 0)} -> {ours.lints.get(lint, 0)}" for lint in every]
        changed = [
            text
            for text, lint in zip(told, every, strict=True)
            if cargo.lints.get(lint) != ours.lints.get(lint)
        ]
        yield f"lints: {', '.join(changed)}"
    if cargo.passed != ours.passed:
        yield f"passed: cargo {cargo.passed}, the grader {ours.passed}"
    elif cargo.names != ours.names:
        yield f"names of passed tests: cargo {cargo.names}, the grader {ours.names}"


def _verdict(seen: Seen) -> str:
    return "compiles it" if seen.checks else f"refuses it {seen.errors or ''}".strip()


# --------------------------------------------------------------------------------------- comparing


@dataclass(frozen=True, slots=True)
class Compared:
    program: Program
    cargo: Seen
    ours: Seen

    @property
    def differences(self) -> list[str]:
        return list(differences(self.cargo, self.ours))

    @property
    def wrong(self) -> list[str]:
        """Differences without a reason, and a reason without a difference."""
        if self.program.id not in EXPLAINED:
            return [f"{self.program.id}: {text}" for text in self.differences]
        if self.differences or self.program.id in UNSTEADY:
            return []
        return [f"{self.program.id}: no difference, but there is a reason for one"]


def compare(chosen: Iterable[Program], ours: Ours, kept: Path | None = None) -> Iterator[Compared]:
    for program in chosen:
        cargo = by_cargo(program, kept)
        yield Compared(program, cargo, ours(program, cargo))


def lints_not_as_they_should_be(compared: Iterable[Compared]) -> Iterator[str]:
    """Of the lint pairs: the bad side has that lint and no other, the fixed side has none; both for
    cargo and here."""
    wanted: dict[str, list[str]] = {}
    for number, pair in enumerate(lint_pairs()):
        name = f"lint {number} {pair.lint}"
        wanted |= {f"{name} bad": [pair.lint], f"{name} fixed": []}
    for one in compared:
        for side, seen in (("cargo", one.cargo), ("the grader", one.ours)):
            if one.program.id in wanted and list(seen.lints) != wanted[one.program.id]:
                yield f"{one.program.id}: {side} sees {seen.lints}"


def table(compared: Iterable[Compared]) -> str:
    lines = [
        "| programs | compared | passed by cargo | lints by cargo | not compiling | only check and"
        " lints | differ |"
    ]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    by_source: dict[str, list[Compared]] = {}
    for one in compared:
        by_source.setdefault(one.program.source, []).append(one)
    for source, ones in by_source.items():
        passed, lints = (
            sum(one.cargo.passed for one in ones),
            sum(sum(one.cargo.lints.values()) for one in ones),
        )
        broken, differ = (
            sum(not one.cargo.checks for one in ones),
            sum(bool(one.differences) for one in ones),
        )
        checked = sum(one.program.checked_only for one in ones)
        lines.append(
            f"| {source} | {len(ones)} | {passed} | {lints} | {broken} | {checked} | {differ} |"
        )
    return "\n".join(lines)


def report(compared: list[Compared]) -> Iterator[str]:
    yield table(compared)
    for one in compared:
        for text in one.differences:
            yield f"{one.program.id}: {text}. {EXPLAINED.get(one.program.id, 'NOT EXPLAINED')}"
    elsewhere = [one for one in compared if one.cargo.elsewhere]
    if elsewhere:
        told = ", ".join(f"{one.program.id} ({one.cargo.elsewhere})" for one in elsewhere)
        yield (
            "Tests that answers carry themselves, which cargo runs and the grader leaves out:"
            f" {told}"
        )
    checked = [
        one.program.id
        for one in compared
        if one.program.checked_only and one.program.source != "lints"
    ]
    if checked:
        yield f"Only check and lints, for their tests cannot be had apart: {', '.join(checked)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kept", type=Path, help="a folder where cargo's results are kept for the next time"
    )
    parser.add_argument(
        "--only", choices=SOURCES, action="append", help="programs of this source; may be repeated"
    )
    parser.add_argument("--match", default="", help="programs with this in their name")
    arguments = parser.parse_args()
    if arguments.kept:
        arguments.kept.mkdir(parents=True, exist_ok=True)
    if absent := missing_corpora():
        print(f"left out, for they are not beside this checkout: {', '.join(absent)}")
    chosen = [
        p
        for source in arguments.only or SOURCES
        for p in programs(source)
        if arguments.match in p.id
    ]
    if not crates_are_here():
        needy = [program for program in chosen if program.task.dependencies]
        chosen = [program for program in chosen if program not in needy]
        told = ", ".join(program.id for program in needy)
        print(
            "left out, for the sources of crates are not here (apt-get install librust-*-dev):"
            f" {told}"
        )
    compared = []
    for one in compare(chosen, Ours(), arguments.kept):
        compared.append(one)
        if sys.stderr.isatty():
            print(f"\r{len(compared)} of {len(chosen)}", end="", file=sys.stderr)
    print("\n".join(report(compared)))
    wrong = [text for one in compared for text in one.wrong] + list(
        lints_not_as_they_should_be(compared)
    )
    print(f"{len(compared)} compared, {len(wrong)} not as they should be", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
