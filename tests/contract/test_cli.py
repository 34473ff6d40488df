"""The command line: exit statuses, misuse named with file and line, results in order, here and by a
service."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.main import get_command

from gradus.cli import build_application
from gradus.contract import RESULT, Faulted, Graded
from services.api.api_keys import find_key, read_keys
from services.doctor import check_grader, signs
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.grader import RustGrader
from services.graders.story.grader import StoryGrader
from tests.conftest import Cli, Said

TASK = {"signature": "val f : int -> int", "tests": "let () = assert (f 1 = 2)"}
SOON_S = 100.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""


def submission(
    submission_id: str, completion: str = "let f x = x + 1", **task: Any
) -> dict[str, Any]:
    return {"id": submission_id, "completion": completion, "task": TASK | task}


def jsonl(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def results_in(text: str) -> list[Graded | Faulted]:
    return [RESULT.validate_json(line) for line in text.splitlines()]


# ------------------------------------------------------------------------------------------ misuse

GOOD = json.dumps(submission("good"))


def bad(**changes: Any) -> str:
    return json.dumps(submission("bad") | changes)


BAD_LINES: dict[str, tuple[str, str]] = {
    "no JSON": ('{"id": "bad", ', "is not JSON"),
    "an unknown field of the task": (bad(task=TASK | {"test": "x"}), "task.test: Extra inputs"),
    "no completion": (json.dumps({"id": "bad", "task": TASK}), "completion: Field required"),
    "a lone surrogate": (bad(completion="\ud800"), "completion: is not valid Unicode"),
    "not a number": (bad(completion=float("nan")), "NaN is not a finite number"),
    "ten megabytes": (
        bad(completion="x" * 10_000_000),
        "completion: longer than 1000000 characters",
    ),
    "an id that was there": (GOOD, "id: 'good' occurs twice, first at"),
    "a list": ("[]", "is list, not a record"),
}


@pytest.mark.parametrize("what", BAD_LINES)
def test_a_line_that_cannot_be_used_is_named_and_nothing_is_graded(
    gradus: Cli, tmp_path: Path, what: str
) -> None:
    line, problem = BAD_LINES[what]
    file = tmp_path / "asked.jsonl"
    file.write_text(f"{GOOD}\n\n{line}\n")
    said = gradus("grade", "ocaml", file)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"gradus: {file}:3: "), said.err[:300]
    assert problem in said.err
    assert len(said.err) < 1000, "a message does not repeat its input"


def test_the_first_bad_line_is_named_even_if_it_is_the_last_of_many(
    gradus: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "asked.jsonl"
    file.write_text(jsonl(*(submission(f"s{n}") for n in range(2000))) + "oops\n")
    said = gradus("grade", "ocaml", file)
    assert (said.status, said.out) == (2, "")
    assert f"{file}:2001: is not JSON" in said.err


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (
            ["grade", "cobol", "a.jsonl"],
            "there is no grader 'cobol'; there are: ocaml, rust, story, program, preference",
        ),
        (["grade", "ocaml", "none.jsonl"], "none.jsonl: cannot be read: No such file or directory"),
        (["grade", "ocaml", "folder"], "folder: cannot be read: Is a directory"),
        (["grade", "ocaml", "bytes.jsonl"], "bytes.jsonl:2: is not UTF-8 text"),
        (["grade", "ocaml", "a.txt"], "a.txt: the file's name must end in .jsonl, .json or .csv"),
        (
            ["grade", "ocaml", "a.jsonl", "--rubric", "ocaml/none@1"],
            "has no rubric 'ocaml/none@1'; it has: ocaml/graduated@1",
        ),
        (["grade", "ocaml"], "Missing argument"),
        (["grade", "ocaml", "a.jsonl", "--slots", "0"], "greater than or equal to 1"),
        (["grade", "ocaml", "a.jsonl", "--nonsense"], "No such option"),
        (["nonsense"], "No such command"),
        (["tasks", "validate", "empty.jsonl"], "empty.jsonl: holds no rows"),
        (["train", "none.yaml"], "none.yaml: there is no such file"),
        (["eval", "runs/x"], "runs/x is taken for TASKS, MODEL is missing: give MODEL and TASKS"),
        (["eval", "a", "b", "c"], "['c'] is too much: give MODEL and TASKS"),
        (["worker", "ocaml"], "--redis redis://"),
        (["worker", "ocaml", "--redis", "http://x"], "starts with redis://"),
    ],
)
def test_misuse_is_exit_status_2_and_says_what_is_wrong(
    gradus: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRADUS_REDIS_URL", raising=False)
    Path("a.jsonl").write_text(GOOD)
    Path("a.txt").write_text(GOOD)
    Path("empty.jsonl").write_text("")
    Path("bytes.jsonl").write_bytes(GOOD.encode() + b"\n\xff\n")
    Path("folder").mkdir()
    said = gradus(*argv)
    assert (said.status, said.out) == (2, "")
    assert problem in re.sub(r"\s*[│╭╰─╮╯]\s*", " ", said.err)
    assert "Traceback" not in said.err


def test_an_empty_file_has_no_results_and_is_no_mistake(gradus: Cli, tmp_path: Path) -> None:
    file = tmp_path / "asked.jsonl"
    file.write_text("\n")
    note = "holds no submissions: nothing was graded\n"
    assert gradus("grade", "ocaml", file) == Said(0, "", f"gradus: {file} {note}")
    assert gradus("grade", "ocaml", "-", stdin=b"") == Said(0, "", f"gradus: - {note}")


def test_help_names_every_command(gradus: Cli) -> None:
    said = gradus("--help")
    assert said.status == 0
    for command in ("serve", "worker", "grade", "tasks", "train", "eval", "doctor"):
        assert command in said.out


def test_every_option_shows_its_default_and_no_help_is_lost_as_markup(gradus: Cli) -> None:
    assert "[default: 127.0.0.1]" in re.sub(r"\s+", " ", gradus("serve", "--help").out)
    asked: list[Any] = [get_command(build_application())]
    texts: dict[str, str] = {}
    while asked:
        command = asked.pop()
        asked += getattr(command, "commands", {}).values()
        texts |= {
            f"{command.name} {one.name}": getattr(one, "help", None) or "" for one in command.params
        }
    assert len(texts) > 150
    assert {name: text for name, text in texts.items() if "[" in text} == {}


# ---------------------------------------------------------------------- real processes

ASKED = [
    submission("right"),
    submission("wrong", "let f x = x"),
    submission("unfit", packages=["no_such_package"]),
    submission("fenced", "```ocaml\nlet f x = x + 1\n```"),
    submission("right again"),
    submission("does not parse", "let f x ="),
    submission("ends the program", "let f x = exit 0"),
    submission("späť 🐫", "let f _ = 2"),
]
REWARDS = [1.0, 0.35, 1.0, 1.0, 0.0, 0.35, 1.0]


def process(*argv: str | Path, path: str = "") -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PATH": path + os.environ["PATH"],
    }
    environment.pop("GRADUS_REDIS_URL", None)
    command = [sys.executable, "-m", "gradus", *map(str, argv)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe
    )


def comparable(result: Graded | Faulted) -> dict[str, Any]:
    return result.model_dump(exclude={"cpu_ms", "wall_ms", "cached"})


@contextmanager
def served(*argv: str, path: str = "") -> Iterator[tuple[str, str]]:
    """The address of a service of everything in one process, and what it said before it was
    ready."""
    running = process("serve", "--port", "0", "--slots", "2", *argv, path=path)
    said = ""
    try:
        assert running.stderr is not None
        for line in running.stderr:
            said += line
            if found := re.search(r"serving on (http://\S+)", line):
                yield found[1], said
                break
        else:
            raise AssertionError("the service did not start")
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=SOON_S)
        assert running.returncode == 0


@pytest.fixture(scope="module")
def no_rust(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What to put before PATH so that rustc is there and does not work, as rustup's is without a
    toolchain."""
    folder = tmp_path_factory.mktemp("no_rust")
    broken = folder / "rustc"
    broken.write_text("#!/bin/sh\necho 'no toolchain is installed' >&2\nexit 1\n")
    broken.chmod(0o755)
    return f"{folder}{os.pathsep}"


@pytest.fixture(scope="module")
def without_rust(no_rust: str, ocaml_grader: OcamlGrader) -> Iterator[tuple[str, str]]:
    """The address of a service on a machine without Rust, and what it said before it was ready."""
    with served(path=no_rust) as found:
        yield found


def test_a_file_is_graded_in_order_here_and_by_a_service_with_the_same_results(
    gradus: Cli, tmp_path: Path, without_rust: tuple[str, str]
) -> None:
    here = gradus("grade", "ocaml", "-", stdin=jsonl(*ASKED).encode())
    results = results_in(here.out)
    assert [result.id for result in results] == [record["id"] for record in ASKED]
    assert [result.reward for result in results if isinstance(result, Graded)] == REWARDS
    [unfit] = [result for result in results if isinstance(result, Faulted)]
    assert (unfit.id, unfit.fault.kind, unfit.fault.retryable) == ("unfit", "internal", False)
    assert "no_such_package" in unfit.fault.message
    assert here.status == 3
    assert "gradus: 1 of 8 submissions could not be judged" in here.err
    assert "Traceback" not in here.err

    file = tmp_path / "asked.jsonl"
    file.write_text(jsonl(*ASKED))
    to = ("--url", without_rust[0])
    there = gradus("grade", "ocaml", file, *to)
    assert there.status == 3
    assert [comparable(result) for result in results_in(there.out)] == [
        comparable(result) for result in results
    ]
    misuse = gradus("grade", "ocaml", file, *to, "--rubric", "ocaml/none@1")
    assert (misuse.status, misuse.out) == (2, "")
    assert "the ocaml grader offers no such rubric; it offers: ocaml/graduated@1" in misuse.err
    unknown = gradus("grade", "rust", file, *to)
    assert (unknown.status, unknown.out) == (2, "")


def graders_at(url: str) -> list[str]:
    return sorted(grader["name"] for grader in httpx.get(f"{url}/v1/graders").json()["graders"])


def test_a_machine_without_rust_still_serves_ocaml_and_is_told_so(
    gradus: Cli, without_rust: tuple[str, str], no_rust: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, said = without_rust
    assert "ocaml" in graders_at(url)
    assert "rust" not in graders_at(url)
    assert re.search(r"serving without rust: .*no toolchain is installed", said)
    monkeypatch.setenv("PATH", no_rust + os.environ["PATH"])
    asked_for = gradus("serve", "--port", "0", "--graders", "ocaml,rust")
    assert asked_for.status == 3
    assert "no toolchain is installed" in asked_for.err
    assert "Traceback" not in asked_for.err


def test_doctor_counts_missing_rust_as_nothing_that_everybody_needs(
    no_rust: str, ocaml_grader: OcamlGrader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", no_rust + os.environ["PATH"])
    found = {sign.subject: str(sign) for sign in signs(None)}
    assert found["ocaml"].startswith("ok   ocaml: ")
    assert re.match(r"--   rust: .*no toolchain is installed", found["rust"])


def test_doctor_shows_the_toolchain_of_a_grader_without_a_module_for_it(
    ocaml_grader: OcamlGrader,
) -> None:
    for module in ("tests.graders", "graders"):
        [sign] = check_grader(EntryPoint("ocaml", f"{module}:Grader", "gradus.graders"))
        assert (sign.subject, sign.fine) == ("ocaml", True)
        assert sign.text == ocaml_grader.info().toolchain


@pytest.mark.slow
def test_every_grader_that_can_start_is_served_by_one_process(
    gradus: Cli,
    tmp_path: Path,
    rust_grader: RustGrader,
    ocaml_grader: OcamlGrader,
    story_grader: StoryGrader,
) -> None:
    ocaml, rust, story = (tmp_path / f"{name}.jsonl" for name in ("ocaml", "rust", "story"))
    ocaml.write_text(jsonl(*ASKED[:2]))
    task = {"tests": "#[test]\nfn adds() { assert_eq!(solution::f(1), 2); }"}
    rust.write_text(
        jsonl({"id": "right", "completion": "pub fn f(x: u8) -> u8 { x + 1 }", "task": task})
    )
    told = "As a cook, I want to order flour online, so that I bake on time."
    story.write_text(jsonl({"id": "right", "completion": told, "task": {"references": [told]}}))
    with served() as (url, said):
        assert graders_at(url) == ["ocaml", "program", "rust", "story"]
        asked = (("ocaml", ocaml), ("rust", rust), ("story", story))
        all_of_them = [gradus("grade", grader, file, "--url", url) for grader, file in asked]
        strict = gradus("grade", "ocaml", ocaml, "--url", url, "--rubric", "ocaml/strict@1")
    assert "without" not in said
    alone = gradus("grade", "story", story)
    assert [each.status for each in (*all_of_them, strict, alone)] == [0] * 5, "all were graded"
    assert results_in(alone.out)[0].status == "graded"
    passed = [result.passed for here in all_of_them for result in results_in(here.out)]  # type: ignore[union-attr]
    assert passed == [True, False, True, True]
    assert [result.reward for result in results_in(strict.out) if isinstance(result, Graded)] == [
        1.0,
        0.0,
    ]


def test_a_service_that_is_not_there_is_exit_status_3_with_a_fault_for_each(
    gradus: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "asked.jsonl"
    file.write_text(jsonl(*ASKED[:2]))
    said = gradus("grade", "ocaml", file, "--url", "http://127.0.0.1:9", "--deadline-s", "0.5")
    assert said.status == 3
    assert [result.status for result in results_in(said.out)] == ["faulted", "faulted"]
    assert "Traceback" not in said.err


def test_ctrl_c_ends_grading_soon_with_exit_status_130(tmp_path: Path) -> None:
    slow = [
        submission(f"slow {n}", f"let rec f x = f (x + {n})", limits={"cpu_s": 0.3})
        for n in range(1000)
    ]
    file = tmp_path / "asked.jsonl"
    file.write_text(jsonl(ASKED[0], ASKED[1], *slow))
    running = process("grade", "ocaml", file, "--slots", "2", "--rubric", "ocaml/strict@1")
    assert running.stdout is not None
    first = results_in(running.stdout.readline() + running.stdout.readline())
    assert [(result.id, result.reward) for result in first if isinstance(result, Graded)] == [
        ("right", 1),
        ("wrong", 0),
    ]
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=SOON_S)
    assert running.returncode == 130
    assert len(out.splitlines()) < 500
    assert "Traceback" not in err


def test_a_new_key_is_shown_once_and_its_line_lets_it_in(gradus: Cli) -> None:
    said = gradus("keys", "new", "trainer", "--graders", "ocaml,rust")
    assert said.status == 0
    secret = said.err.split()[-1]
    assert secret not in said.out
    key = find_key(read_keys(said.out, None), secret)
    assert key is not None
    assert (key.name, sorted(key.graders)) == ("trainer", ["ocaml", "rust"])
    assert gradus("keys", "new", "trainer").err.split()[-1] != secret


def test_a_new_key_has_the_limits_that_are_asked_for(gradus: Cli) -> None:
    limits = ["--operator", "--training-only", "--per-minute", "60", "--expires", "2099-12-31"]
    [key] = read_keys(gradus("keys", "new", "ada", *limits).out, None)
    assert (key.is_operator, key.training_only, key.per_minute, key.expires) == (
        True,
        True,
        60,
        date(2099, 12, 31),
    )
    [key] = read_keys(gradus("keys", "new", "ada").out, None)
    assert (key.is_operator, key.training_only, key.per_minute, key.expires) == (
        False,
        False,
        None,
        None,
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["two words"],
        [""],
        ["trainer", "--graders", "Cobol"],
        ["trainer", "--expires", "2099-02-30"],
    ],
)
def test_a_key_that_no_service_would_take_is_misuse(gradus: Cli, argv: list[str]) -> None:
    assert gradus("keys", "new", *argv).status == 2
