"""`gradus tasks doctor`: the state of each row of a file of one's own, and its repair."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corpus.commands.tasks import Force, start_grader
from gradus.console import Config, Quiet, Slots, escape_hidden, log_line, show_progress
from gradus.errors import Misuse

if TYPE_CHECKING:
    from corpus.task_doctor import Diagnosis


def check_tasks(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSONL, JSON or CSV file of tasks, of any columns")
    ],
    grader: Annotated[str, typer.Option(help="Grader of the tasks")] = "ocaml",
    fix: Annotated[
        bool, typer.Option("--fix", help="Accept the repairs, and write the tasks to --out")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="JSONL file to write, with --fix")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Page to write, on which repairs are accepted row by row"),
    ] = None,
    mutants: Annotated[
        int,
        typer.Option(min=0, max=100, help="Broken solutions to try per row of code; 0 for none"),
    ] = 4,
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Show the state of each row of a file: usable, repaired, or needs you, with cause and repair.

    Solutions are not needed. A repair is proposed only if the row passes the checks of `gradus
    tasks validate` with it. With --fix, --out gets usable and repaired rows; rows that need you are
    in OUT.rejected.jsonl, whole. The page of --html shows each repair and saves the rows that you
    accept. Broken solutions that pass all tests tell weak tests. Exit status 1 when a row needs
    you, or would without --fix.

    \b
    gradus tasks doctor mine.jsonl
    gradus tasks doctor mine.jsonl --html doctor.html
    gradus tasks doctor mine.jsonl --fix -o tasks.jsonl
    """
    from corpus.doctor_page import render_doctor_page
    from corpus.files import build_sibling_path, load_rows, refuse_existing
    from corpus.task_doctor import RowState, diagnose, find_weak_tests
    from gradus.whole_file import write_text

    if grader == "preference":
        raise Misuse("a reward model needs no tasks: any prompt will do")
    if fix != (out is not None):
        raise Misuse("--fix and --out belong together: give both, or neither to look only")
    outputs = [] if out is None else [out, build_sibling_path(out, "rejected")]
    if html is not None:
        outputs.append(html)
    refuse_existing(outputs, force=force, sources=[file])
    rows = load_rows(file)
    name, loaded = start_grader(grader, config)
    show = partial(show_progress, quiet=quiet)
    diagnoses = list(diagnose(rows, name, loaded, slots, show))
    tried = find_weak_tests(diagnoses, name, loaded, mutants, slots)
    weak_tests = list(show(tried, len(rows), "breaking solutions"))
    for diagnosis, weak in zip(diagnoses, weak_tests, strict=True):
        print(escape_hidden(_render(diagnosis, weak)))
    counts = Counter(diagnosis.state for diagnosis in diagnoses)
    _print_common_causes(diagnoses)
    print(", ".join(f"{counts[state]} {state}" for state in RowState) + f" of {len(rows)} rows")
    if html is not None:
        write_text(html, render_doctor_page(file, name, diagnoses, weak_tests))
        log_line(f"gradus: open {html} in a browser, and accept repairs there")
    if out is not None:
        _write(out, diagnoses)
    elif html is None and counts[RowState.REPAIRED]:
        log_line("gradus: --fix -o FILE writes the repaired rows; --html FILE shows them first")
    if counts[RowState.NEEDS_YOU] or (counts[RowState.REPAIRED] and not fix):
        raise typer.Exit(1)


def _print_common_causes(diagnoses: list[Diagnosis]) -> None:
    """Print what several rows need you for."""
    from corpus.task_doctor import RowState

    causes = Counter(each.cause for each in diagnoses if each.state is RowState.NEEDS_YOU)
    for cause, number in causes.most_common(3):
        if number > 1:
            print(escape_hidden(f"{number} rows need you: {cause}"))


def _render(diagnosis: Diagnosis, weak: str) -> str:
    """Return the lines about one row."""
    row = diagnosis.row
    lines = [f"{row.where}: {row.values.get('id', '')}: {diagnosis.state}"]
    if diagnosis.cause:
        lines.append(f"  cause: {diagnosis.cause}")
    for test in diagnosis.failing:
        lines.append(f"  fails: line {test.line} of the tests: {test.text}")
    if diagnosis.repaired is not None or diagnosis.joined_to:
        lines += [f"  repair: {message}" for message in diagnosis.repairs]
    if diagnosis.advice:
        lines.append(f"  do: {diagnosis.advice}")
    lines += [f"  note: {warning}" for warning in diagnosis.warnings]
    if weak:
        lines.append(f"  weak tests: {weak}")
    return "\n".join(lines)


def _write(out: Path, diagnoses: list[Diagnosis]) -> None:
    """Write usable and repaired rows to `out`, all others whole beside it."""
    from corpus.commands.tasks import write_findings
    from corpus.files import write_task_rows
    from corpus.task_doctor import RowState
    from corpus.task_rows import Finding

    good = [each.task for each in diagnoses if each.task is not None]
    write_task_rows(out, good)
    bad = [each for each in diagnoses if each.state is RowState.NEEDS_YOU]
    write_findings(out, "rejected", [Finding(each.row, [each.cause]) for each in bad])
    log_line(f"gradus: {len(good)} rows are in {out}")
