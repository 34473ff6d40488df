"""Help of the command line as people read it: types, ranges and defaults in words, options grouped
by what they are for, and the commands that a newcomer needs first."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from typer.core import TyperArgument, TyperOption

FIRST_STEPS = (
    "doctor",
    "grade",
    "tasks",
    "serve",
    "train",
    "eval",
    "compare",
    "report",
    "dashboard",
    "chat",
)
"""Commands that a newcomer needs, in this order."""
FIRST_STEPS_OF_TASKS = ("doctor", "import", "validate", "split")

VALUES = {
    "URL": ("redis", "url", "endpoint", "api"),
    "ADDRESS": ("host", "metrics_host"),
    "PORT": ("port", "metrics_port"),
    "KEY": ("api_key",),
    "NAMES": ("graders", "adapters"),
    "FOLDER": ("runs",),
    "auto|never|FOLDER": ("resume",),
    "SECONDS": ("deadline_s", "lease", "result_ttl", "fault_ttl", "dead_letter_ttl"),
}
"""What stands after an option, by the option's name. Other options show their type in words."""
VALUE_OF_OPTION = {name: word for word, names in VALUES.items() for name in names}

GROUPS = {
    "Address": ("host", "port", "metrics_host", "metrics_port"),
    "Service": ("url", "api_key", "deadline_s", "api", "api_key_file", "token_file"),
    "Queue": (
        *("redis", "lease", "max_depth", "result_ttl", "fault_ttl"),
        *("max_dead_letters", "dead_letter_ttl"),
    ),
    "Other trainers": ("adapters", "nemo_gym_port"),
    "Grading": ("grader", "graders", "rubric", "slots", "config", "secrets_file"),
    "GPUs": ("train", "vllm", "data_parallel", "machines", "rank"),
    "Checks": ("validate", "drop_failing", "ignore_lint"),
    "Choice": ("share", "max_public", "per_task", "max_mutants", "max_broken_attempts", "seed"),
    "Output": ("out", "html", "force", "fresh", "format", "quiet"),
}
"""Groups of options, by the options' names, in commands with more than `FEW` options. A group that
an option names itself counts more."""
GROUP_OF_OPTION = {name: group for group, names in GROUPS.items() for name in names}
FEW = 6


def describe_value(parameter: Any) -> str:
    """Return what stands after an option, in words: `FILE`, `NUMBER`, `sampled|greedy`; nothing for
    a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    if parameter.metavar:
        return str(parameter.metavar)
    if parameter.name in VALUE_OF_OPTION:
        return VALUE_OF_OPTION[parameter.name]
    kind = parameter.type_descriptor
    if kind.is_choice:
        return "|".join(str(getattr(choice, "value", choice)) for choice in kind.choices)
    if kind.annotation in (int, float):
        return "NUMBER"
    if kind.annotation is bool:
        return "yes|no"
    return "FILE" if "path" in str(kind.annotation).lower() else "NAME"


def describe_range(minimum: float | None, maximum: float | None) -> str:
    """Return the range of a number in words, both ends included; nothing without one."""
    if minimum is None and maximum is None:
        return ""
    if maximum is None:
        return f"from {minimum:g}"
    return f"up to {maximum:g}" if minimum is None else f"{minimum:g} to {maximum:g}"


def describe_default(parameter: Any) -> str:
    """Return the default of an option in words; nothing where there is none, and for flags that are
    off."""
    if isinstance(parameter.show_default, str):
        return str(parameter.show_default)
    default = parameter.default
    if default is None or default == "" or not parameter.show_default:
        return ""
    if isinstance(default, bool):
        return "on" if default else ""
    if isinstance(default, float):
        return f"{default:g}"
    return str(getattr(default, "value", default))


def _name_in_usage(argument: TyperArgument) -> str:
    name = argument.metavar or argument.name.upper()
    name += "..." * (argument.nargs != 1 and not argument.metavar)
    return name if argument.required or name.startswith("[") else f"[{name}]"


def replace_words_of_typer() -> None:
    """Make typer's help show words. It creates its parameters itself, `--help` when help is
    printed, and has no setting for this."""
    words: dict[str, Callable[..., Any]] = {
        "display_type_rich": lambda option, ctx: describe_value(option),
        "_get_number_range_help_str": lambda option: describe_range(option.min, option.max) or None,
        "_get_default_string": lambda option, **_: describe_default(option),
    }
    for name, function in words.items():
        setattr(TyperOption, name, function)
    words |= {
        "display_type_rich": lambda argument, ctx: None,
        "_usage_display_name": _name_in_usage,
    }
    for name, function in words.items():
        setattr(TyperArgument, name, function)


def unwrap_lines(text: str) -> str:
    """Return a help text with one line per paragraph; paragraphs after a backspace stay as they
    are."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        paragraph if paragraph.startswith("\b") else paragraph.replace("\n", " ")
        for paragraph in paragraphs
    )


def put_first(commands: dict[str, Any], names: tuple[str, ...]) -> None:
    """Move these commands to the front, into a group of their own."""
    for command in commands.values():
        command.rich_help_panel = command.rich_help_panel or "More"
    remaining = {name: command for name, command in commands.items() if name not in names}
    first = {name: commands[name] for name in names if name in commands}
    for command in first.values():
        command.rich_help_panel = "First steps"
    commands.clear()
    commands.update(first | remaining)


def use_words(command: Any) -> None:
    """Make the help of a command, and of those below it, show words and groups."""
    command.help = unwrap_lines(command.help or "")
    options = [one for one in command.params if isinstance(one, TyperOption)]
    for option in options:
        if len(options) > FEW and option.rich_help_panel is None:
            option.rich_help_panel = GROUP_OF_OPTION.get(option.name)
    for inner in getattr(command, "commands", {}).values():
        use_words(inner)
