"""`--help`: types and defaults in words, options in groups, and first what a newcomer needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from gradus.cli import build_application
from gradus.help_words import (
    FEW,
    FIRST_STEPS,
    describe_default,
    describe_range,
    describe_value,
    unwrap_lines,
)
from tests.conftest import Cli

CODE = re.compile(r"<\w+|\(none\)|None|\bx[<>]|<=|PosixPath|\[default: \(")
"""Types and values as Python or typer spell them."""


def list_commands(command: Any, name: str = "gradus") -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name."""
    yield name, command
    for inner in getattr(command, "commands", {}).values():
        yield from list_commands(inner, f"{name} {inner.name}")


COMMANDS = dict(list_commands(get_command(build_application())))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_no_code(gradus: Cli, name: str) -> None:
    said = gradus(*name.split()[1:], "--help")
    assert said.status == 0
    assert CODE.findall(re.sub(r"[│\s]+", " ", said.out)) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_a_large_command_are_grouped(name: str) -> None:
    options = [one for one in COMMANDS[name].params if one.param_type_name == "option"]
    alone = [one.name for one in options if one.rich_help_panel is None]
    assert len(options) <= FEW or len(alone) <= 4, alone


def test_a_newcomer_finds_the_ten_first_commands_first(gradus: Cli) -> None:
    printed = gradus("--help").out
    assert len(FIRST_STEPS) == 10
    places = [printed.index(f"│ {name} ") for name in FIRST_STEPS]
    assert places == sorted(places)
    assert printed.index("First steps") < places[0]
    assert places[-1] < printed.index("─ Serve ")


def test_the_first_commands_on_tasks_are_those_that_check_a_file(gradus: Cli) -> None:
    printed = gradus("tasks", "--help").out
    assert printed.index("First steps") < printed.index("│ doctor ") < printed.index("│ import ")
    assert printed.index("│ validate ") < printed.index("─ More ") < printed.index("│ mutate ")


@pytest.mark.parametrize(
    ("command", "option", "value", "default"),
    [
        ("serve", "redis", "URL", ""),
        ("serve", "port", "PORT", "8000"),
        ("grade", "quiet", "", ""),
        ("grade", "deadline_s", "SECONDS", "600"),
        ("grade", "slots", "NUMBER", "one per CPU core; 64 for model-based graders"),
        ("grade", "config", "FILE", "the shipped one"),
        ("dashboard", "runs", "FOLDER", "runs"),
        ("eval", "greedy", "", "on"),
        ("eval", "out", "FOLDER", "runs/eval/MODEL-FILE"),
        ("tasks export", "format", "harbor", "harbor"),
    ],
)
def test_types_and_defaults_are_words(command: str, option: str, value: str, default: str) -> None:
    parameters = {one.name: one for one in COMMANDS[f"gradus {command}"].params}
    assert describe_value(parameters[option]).startswith(value)
    assert bool(describe_value(parameters[option])) == bool(value)
    assert describe_default(parameters[option]) == default


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [(None, None, ""), (1, None, "from 1"), (0.001, 3600, "0.001 to 3600"), (None, 5, "up to 5")],
)
def test_ranges_are_words(least: float | None, most: float | None, words: str) -> None:
    assert describe_range(least, most) == words


def test_paragraphs_are_wrapped_by_the_terminal_and_examples_are_not() -> None:
    assert unwrap_lines("One\nline.\n\n\b\na 1\nb 2") == "One line.\n\n\b\na 1\nb 2"


def test_usage_names_arguments_without_braces(gradus: Cli) -> None:
    assert "gradus grade [OPTIONS] GRADER SUBMISSIONS" in gradus("grade", "--help").out
    assert "gradus eval [OPTIONS] [MODEL] TASKS" in gradus("eval", "--help").out
