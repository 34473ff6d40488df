"""Commands that import tasks, and texts for pretraining: `gradus tasks import` and `gradus tasks
texts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corpus.commands.tasks import CODE, Force, Out, start_grader, write_findings
from gradus.console import Config, Quiet, Slots, log_line, show_progress
from gradus.errors import Fault, Misuse

if TYPE_CHECKING:
    from corpus.task_rows import Finding
    from gradus.contract import GraderName
    from gradus.row_reader import Row
    from services.graders.base import Grader


def import_tasks(
    path: Annotated[
        Path,
        typer.Argument(
            help="JSONL, JSON or CSV file, - for JSONL on standard input, or a folder of Harbor"
        ),
    ],
    out: Out,
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="Format of PATH, listed above")
    ],
    language: Annotated[
        str | None,
        typer.Option(
            help="Language of the tasks",
            show_default="the records'; python for problems with input and output",
        ),
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
                   HumanEval, in Python: task_id, prompt, entry_point, canonical_solution, test
    mbpp           task_id, text or prompt, code, test_list, perhaps challenge_test_list
    apps           problem_id, question, input_output, solutions, starter_code
    taco           question, input_output, solutions, starter_code, time_limit, memory_limit
    code-contests  name, description, public_tests, private_tests, generated_tests, solutions ...
    livecodebench  question_id, question_content, starter_code, public_test_cases,
                   private_test_cases, metadata; no answers
    common-oj      of SandboxFusion: id, content, test, labels, canonical_solution
    ocamler        id, prompt (doc comment and `let f (x : int) : int =`), tests
    ocamler-eval   id, problem, solution, tests, difficulty; --drop-failing drops stubs
    ocamler-sft    prompt, solution: becomes worked examples, for `warm_start.dataset`
    rust-pipeline  description, starter_code, tests, perhaps id, solution, complexity
    scrum          sprint_name, sprint_goal, formatted_issues, num_issues, perhaps team_context
    harbor         folders that `gradus tasks export` wrote

    Each task keeps its licence and its source. Reference answers are graded where the toolchain is
    installed.
    """  # noqa: E501
    from corpus.files import build_sibling_path, refuse_existing
    from corpus.import_validation import check_examples, check_rows, recheck_failing

    rejected = build_sibling_path(out, "rejected")
    refuse_existing([out, rejected], force=force, sources=[path])
    drafts, name = _read_drafts(path, format_, language)
    if name is None:
        _finish(list(check_examples(drafts)), out)
        return
    rows = list(drafts)
    should_validate = (name != "story") if validate is None else validate
    grader = _start_grader(name, config, is_needed=bool(validate)) if should_validate else None
    if grader is not None and name in CODE:
        rows = _sign_rows(rows, name, grader, slots, quiet)
    findings = list(
        show_progress(
            check_rows(rows, name, grader, slots, full_marks=not any_style),
            len(rows),
            "reading" if grader is None else "validating",
            quiet,
        )
    )
    if drop_failing and grader is not None:
        again = recheck_failing(findings, name, grader, slots, full_marks=not any_style)
        findings = list(show_progress(again, len(rows), "validating again", quiet))
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
    from corpus.files import build_sibling_path, refuse_existing
    from corpus.texts import check_texts, read_text_drafts

    if any(out.resolve().is_relative_to(path.resolve()) for path in paths):
        raise Misuse(f"{out}: is also an input; choose another output file")
    refuse_existing([out, build_sibling_path(out, "rejected")], force=force)
    drafts = list(read_text_drafts(paths, column))
    if not drafts:
        raise Misuse(f"{', '.join(map(str, paths))}: no texts found")
    _finish(list(check_texts(drafts, min_words)), out)


def _read_drafts(
    path: Path, format_: str, language: str | None
) -> tuple[Iterable[Row], GraderName | None]:
    """Return rows of tasks made from the file, and the grader of the tasks; None for worked
    examples. Raises Misuse."""
    from corpus.dataset_layouts import (
        LAYOUTS,
        PROBLEMS,
        build_column_drafts,
        build_problem_layout,
    )
    from corpus.files import load_rows
    from corpus.harbor import read_folders
    from corpus.humaneval import build_humaneval_drafts, resolve_language
    from corpus.program_problems import STUBS

    formats = ("humaneval", *LAYOUTS, *PROBLEMS, "harbor")
    if format_ not in formats:
        raise Misuse(f"--format {format_}: choose one of {', '.join(formats)}")
    if format_ == "harbor":
        if language is not None:
            raise Misuse("--language: folders of Harbor name their grader")
        return read_folders(path)
    rows = load_rows(path)
    if format_ == "humaneval":
        name = resolve_language(rows, language)
        return build_humaneval_drafts(rows, name), name
    if format_ in PROBLEMS:
        chosen = language or "python"
        if chosen not in STUBS:
            raise Misuse(f"--language {chosen}: choose one of {', '.join(STUBS)}")
        return build_column_drafts(rows, build_problem_layout(format_, chosen)), "program"
    if language is not None:
        raise Misuse(f"--language: --format {format_} has one language only")
    layout = LAYOUTS[format_]
    return build_column_drafts(rows, layout), layout.grader


def _start_grader(name: GraderName, config: Path | None, *, is_needed: bool) -> Grader | None:
    """Return the grader to validate with; None, with a warning, where it cannot start and is not
    needed."""
    try:
        return start_grader(name, config)[1]
    except Fault as fault:
        if is_needed:
            raise
        log_line(f"gradus: warning: the tasks are not validated: {fault.message}")
        return None


def _sign_rows(
    rows: list[Row], name: GraderName, grader: Grader, slots: int | None, quiet: bool
) -> list[Row]:
    from corpus.signing import sign

    results = show_progress(sign(rows, name, grader, slots), len(rows), "signing", quiet)
    return list(map(attrgetter("row"), results))


def _finish(findings: list[Finding], out: Path) -> None:
    """Write the tasks and the rejected records, and report both."""
    from corpus.files import write_task_rows

    good = [finding for finding in findings if not finding.problems]
    write_task_rows(out, map(attrgetter("row"), good))
    write_findings(out, "rejected", [finding for finding in findings if finding.problems])
    warnings: Counter[str] = Counter()
    for finding in good:
        warnings.update(finding.warnings)
    for warning, number in warnings.items():
        log_line(f"gradus: warning: {number} tasks: {warning}")
    print(f"{len(good)} of {len(findings)} records are in {out}")
    if not good:
        raise typer.Exit(1)
