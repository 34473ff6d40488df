"""What real cargo says of a crate: `cargo check`, `cargo clippy`, `cargo test`, offline, each in a
crate made for it.

Believes libtest's text, so it is for honest programs only, and runs them without a sandbox. Results
are kept in a folder that the caller names, under a name that holds the program and the compiler.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from services.graders.rust.crates import Directory
from tests.e2e.rust_programs import Program
from tests.rust_config import crates

TESTS = "tests/hidden.rs"
_TIMEOUT_S = 300
_SOURCE = """\
[source.crates-io]
replace-with = "directory"
[source.directory]
directory = "{directory}"
"""


@dataclass(frozen=True)
class Seen:
    """What was seen of a program, by cargo or by the grader."""

    checks: bool
    """It has no errors."""
    errors: dict[str, int] = field(default_factory=dict)
    """By code."""
    lints: dict[str, int] = field(default_factory=dict)
    """Warnings, and lints that are errors, by name; nothing when it does not check."""
    passed: int = 0
    """Tests of the task that passed, or cases."""
    names: tuple[str, ...] = ()
    """Their names, if they have names."""
    elsewhere: int = 0
    """Tests in the answer and in its documentation that passed."""
    outputs: tuple[str | None, ...] = ()
    """What a program wrote for each case; None where it did not end well."""
    fault: str | None = None
    """Why the grader could not judge it."""


TOOLS = ("cargo", "rustc", "clippy-driver")


@cache
def cargo_version() -> str:
    said = [
        subprocess.run([tool, "-vV"], capture_output=True, text=True, check=True).stdout
        for tool in TOOLS
    ]
    return "\n".join(said)


def by_cargo(program: Program, kept: Path | None = None) -> Seen:
    """What cargo says of `program`; `kept`: a folder of earlier results."""
    if kept is None:
        return _seen(program)
    key = json.dumps(
        [program.task.model_dump(mode="json"), program.answer, cargo_version()], sort_keys=True
    )
    place = kept / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    if place.exists():
        return Seen(
            **{name: _tuple(value) for name, value in json.loads(place.read_text()).items()}
        )
    seen = _seen(program)
    place.write_text(json.dumps(dataclasses.asdict(seen)))
    return seen


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _seen(program: Program) -> Seen:
    with tempfile.TemporaryDirectory(prefix="cargo-") as name:
        folder = Path(name)
        write_crate(folder, program)
        check = _cargo(folder, "check", "--message-format=json")
        errors = {
            code: n
            for code, n in _codes(check.stdout, "error").items()
            if re.fullmatch(r"E\d{4}", code)
        }
        if check.returncode != 0:
            return Seen(False, errors)
        clippy = _cargo(folder, "clippy", "--message-format=json").stdout
        lints = dict(sorted((_codes(clippy, "warning") + _codes(clippy, "error")).items()))
        if program.task.cases:
            outputs = _outputs(folder, program)
            return Seen(
                True, errors, lints, passed=_cases_passed(program, outputs), outputs=outputs
            )
        return _tested(folder, Seen(True, errors, lints))


def write_crate(folder: Path, program: Program) -> None:
    task = program.task
    manifest = (
        f'[package]\nname = "{task.crate}"\nversion = "0.1.0"\nedition ='
        f' "{task.edition}"\n[dependencies]\n'
    )
    files = {"Cargo.toml": manifest, **program.files}
    if task.dependencies:
        listed = crates()
        files["Cargo.toml"] += "".join(
            one.dependency for one in listed.list if one.name in task.dependencies
        )
        assert isinstance(listed.source, Directory)
        files[".cargo/config.toml"] = _SOURCE.format(directory=listed.source.directory)
    if task.tests:
        files[TESTS] = task.tests
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def _cargo(
    folder: Path, *arguments: str, errors_to: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CARGO_TARGET_DIR": str(folder / "target"), "RUST_BACKTRACE": "0"}
    return subprocess.run(
        ["cargo", arguments[0], "--offline", *arguments[1:]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=errors_to,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
        errors="replace",
    )


def _codes(messages: str, level: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in messages.splitlines():
        said: Mapping[str, dict[str, dict[str, str] | str]] = (
            json.loads(line) if line.startswith("{") else {}
        )
        message = said.get("message", {})
        code = message.get("code") if message.get("level") == level else None
        if isinstance(code, dict):
            found[code["code"]] += 1
    return found


# ---------------------------------------------------------------------- tests, cases

_SECTION = re.compile(r"^ +(?:Running (?:unittests )?(\S+)|(Doc-tests) )", re.MULTILINE)
_PASSED = re.compile(r"^test (\S.*?)(?: - should panic)? \.\.\. ok$", re.MULTILINE)


def _tested(folder: Path, seen: Seen) -> Seen:
    # One stream for both: cargo names the section on standard error, libtest its tests on standard
    # output.
    wanted = ("--no-fail-fast", "--", "--include-ignored", "--test-threads=1")
    done = _cargo(folder, "test", *wanted, errors_to=subprocess.STDOUT)
    own = []
    elsewhere = 0
    starts = [*_SECTION.finditer(done.stdout)]
    for at, start in enumerate(starts):
        end = starts[at + 1].start() if at + 1 < len(starts) else len(done.stdout)
        # Below "failures:" stands what failed tests wrote.
        names = _PASSED.findall(done.stdout[start.end() : end].partition("\nfailures:\n")[0])
        if start[1] == TESTS:
            own += names
        else:
            elsewhere += len(names)
    return dataclasses.replace(seen, passed=len(own), names=tuple(sorted(own)), elsewhere=elsewhere)


def _outputs(folder: Path, program: Program) -> tuple[str | None, ...]:
    assert _cargo(folder, "build").returncode == 0, program.id
    path = folder / "target" / "debug" / program.task.crate
    runs = [
        subprocess.run(
            [path],
            cwd=folder,
            input=case.stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        for case in program.task.cases
    ]
    return tuple(run.stdout if run.returncode == 0 else None for run in runs)


def _cases_passed(program: Program, outputs: tuple[str | None, ...]) -> int:
    if program.own_output:
        return sum(output is not None for output in outputs)
    expected = [lines(case.stdout) for case in program.task.cases]
    return sum(
        output is not None and lines(output) == want
        for output, want in zip(outputs, expected, strict=True)
    )


def lines(text: str) -> list[str]:
    """As the contract compares output: without white space at the ends of lines and without empty
    lines at the end."""
    return [line.rstrip() for line in text.rstrip().splitlines()]
