"""The command line: commands of the installed wings (`gradus.wings`), exit statuses of errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gradus import __version__, interactive
from gradus.console import EXIT_FAULT, EXIT_MISUSE, Redis, log_line
from gradus.errors import Fault, Misuse
from gradus.help_words import (
    FIRST_STEPS,
    FIRST_STEPS_OF_TASKS,
    put_first,
    replace_words_of_typer,
    use_words,
)
from gradus.system_errors import convert_system_errors
from gradus.wings import WINGS, load_entry_points

_OF_THE_API = frozenset(
    {"fastapi", "starlette", "uvicorn", "redis", "hiredis", "prometheus_client"}
)
_LOCAL = "http://127.0.0.1:8000"
# Base class that unknown options and missing arguments share with BadParameter; typer does not
# export it.
_USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]


class _Commands(TyperGroup):
    """The commands, with help in words and one boundary for errors of the operating system."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        commands: dict[str, Any] = dict(self.commands)
        put_first(commands, FIRST_STEPS)
        self.commands = commands
        if "tasks" in commands:
            put_first(commands["tasks"].commands, FIRST_STEPS_OF_TASKS)
        use_words(self)
        replace_words_of_typer()

    def make_context(self, *args: Any, **extra: Any) -> Any:
        # --help and --version print here
        with convert_system_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with convert_system_errors():
            return super().invoke(ctx)


@cache
def build_application() -> typer.Typer:
    """Return the application with the commands of every installed wing, in the order of the wings'
    names."""
    app = typer.Typer(
        name="gradus",
        cls=_Commands,
        help=(
            "Grade completions of language models in sandboxes, and train the models on the"
            " rewards."
        ),
        epilog=(
            "Exit codes: 0 done, 1 a check failed, 2 misuse, 3 a fault, 4 a stage failed, 130"
            " Ctrl-C, 141 closed pipe, 143 SIGTERM."
        ),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(
        _handle_options
    )  # without a callback, Typer makes a single command the whole application
    for register in load_entry_points("gradus.commands"):
        register(app)
    app.command(name="mcp", rich_help_panel="Serve")(serve_mcp)
    app.command()(doctor)
    return app


def _show_version(is_requested: bool) -> None:
    if is_requested:
        print(f"gradus {__version__}")
        raise typer.Exit


def _handle_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_show_version,
            help="Show the version",
        ),
    ] = False,
) -> None: ...


def doctor(
    redis: Redis = None,
    url: Annotated[
        str | None, typer.Option(help="Check the Gradus service at this URL too")
    ] = None,
) -> None:
    """Check CPU, GPU, memory, disk, toolchains, sandbox and packages of this machine, and print
    what to do.

    Exit status 1 if a requirement of all commands is missing.
    """
    from gradus.doctor import print_checks

    raise typer.Exit(print_checks(redis=redis, url=url))


def serve_mcp(
    tasks: Annotated[
        str, typer.Argument(metavar="TASKS", help="JSONL, JSON or CSV file of tasks with ids")
    ],
    grader: Annotated[str, typer.Option(envvar="GRADUS_GRADER", help="Grader of the tasks")],
    url: Annotated[
        str | None,
        typer.Option(envvar="GRADUS_URL", help="Gradus service that grades", show_default=_LOCAL),
    ] = None,
    max_checks: Annotated[
        int, typer.Option("--max-checks", min=0, help="Calls of `check` per task")
    ] = 20,
    max_submissions: Annotated[
        int, typer.Option("--max-submissions", min=1, help="Calls of `submit` per task")
    ] = 5,
    deadline_s: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds to wait for one verdict")
    ] = 120.0,
    api_key: Annotated[
        str | None, typer.Option(envvar="GRADUS_API_KEY", help="API key of the service")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="JSONL file to which each submission's result is appended")
    ] = None,
) -> None:
    """Serve tools for agents over standard input and output, by the Model Context Protocol.

    The tools are `read_task`, `check` (compiler's remarks and public tests) and `submit` (also how
    many tests pass). Agents see no hidden test and no reward.

    \b
    gradus mcp tasks.jsonl --grader NAME --url http://127.0.0.1:8000
    """
    from gradus.integrations.agent_tasks import AgentTasks, read_agent_rows
    from gradus.integrations.core import settings
    from gradus.integrations.mcp import build_server

    chosen = settings(grader, url=url, api_key=api_key, deadline_s=deadline_s, tasks=tasks)
    agent_tasks = AgentTasks(
        read_agent_rows(tasks),
        chosen,
        max_checks=max_checks,
        max_submissions=max_submissions,
        results=results,
    )
    build_server(agent_tasks).run("stdio")


def check_words(words: Sequence[str]) -> None:
    """Check that the command line understands these words; run nothing. Raises Misuse."""
    command = typer.main.get_command(build_application())
    name = "gradus"
    remaining = list(words)
    while (inner := getattr(command, "commands", None)) is not None:
        if not remaining or remaining[0] not in inner:
            raise Misuse(f"{name}: there is no command {' '.join(remaining[:1])}")
        command = inner[remaining[0]]
        name += f" {remaining.pop(0)}"
    try:
        command.make_context(name, remaining)
    except typer.Exit:
        return
    except _USAGE_ERROR as error:
        raise Misuse(f"{name}: {error.format_message()}") from None


def main() -> None:
    """Run the command line: exit status 0, 2 for misuse, 3 for a fault, 130 for Ctrl-C."""
    try:
        if len(sys.argv) == 1 and sys.stdin.isatty() and sys.stdout.isatty():
            interactive.start()
        build_application()()
    except Misuse as misuse:
        log_line(f"gradus: {misuse}")
        sys.exit(EXIT_MISUSE)
    except Fault as fault:
        log_line(f"gradus: {fault.kind} fault: {fault.message}")
        sys.exit(EXIT_FAULT)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in {"gradus", *WINGS}:
            raise
        extra = "api" if package in _OF_THE_API else "train"
        remedy = f"`make setup` in a checkout, or pip install 'gradus-rl[{extra}]'"
        if package == "mcp":
            remedy = "pip install 'gradus-rl[mcp]'"
        log_line(f"gradus: this needs the package {package}: {remedy}")
        sys.exit(EXIT_MISUSE)
    except KeyboardInterrupt:
        sys.exit(130)
