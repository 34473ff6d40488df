"""`gradus grade`: grades a file of submissions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradus.console import (
    EXIT_FAULT,
    Config,
    Grader,
    Quiet,
    Slots,
    Url,
    log_line,
    show_progress,
    show_start,
)
from gradus.errors import Misuse

if TYPE_CHECKING:
    from gradus.contract import Faulted, Graded, GraderName, Submission


def grade(
    grader: Grader,
    submissions: Annotated[
        str,
        typer.Argument(
            metavar="SUBMISSIONS",
            help="JSONL file with one submission per line; - reads standard input",
        ),
    ],
    rubric: Annotated[
        str | None,
        typer.Option(help="Rubric, GRADER/NAME@VERSION", show_default="the grader's first"),
    ] = None,
    url: Url = None,
    deadline_s: Annotated[
        float, typer.Option(min=0.001, max=3600, help="Seconds for the whole file, with --url")
    ] = 600.0,
    api_key: Annotated[
        str | None, typer.Option(envvar="GRADUS_API_KEY", help="API key of the service at --url")
    ] = None,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Grade a file of submissions. Prints one result per line, in the same order.

    Needs no server and no Redis. Exit status 0 when all were graded, 3 when any was faulted, 2 for
    misuse.

    \b
    gradus grade story submissions.jsonl > results.jsonl
    echo '{"id":"1","completion":"As a cook, I want a menu","task":{"references":["a menu"]}}' | gradus grade story -
    """  # noqa: E501
    from gradus.descriptions import grader_named

    name = grader_named(grader) if url is None else grader
    batch = _read_submissions(name, submissions)
    if not batch:
        log_line(f"gradus: {submissions} holds no submissions: nothing was graded")
    results = grade_submissions(name, batch, url, deadline_s, api_key, slots, rubric, config)
    faults = 0
    for result in show_progress(results, len(batch), "grading", quiet):
        print(result.model_dump_json(), flush=True)
        faults += result.status == "faulted"
    if faults:
        log_line(
            f"gradus: {faults} of {len(batch)} submissions could not be judged; see their `fault`"
        )
        raise typer.Exit(EXIT_FAULT)


def _read_submissions(name: GraderName, path: str) -> list[Submission]:
    """Return the submissions of a file. Raises Misuse naming file and line for the first that
    cannot be used."""
    from pydantic import ValidationError

    from gradus.contract import get_submission_class
    from gradus.row_reader import read_rows
    from gradus.validation import explain

    submissions: list[Submission] = []
    places: dict[str, str] = {}
    for row in read_rows(path):
        try:
            submission = get_submission_class(name).model_validate(dict(row.require_valid().values))
        except ValidationError as error:
            raise Misuse(f"{row.where}: {explain(error)}") from None
        if submission.id in places:
            raise Misuse(
                f"{row.where}: id: {submission.id!r} occurs twice, first at {places[submission.id]}"
            )
        places[submission.id] = row.where
        submissions.append(submission)
    return submissions


def grade_submissions(
    name: GraderName,
    submissions: list[Submission],
    url: str | None,
    deadline_s: float,
    api_key: str | None,
    slots: int | None,
    rubric: str | None = None,
    config: Path | None = None,
) -> Iterable[Graded | Faulted]:
    """Return results in order, of this machine as they become known, or of the service at `url` all
    at once."""
    if url is None:
        from services.local_grading import open_local

        if not submissions:
            return ()
        with show_start(name):
            return open_local(name, config, slots).grade(submissions, rubric)
    import asyncio

    from gradus.client import RewardClient

    async def run() -> list[Graded | Faulted]:
        # a person waits: report an unreachable service soon, not at the deadline
        async with RewardClient(url, api_key=api_key, attempts=4) as client:
            return await client.grade(
                await client.known(name), submissions, rubric=rubric, deadline_s=deadline_s
            )

    return asyncio.run(run())
