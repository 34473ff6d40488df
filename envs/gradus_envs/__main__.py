"""`gradus-envs`: where the tasks are, and rows for NeMo Gym."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from gradus.errors import Misuse
from gradus_envs import GRADERS, find_tasks, iter_nemo_gym_rows

app = typer.Typer(help="The tasks of Gradus as environments.", no_args_is_help=True)
Grader = Annotated[str, typer.Argument(metavar="GRADER", help=", ".join(GRADERS))]


@app.command()
def path(grader: Grader) -> None:
    """Print the path of a grader's tasks."""
    print(find_tasks(grader))


@app.command()
def rows(
    grader: Grader,
    ids: Annotated[bool, typer.Option("--ids", help="Write ids in place of hidden tests")] = False,
) -> None:
    """Print a grader's tasks as rows of NeMo Gym."""
    for row in iter_nemo_gym_rows(grader, with_ids=ids):
        print(json.dumps(row))


def main() -> None:
    try:
        app()
    except Misuse as misuse:
        print(f"gradus-envs: {misuse}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
