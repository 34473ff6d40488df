"""Trajectories with an agent's tools: each reply is a real verdict, a real file, and each patch
applies."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corpus.agent_format import CLIPPY, TOOLS, render_crate_matches
from corpus.rust_mutations import RustMutations
from corpus.task_rows import wrap_in_fence
from gradus.contract import RustSubmission
from gradus.feedback import render_verdict
from services.graders.rust.grader import RustGrader
from tests.conftest import Cli

SOLUTION = """pub fn total(numbers: &[i64]) -> i64 {
    let mut total = 0;
    for number in numbers {
        let doubled = number * 2;
        total += doubled;
    }
    total
}
"""
TASK = {
    "id": "total",
    "prompt": "Write `total`, twice the sum.",
    "tests": "use solution::total;\n#[test]\nfn sums() { assert_eq!(total(&[1, 2]), 6); }\n"
    "#[test]\nfn nothing() { assert_eq!(total(&[]), 0); }",
    "public_tests": ["use solution::total;\n#[test]\nfn one() { assert_eq!(total(&[1]), 2); }"],
    "signature": "pub fn total(numbers: &[i64]) -> i64;",
    "solution": SOLUTION,
}
PATH = "src/lib.rs"
TAGS = {"tests": "constant", "check": "name", "clippy": "lint", "two": "constant"} | dict.fromkeys(
    ("type", "crate"), "type"
)
MISTAKES = {
    "tests": [("number * 2", "number * 3")],
    "check": [("let doubled = number", "let doubled = nomber")],
    "clippy": [("let doubled", "let mut doubled")],
    "type": [("+= doubled", "+= Some(doubled)")],
    "crate": [("pub fn total", "use rand::Rng;\n\npub fn total")],
    "two": [("let doubled", "let mut doubled"), ("number * 2", "number * 3")],
}


def changed(*pairs: tuple[str, str]) -> str:
    code = SOLUTION
    for old, new in pairs:
        assert old in code
        code = code.replace(old, new)
    return code


@pytest.fixture(scope="module")
def chats(
    tmp_path_factory: pytest.TempPathFactory, rust_grader: RustGrader
) -> dict[str, list[dict[str, Any]]]:
    """The messages of one trajectory for each mistake; the grader is the one of this machine."""
    from corpus.agent_format import build_agent_row
    from corpus.trajectories import build_trajectories
    from gradus.row_reader import Row

    rows = [
        Row(
            "in:1",
            TASK
            | {
                "id": name,
                "stub": changed(*pairs),
                "group": name,
                "tags": [f"mutation:{TAGS[name]}"],
            },
        )
        for name, pairs in MISTAKES.items()
    ]
    rows.append(
        Row(
            "in:2", TASK | {"id": "other", "stub": changed(MISTAKES["tests"][0]), "group": "clippy"}
        )
    )
    found = {}
    for attempts in (1, 2):
        for told in build_trajectories(rows, "rust", rust_grader, attempts, 2):
            assert told.trajectory is not None, told.problem
            found[f"{told.trajectory.id}-{attempts}"] = build_agent_row(
                told.trajectory, rust_grader
            )["messages"]
    return found


def calls(messages: list[dict[str, Any]]) -> list[tuple[str, dict[str, str], str]]:
    """Tool, arguments and reply of each call."""
    pairs = zip(messages[2:-1:2], messages[3::2], strict=True)
    found = []
    for asked, answered in pairs:
        [call] = asked["tool_calls"]
        assert answered["tool_call_id"] == call["id"]
        found.append((call["function"]["name"], call["function"]["arguments"], answered["content"]))
    return found


def verdict(grader: RustGrader, code: str) -> str:
    task = {name: TASK[name] for name in ("tests", "public_tests", "signature")}
    asked = RustSubmission.model_validate(
        {"id": "a", "completion": wrap_in_fence("rust", code), "task": task}
    )
    return render_verdict(grader.grade(asked, grader.info().rubrics[0], 0))


def test_the_tools_that_are_called_follow_from_the_verdicts(
    chats: dict[str, list[dict[str, Any]]],
) -> None:
    """Tests come first, errors are read where code does not compile, and clippy ends what
    passes."""
    end = ["apply_patch", "run_tests", "run_command"]
    expected = {
        "tests-1": ["run_tests", "read_file", *end],
        "check-1": ["run_tests", "read_error", "repo_search", "read_file", *end],
        "type-1": ["run_tests", "read_error", "cargo_doc", "read_file", *end],
        "crate-1": ["run_tests", "read_error", "search_crates_io", "read_file", *end],
        "clippy-1": ["run_tests", "run_command", "read_file", *end],
        "clippy-2": ["run_tests", "read_file", "apply_patch", "run_tests", "run_command", *end],
    }
    for name, tools in expected.items():
        assert [tool for tool, _, _ in calls(chats[name])] == tools, name
    declared = {tool["function"]["name"] for tool in TOOLS}
    assert {tool for chat in chats.values() for tool, _, _ in calls(chat)} == declared


def test_every_reply_is_the_graders_or_the_files(
    chats: dict[str, list[dict[str, Any]]], rust_grader: RustGrader, tmp_path: Path
) -> None:
    """Each patch is applied by git to the file that was read, and what comes of it is graded
    again."""
    verdicts: dict[str, list[str]] = {}
    for name, messages in chats.items():
        found = calls(messages)
        code = next(reply for tool, _, reply in found if tool == "read_file")
        folder = tmp_path / name
        (folder / "src").mkdir(parents=True)
        (folder / PATH).write_text(code)
        for tool, arguments, reply in found:
            if tool == "apply_patch":
                subprocess.run(
                    ["git", "apply"], input=arguments["patch"], text=True, cwd=folder, check=True
                )
                code = (folder / PATH).read_text()
                assert reply.startswith(f"{PATH}: ")
                continue
            if code not in verdicts:
                verdicts[code] = verdict(rust_grader, code).splitlines()
            said = verdicts[code]
            if tool == "run_tests":
                assert reply.splitlines()[0] == said[0]
                assert ("this public test fails" in reply) == (
                    "this public test fails" in "\n".join(said)
                )
                assert not any(
                    line.startswith(("check:", "clippy:")) for line in reply.splitlines()
                )
            elif tool in ("read_error", "run_command"):
                stage = "check:" if tool == "read_error" else "clippy:"
                lines = [line for line in said if line.startswith(stage)]
                assert [line for line in reply.splitlines() if line.startswith(stage)] == lines
                assert (reply == "no warnings") == (not lines)
                assert tool == "read_error" or arguments == {"command": CLIPPY}
            elif tool == "repo_search":
                assert arguments == {"pattern": "nomber"}
                assert reply == f"{PATH}:4:         let doubled = nomber * 2;"
            elif tool == "cargo_doc":
                assert arguments == {"item": "std::option::Option"}
                assert "pub enum Option<T> {" in reply
                assert "pub const fn unwrap(self) -> T" in reply
            elif tool == "search_crates_io":
                assert arguments == {"query": "rand"}
                assert reply == render_crate_matches("rand", rust_grader)
        assert messages[-1]["content"] == wrap_in_fence("rust", SOLUTION)
        assert code == SOLUTION
        assert "assert_eq!(total(&[1, 2])" not in json.dumps(messages), (
            "hidden tests are told to nobody"
        )


def test_a_crate_of_several_files_is_searched_and_its_crates_are_looked_up(
    rust_grader: RustGrader, tmp_path: Path
) -> None:
    """The first call of a trajectory lists what other files declare; programs are `src/main.rs`."""
    from corpus.agent_format import build_agent_row
    from corpus.trajectories import build_trajectories
    from gradus.row_reader import Row

    rule = "/// The factor.\npub const FACTOR: i64 = 2;\n"
    solution = 'mod rule;\n\nfn main() {\n    println!("{}", 3 * rule::FACTOR);\n}\n'
    program = {
        "id": "six",
        "prompt": "Print 6.",
        "cases": [{"stdin": "", "stdout": "6\n"}],
        "solution": solution,
    }
    row = {**program, "files": {"src/rule.rs": rule}, "stub": solution.replace("FACTOR)", "FACTR)")}
    [told] = build_trajectories([Row("in:1", row)], "rust", rust_grader)
    assert told.trajectory is not None, told.problem
    messages = build_agent_row(told.trajectory, rust_grader)["messages"]
    assert "`src/main.rs`, `src/rule.rs`" in messages[0]["content"]
    found = calls(messages)
    assert [tool for tool, _, _ in found][:5] == [
        "run_tests",
        "repo_search",
        "read_error",
        "repo_search",
        "read_file",
    ]
    assert found[1][2] == "src/rule.rs:2: pub const FACTOR: i64 = 2;"
    assert found[3][1:] == (
        {"pattern": "FACTR"},
        'src/main.rs:4:     println!("{}", 3 * rule::FACTR);',
    )
    assert found[4][1] == {"path": "src/main.rs"}
    assert "+++ b/src/main.rs" in found[5][1]["patch"]


@pytest.mark.slow
def test_lints_pass_all_tests_and_become_repairs(
    gradus: Cli, tmp_path: Path, rust_grader: RustGrader
) -> None:
    """From tasks to rows that supervised training reads, by the commands."""
    from trainer.config.stages import SftStage
    from trainer.data.rows import read_samples

    source, repairs, out = (
        tmp_path / name for name in ("tasks.jsonl", "repairs.jsonl", "chats.jsonl")
    )
    source.write_text(json.dumps(TASK) + "\n")
    asked = (
        "tasks",
        "mutate",
        source,
        "--grader",
        "rust",
        "--per-task",
        "9",
        "--max-mutants",
        "12",
    )
    done = gradus(*asked, "--lints", "-o", repairs, "--slots", "2")
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in repairs.read_text().splitlines()]
    linted = [row for row in rows if "mutation:lint" in row["tags"]]
    assert linted
    assert all(row["message"].startswith("all 2 tests pass\nclippy: ") for row in linted)
    done = gradus(
        "tasks",
        "trajectories",
        repairs,
        "--grader",
        "rust",
        "--format",
        "agent",
        "--max-broken-attempts",
        "2",
        "-o",
        out,
    )
    assert done.status == 0, done.err
    data = {
        "model": {"name": "fresh:qwen3"},
        "data": {"dataset": str(out)},
        "output_dir": str(tmp_path / "run"),
    }
    samples, skipped = read_samples(SftStage.model_validate(data), str(out))
    assert (len(samples), skipped) == (len(rows), [])
    assert gradus("tasks", "mutate", source, "--lints", "-o", repairs, "--force").status == 2


def test_lints_are_where_nothing_needs_them() -> None:
    lines = ("let y = 1;", "let Some(z) = g() else { return 0 };", "if x > y { 1 } else { z }")
    code = "fn f(x: i64) -> i64 {\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
    changed = []
    for edit in RustMutations().find_lints(code):
        new = edit.apply(code).split("\n")
        changed += [one for one, old in zip(new, code.split("\n"), strict=True) if one != old]
    assert changed == ["    let mut y = 1;", "    if (x > y) { 1 } else { z }"]
