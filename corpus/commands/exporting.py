"""`gradus tasks export`: tasks in the formats of other projects."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from corpus.commands.tasks import Force
from gradus.errors import Misuse


class Format(StrEnum):
    HARBOR = "harbor"


def export_tasks(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSONL, JSON or CSV file of tasks")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="New folder, with a folder per task"),
    ],
    verifier_image: Annotated[
        str,
        typer.Option(
            metavar="IMAGE", help="Image of a grader, REPOSITORY@sha256:HEX, that grades answers"
        ),
    ],
    grader: Annotated[str, typer.Option(help="Grader of the tasks")] = "ocaml",
    environment_image: Annotated[
        str, typer.Option(metavar="IMAGE", help="Image in which the agent works")
    ] = "debian:bookworm-slim",
    format: Annotated[Format, typer.Option(help="Format to write")] = Format.HARBOR,
    force: Force = False,
) -> None:
    """Export tasks as folders of Harbor, with a separate verifier without network.

    Hidden tests are in no image and no file that the agent sees. A fault of the grader leaves no
    reward file.
    """
    from corpus.files import load_valid_rows
    from corpus.harbor import build_folders, require_pinned, write_folders
    from gradus.integrations.core import extract_task

    require_pinned(verifier_image)
    if out.exists() and not force:
        raise Misuse(f"{out}: exists; choose another folder, or --force to write into it")
    rows = load_valid_rows(file)
    tasks = [extract_task(row.values, grader) for row in rows]
    folders = build_folders(rows, tasks, grader, verifier_image, environment_image)
    write_folders(out, folders)
    print(f"{len(folders)} tasks: {out}")
