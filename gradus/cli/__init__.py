"""The command line: reads arguments, calls one function, turns misuse into exit status 2 and faults into 3.

Each module registers its commands with the application, in the order of `--help`.
"""

from __future__ import annotations

import sys

# isort: off
from gradus.cli import services, dashboard, grading, training, evaluation, pipeline, tasks  # noqa: F401
from gradus.cli import importing, machine  # noqa: F401

# isort: on
from gradus.cli import start
from gradus.cli.application import EXIT_FAULT, EXIT_MISUSE, app, say
from gradus.errors import Fault, Misuse

_OURS = frozenset({"gradus", "services", "trainer"})
_OF_THE_API = frozenset({"fastapi", "starlette", "uvicorn", "redis", "hiredis", "prometheus_client"})

__all__ = ["app", "main"]


def main() -> None:
    """The entry point: exit status 0, 2 for misuse, 3 for a fault, 130 for Ctrl-C."""
    try:
        if start.is_wanted(sys.argv[1:]):
            start.start()
        app()
    except Misuse as misuse:
        say(f"gradus: {misuse}")
        sys.exit(EXIT_MISUSE)
    except Fault as fault:
        say(f"gradus: {fault.kind} fault: {fault.message}")
        sys.exit(EXIT_FAULT)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in _OURS:
            raise
        extra = "api" if package in _OF_THE_API else "train"
        say(f"gradus: this needs the package {package}: pip install 'gradus[{extra}]'")
        sys.exit(EXIT_MISUSE)
    except KeyboardInterrupt:
        sys.exit(130)
