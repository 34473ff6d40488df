"""Commands that import tasks, and texts for pretraining: `gradus tasks import` and `gradus tasks
texts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corpus.commands.tasks import CODE, Force, Out, started, write_left_out
from gradus.console import Config, Quiet, Slots, log_line, with_progress
from gradus.errors import Fault, Misuse

if TYPE_CHECKING:
    from corpus.task_rows import Finding
    from gradus.contract import GraderName
    from gradus.row_reader import Row
    from services.graders.base import Grader


def import_tasks(
    path: Annotated[
        Path, typer.Argument(help="JSONL, JSON or CSV file, or - for JSONL on standard input")
    ],
    out: Out,
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="Format of PATH, listed above")
    ],
    language: Annotated[
        str | None,
        typer.Option(help="Language: ocaml or rust", show_default="the records'"),
    ] = None,
    force: Force = False,
    validate: Annotated[
        bool | None,
        typer.Option(
            "--validate/--no-validate",
            help="Grade reference answers and stubs",
            show_default="if the toolchain is installed; not stories",
        ),
    ] = None,
    drop_failing: Annotated[
        bool, typer.Option(help="Treat failing reference answers as absent, and count them")
    ] = False,
    any_style: Annotated[
        bool,
        typer.Option(
            "--ignore-lint", help="Accept reference answers that pass the tests with lint warnings"
        ),
    ] = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Import tasks from other data sets. Records that cannot be used are in FILE.rejected.jsonl,
    with reasons.

    \b
    humaneval      HumanEval-X, HumanEvalPack: task_id, prompt, canonical_solution, test; often --ignore-lint;
                   MultiPL-E in OCaml: name, language, prompt, tests; no answers
    ocamler        id, prompt (doc comment and `let f (x : int) : int =`), tests
    ocamler-eval   id, problem, solution, tests, difficulty; --drop-failing drops stubs
    ocamler-sft    prompt, solution: becomes worked examples, for `warm_start.dataset`
    rust-pipeline  description, starter_code, tests, perhaps id, solution, complexity
    scrum          sprint_name, sprint_goal, formatted_issues, num_issues, perhaps team_context

    Each task keeps its licence and its source. Reference answers are graded where the toolchain is
    installed.
    """  # noqa: E501
    from corpus.files import refuse_existing, sibling_path
    from corpus.import_validation import decide, decide_examples, decide_without_failing

    rejected = sibling_path(out, "rejected")
    refuse_existing([out, rejected], force=force, sources=[path])
    drafts, name = _read(path, format_, language)
    if name is None:
        _finish(list(decide_examples(drafts)), out)
        return
    found = list(drafts)
    wanted = (name != "story") if validate is None else validate
    grader = _started(name, config, is_needed=bool(validate)) if wanted else None
    if grader is not None and name in CODE:
        found = _signed(found, name, grader, slots, quiet)
    findings = list(
        with_progress(
            decide(found, name, grader, slots, full_marks=not any_style),
            len(found),
            "reading" if grader is None else "validating",
            quiet,
        )
    )
    if drop_failing and grader is not None:
        again = decide_without_failing(findings, name, grader, slots, full_marks=not any_style)
        findings = list(with_progress(again, len(found), "validating again", quiet))
    _finish(findings, out)


def import_texts(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATHS", help="Files and folders of .txt, .md, .jsonl, .json and .csv"
        ),
    ],
    out: Out,
    column: Annotated[str, typer.Option(help="Column that holds the text")] = "text",
    min_words: Annotated[int, typer.Option(min=1, help="Leave out texts with fewer words")] = 20,
    force: Force = False,
) -> None:
    """Clean texts for pretraining and remove duplicates. Writes rows of `text` and `source`.

    \b
    gradus tasks texts books/ notes.jsonl -o texts.jsonl
    gradus train pretrain FILE.yaml --data.dataset texts.jsonl

    Cleaning makes line ends and Unicode uniform and takes control characters away; it changes no
    words. A duplicate has the words of an earlier text, or 80% of its runs of words.
    """
    from corpus.files import refuse_existing, sibling_path
    from corpus.texts import decide_texts, text_drafts

    if any(out.resolve().is_relative_to(path.resolve()) for path in paths):
        raise Misuse(f"{out}: is also an input; choose another output file")
    refuse_existing([out, sibling_path(out, "rejected")], force=force)
    drafts = list(text_drafts(paths, column))
    if not drafts:
        raise Misuse(f"{', '.join(map(str, paths))}: no texts found")
    _finish(list(decide_texts(drafts, min_words)), out)


def _read(
    path: Path, format_: str, language: str | None
) -> tuple[Iterable[Row], GraderName | None]:
    """Return rows of tasks made from the file, and the grader of the tasks; None for worked
    examples. Raises Misuse."""
    from corpus.dataset_layouts import LAYOUTS, column_drafts
    from corpus.files import rows_of
    from corpus.humaneval import humaneval_drafts, language_of

    if format_ not in ("humaneval", *LAYOUTS):
        raise Misuse(f"--format {format_}: choose one of humaneval, {', '.join(LAYOUTS)}")
    rows = rows_of(path)
    if format_ == "humaneval":
        name = language_of(rows, language)
        return humaneval_drafts(rows, name), name
    if language is not None:
        raise Misuse(f"--language: --format {format_} has one language only")
    layout = LAYOUTS[format_]
    return column_drafts(rows, layout), layout.grader


def _started(name: GraderName, config: Path | None, *, is_needed: bool) -> Grader | None:
    """Return the grader to validate with; None, with a warning, where it cannot start and is not
    needed."""
    try:
        return started(name, config)[1]
    except Fault as fault:
        if is_needed:
            raise
        log_line(f"gradus: warning: the tasks are not validated: {fault.message}")
        return None


def _signed(
    rows: list[Row], name: GraderName, grader: Grader, slots: int | None, quiet: bool
) -> list[Row]:
    from corpus.signing import sign

    results = with_progress(sign(rows, name, grader, slots), len(rows), "signing", quiet)
    return [result.row for result in results]


def _finish(findings: list[Finding], out: Path) -> None:
    """Write the tasks and the rejected records, and report both."""
    from corpus.files import write_rows

    good = [finding for finding in findings if not finding.problems]
    write_rows(out, (finding.row.values for finding in good))
    write_left_out(out, "rejected", [finding for finding in findings if finding.problems])
    warnings: Counter[str] = Counter()
    for finding in good:
        warnings.update(finding.warnings)
    for warning, number in warnings.items():
        log_line(f"gradus: warning: {number} tasks: {warning}")
    print(f"{len(good)} of {len(findings)} records are in {out}")
    if not good:
        raise typer.Exit(1)
