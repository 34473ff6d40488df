"""Rust trajectories as calls of an agent's tools. Each reply is the grader's verdict on that code, or the file."""

from __future__ import annotations

import difflib
from typing import Any

from corpus.trajectories import Step, Trajectory
from gradus.contract import Graded, Stage
from gradus.feedback import reply

PATH = "src/lib.rs"
CLIPPY = "cargo clippy"
PLAN = (
    "Plan:\n1. Run the tests before anything is changed.\n2. Read the file.\n"
    "3. Mend one mistake at a time, and run the tests after each change.\n4. Run clippy, and mend what it warns of."
)
INSTRUCTIONS = (
    f"You write Rust. The crate has one file, `{PATH}`. Work with the tools until all tests pass and clippy has no "
    "warnings, then answer with the whole file in one fenced block."
)


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {one: {"type": "string", "description": about} for one, about in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": [*parameters]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    _tool("run_tests", "Compiles the crate and runs the tests of the task."),
    _tool("read_error", "Shows the compiler's errors of the last run."),
    _tool("read_file", "Shows a file of the crate.", path="The file's path in the crate."),
    _tool("apply_patch", "Changes a file of the crate.", patch="A unified diff."),
    _tool("run_command", "Runs a command in the crate.", command=f"The command: `{CLIPPY}`."),
]


def agent_row(trajectory: Trajectory) -> dict[str, Any]:
    """`messages` and `tools`, as chat templates take them; arguments of calls are objects."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": trajectory.request},
    ]

    def call(thought: str, tool: str, said: str, **arguments: str) -> None:
        key = f"call_{len(messages) // 2}"
        asked = {"id": key, "type": "function", "function": {"name": tool, "arguments": arguments}}
        messages.append({"role": "assistant", "content": thought, "tool_calls": [asked]})
        messages.append({"role": "tool", "tool_call_id": key, "name": tool, "content": said})

    before: Step | None = None
    for step in trajectory.steps:
        if before is not None:
            patch, done = _patch(before.code, step.code)
            call(step.thought, "apply_patch", done, patch=patch)
        result = step.result
        call("I run the tests." if before else PLAN, "run_tests", _tests(result))
        if result.tests is None:
            call("It does not compile. I read the errors.", "read_error", _remarks(result, Stage.CHECK))
        elif result.passed:
            call("All tests pass. I run clippy.", "run_command", _remarks(result, Stage.CLIPPY), command=CLIPPY)
        if before is None:
            call("I read the file.", "read_file", _whole(step.code), path=PATH)
        before = step
    messages.append({"role": "assistant", "content": trajectory.answer})
    return {"id": trajectory.id, "messages": messages, "tools": TOOLS}


def _tests(result: Graded) -> str:
    """How far the code came, and the public tests that fail."""
    of_tests = tuple(one for one in result.diagnostics if one.stage is Stage.TESTS)
    return reply(result.model_copy(update={"diagnostics": of_tests}))


def _remarks(result: Graded, stage: Stage) -> str:
    """The remarks of the compiler or of clippy alone."""
    of_stage = tuple(one for one in result.diagnostics if one.stage is stage)
    return reply(result.model_copy(update={"diagnostics": of_stage})).partition("\n")[2] or "no warnings"


def _patch(old: str, new: str) -> tuple[str, str]:
    """The change as a unified diff, and what `apply_patch` replies."""
    before, after = (_whole(code).splitlines(keepends=True) for code in (old, new))
    diff = list(difflib.unified_diff(before, after, fromfile=f"a/{PATH}", tofile=f"b/{PATH}"))
    added, taken = (sum(line.startswith(sign) for line in diff[2:]) for sign in "+-")
    return "".join(diff), f"{PATH}: {taken} lines taken away, {added} added"


def _whole(code: str) -> str:
    return code if code.endswith("\n") else f"{code}\n"
