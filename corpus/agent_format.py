"""Rust trajectories as calls of an agent's tools.

Each reply is the grader's verdict on that code, text of the crate's files, a page that rustdoc
makes, or the grader's list of crates.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from corpus.rust_documentation import render_documentation
from corpus.trajectories import Step, Trajectory
from gradus.contract import Diagnostic, Graded, Severity, Stage
from gradus.feedback import MAX_CHARS, SPECIAL, reply
from gradus.tasks.rust import RustTask
from services.graders.rust.grader import RustGrader

CLIPPY = "cargo clippy"
PLAN = (
    "Plan:\n1. Run the tests before anything is changed.\n2. Read the file.\n3. Mend one mistake at"
    " a time, and run the tests after each change.\n4. Run clippy, and mend what it warns of."
)
INSTRUCTIONS = (
    "You write Rust. The files of the crate: {files}. Work with the tools on `{entry}` until all"
    " tests pass and clippy has no warnings, then answer with the whole of `{entry}` in one fenced"
    " block."
)
_DECLARATIONS = r"^\s*pub "
_MISSING_CRATE = re.compile(r"(?:unlinked crate|can't find crate for) `(\w+)`")
_OWN_NAME = re.compile(
    r"(?:cannot (?:find|borrow|assign)[^`]*|use of moved value: )`\W*(?:self\.)?(?!self\b)(\w+)`"
)
"""A name of the crate that an error is about."""
_QUOTED = re.compile(r"`([^`]*)`")
_TYPE = re.compile(r"\b(?:[a-z]\w*::)*[A-Z]\w*")
"""A type or trait, with its path where the compiler names it."""


def _build_tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {
        parameter: {"type": "string", "description": about}
        for parameter, about in parameters.items()
    }
    schema = {"type": "object", "properties": properties, "required": [*parameters]}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


TOOLS = [
    _build_tool("run_tests", "Compiles the crate and runs the tests of the task."),
    _build_tool("read_error", "Shows the compiler's errors of the last run."),
    _build_tool("read_file", "Shows a file of the crate.", path="The file's path in the crate."),
    _build_tool(
        "repo_search",
        "Shows the lines of the crate's files that match.",
        pattern="A regular expression.",
    ),
    _build_tool(
        "cargo_doc",
        "Shows the documentation of a type or trait of the standard library or of a crate that the"
        " task may use.",
        item="Its path, such as `Vec`, `std::ops::Try` or `regex::Captures`.",
    ),
    _build_tool(
        "search_crates_io",
        "Searches the crates that are offered here.",
        query="Part of a crate's name.",
    ),
    _build_tool("apply_patch", "Changes a file of the crate.", patch="A unified diff."),
    _build_tool("run_command", "Runs a command in the crate.", command=f"The command: `{CLIPPY}`."),
]


def build_agent_row(trajectory: Trajectory, grader: RustGrader) -> dict[str, Any]:
    """`messages` and `tools`, as chat templates take them; arguments of calls are objects."""
    task = RustTask.model_validate(trajectory.task)
    entry = "src/main.rs" if task.cases else "src/lib.rs"
    paths = ", ".join(f"`{path}`" for path in {entry: "", **task.files})
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": INSTRUCTIONS.format(files=paths, entry=entry)},
        {"role": "user", "content": trajectory.request},
    ]
    past_calls: set[tuple[str, ...]] = set()
    """Tools with their arguments that were called."""

    def call(thought: str, tool: str, output: str, **arguments: str) -> None:
        key = f"call_{len(messages) // 2}"
        calls = [
            {"id": key, "type": "function", "function": {"name": tool, "arguments": arguments}}
        ]
        messages.append({"role": "assistant", "content": thought, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": key, "name": tool, "content": output})
        past_calls.add((tool, *arguments.values()))

    def look_up(error: Diagnostic, files: Mapping[str, str]) -> None:
        """Make the search or open the page that an error suggests; at most one call, and none that
        was made before."""
        crate = _MISSING_CRATE.search(error.message)
        name = _OWN_NAME.search(error.message)
        if crate:
            search_crates(f"I search for the crate `{crate[1]}`.", crate[1])
        elif name:
            search(f"I search for `{name[1]}` in the crate.", name[1], files)
        else:
            for item in dict.fromkeys(_TYPE.findall(" ".join(_QUOTED.findall(error.message)))):
                page = render_documentation(grader, task.dependencies, item)
                if page and ("cargo_doc", item) not in past_calls:
                    thought = f"I read the documentation of `{item}`."
                    call(thought, "cargo_doc", _clean_text(page), item=item)
                    return

    def search_crates(thought: str, query: str) -> None:
        if ("search_crates_io", query) not in past_calls:
            call(thought, "search_crates_io", render_crate_matches(query, grader), query=query)

    def search(thought: str, pattern: str, files: Mapping[str, str]) -> None:
        if ("repo_search", pattern) not in past_calls:
            call(thought, "repo_search", _find_lines(pattern, files), pattern=pattern)

    before: Step | None = None
    for step in trajectory.steps:
        files = {**task.files, entry: step.code}
        if before is not None:
            patch, done = _build_patch(entry, before.code, step.code)
            call(step.thought, "apply_patch", done, patch=patch)
        result = step.result
        call(
            "I run the tests." if before else PLAN,
            "run_tests",
            _render_remarks(result, Stage.TESTS),
        )
        if before is None:
            for crate in task.dependencies:
                search_crates(f"I look up the version of `{crate}` that is here.", crate)
            if task.files:
                thought = "I search for what the crate's files declare."
                search(thought, _DECLARATIONS, task.files)
        if result.tests is None:
            remarks = _render_remarks(result, Stage.CHECK)
            call("It does not compile. I read the errors.", "read_error", remarks)
            for diagnostic in result.diagnostics:
                if diagnostic.severity is Severity.ERROR:
                    look_up(diagnostic, files)
                    break
        elif result.passed:
            remarks = _render_remarks(result, Stage.CLIPPY)
            call("All tests pass. I run clippy.", "run_command", remarks, command=CLIPPY)
        if before is None:
            call("I read the file.", "read_file", _ensure_newline(step.code), path=entry)
        before = step
    messages.append({"role": "assistant", "content": trajectory.answer})
    return {"id": trajectory.id, "messages": messages, "tools": TOOLS}


def render_crate_matches(query: str, grader: RustGrader) -> str:
    """Return the reply of `search_crates_io`: crates that the grader has for tasks, with their
    versions."""
    needle = query.replace("_", "-").lower()
    crates = grader.config.crates.list
    offered = [f"{crate.name} = {crate.version.removeprefix('=')}" for crate in crates]
    matches = [line for line in offered if needle in line.replace("_", "-").lower()]
    notice = "There is no registry here."
    if matches:
        return "\n".join([f"{notice} Crates of this machine that match `{query}`:", *matches])
    none = f"{notice} No crate of this machine matches `{query}`. All that it has:"
    return "\n".join([none, *(offered or ["none"])])


def _find_lines(pattern: str, files: Mapping[str, str]) -> str:
    """Return each line that matches, as `path:line: text`."""
    matches = []
    for path, text in sorted(files.items()):
        for number, line in enumerate(text.splitlines(), start=1):
            if re.search(pattern, line):
                matches.append(f"{path}:{number}: {line}")
    return _clean_text("\n".join(matches) or "no line matches")


def _clean_text(text: str) -> str:
    text = SPECIAL.sub("<...>", text)
    if len(text) > MAX_CHARS:
        text = text[:MAX_CHARS] + "\n..."
    return text


def _render_remarks(result: Graded, stage: Stage) -> str:
    """Return the remarks of a stage alone; those of tests behind how far the code came."""
    of_stage = tuple(diagnostic for diagnostic in result.diagnostics if diagnostic.stage is stage)
    text = reply(result.model_copy(update={"diagnostics": of_stage}))
    return text if stage is Stage.TESTS else text.partition("\n")[2] or "no warnings"


def _build_patch(path: str, old: str, new: str) -> tuple[str, str]:
    """Return the change as a unified diff, and what `apply_patch` replies."""
    before = _ensure_newline(old).splitlines(keepends=True)
    after = _ensure_newline(new).splitlines(keepends=True)
    diff = list(difflib.unified_diff(before, after, fromfile=f"a/{path}", tofile=f"b/{path}"))
    added = sum(line.startswith("+") for line in diff[2:])
    taken = sum(line.startswith("-") for line in diff[2:])
    return "".join(diff), f"{path}: {taken} lines taken away, {added} added"


def _ensure_newline(code: str) -> str:
    return code.removesuffix("\n") + "\n"
