"""Commands on files of tasks: `gradus tasks ...`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradus.console import (
    Config,
    Quiet,
    Slots,
    escape_hidden,
    log_line,
    show_progress,
    show_start,
)
from gradus.errors import Misuse

if TYPE_CHECKING:
    from corpus.task_rows import Finding
    from gradus.contract import GraderName
    from gradus.row_reader import Row
    from services.graders.base import Grader

tasks_app = typer.Typer(help="Create and check files of tasks.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", "-o", help="JSONL file to write")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files")]
CODE = ("ocaml", "rust")
"""Graders of code, whose tasks have solutions and tests."""
TaskFile = Annotated[
    str, typer.Argument(metavar="FILE", help="JSONL, JSON or CSV file of tasks with solutions")
]
CodeGrader = Annotated[str, typer.Option(help="Grader of the tasks: ocaml or rust")]


@tasks_app.command("validate")
def validate_tasks(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="JSONL, JSON or CSV file with id, prompt, tests or references, solution, stub ...",
        ),
    ],
    grader: Annotated[str, typer.Option(help="Grader of the tasks")] = "ocaml",
    min_outside: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Share of the tests that has to compare outside answers' processes"
        ),
    ] = 0.5,
    solutions: Annotated[
        bool, typer.Option(help="Require a solution, which LiveCodeBench and MultiPL-E lack")
    ] = True,
    ignore_lint: Annotated[
        bool,
        typer.Option(
            "--ignore-lint", help="Accept reference answers that pass the tests with lint warnings"
        ),
    ] = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Check that every task is usable for training.

    Checks fields and duplicates; that tests parse and type-check; that the reference answer gets
    full marks; that the stub and an empty answer do not. For stories: the references as the answer
    earn at least 0.9, a solution 0.5, stub and empty answer less; the prompt holds no reference.
    Prints one line per problem, and for usable tasks of OCaml and Rust how many tests compare
    outside the answer's process. Exit status 0 when all are usable and enough tests do, else 1.
    """
    from corpus.files import load_rows
    from corpus.task_validation import count_outside_tests, validate
    from services.graders.ocaml.grader import OcamlGrader
    from services.graders.rust.grader import RustGrader

    if grader == "preference":
        raise Misuse(
            "a reward model needs no tasks, so there is nothing to check: any prompt will do"
        )
    rows = load_rows(file)
    name, loaded = start_grader(grader, config)
    bad = 0
    findings = validate(
        rows, name, loaded, slots, needs_solution=solutions, full_marks=not ignore_lint
    )
    for finding in show_progress(findings, len(rows), "validating", quiet):
        task = f"{finding.row.where}: {finding.row.values.get('id', '')}"
        for problem in finding.problems:
            print(f"{task}: {problem}", flush=True)
        for warning in finding.warnings:
            log_line(f"{task}: warning: {warning}")
        bad += bool(finding.problems)
    print(f"{len(rows) - bad} of {len(rows)} tasks are usable")
    if bad:
        raise typer.Exit(1)
    if isinstance(loaded, OcamlGrader | RustGrader):
        solved = [row for row in rows if row.values.get("solution")]
        outside, tests = count_outside_tests(loaded, solved)
        share = outside / tests if tests else 1.0
        print(
            f"{outside} of {tests} tests ({share:.1%}) compare with values that no answer's"
            " process holds"
        )
        if share < min_outside:
            print(f"that is less than --min-outside {min_outside:g}")
            raise typer.Exit(1)


@tasks_app.command("sign")
def sign_tasks(
    file: TaskFile,
    out: Out,
    grader: CodeGrader = "ocaml",
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Derive signatures from reference solutions and tests, for tasks that have none.

    A signature declares what the tests use of the solution; tests can use nothing else of an
    answer. It is kept only if the solution passes all tests with it. All rows are written in their
    order; those with a signature or `cases` do not change. Prints one line per task that could not
    be signed. Exit status 1 when there are such tasks.
    """
    from corpus.files import load_valid_rows, refuse_existing
    from corpus.signing import sign

    refuse_existing([out], force=force, sources=[file])
    rows = load_valid_rows(file)
    name, loaded = start_grader(grader, config, CODE)
    results = list(show_progress(sign(rows, name, loaded, slots), len(rows), "signing", quiet))
    signed, unsigned = _write_changed(out, rows, results)
    print(f"{signed} of {len(rows)} tasks were signed, {unsigned} could not be: {out}")
    if unsigned:
        raise typer.Exit(1)


@tasks_app.command("publish")
def publish_tests(
    file: TaskFile,
    out: Out,
    grader: Annotated[str, typer.Option(help="Grader of the tasks: ocaml, rust or program")] = (
        "ocaml"
    ),
    share: Annotated[
        float, typer.Option(min=0.0, max=0.5, help="Share of a task's tests to publish")
    ] = 0.25,
    max_public: Annotated[
        int, typer.Option("--max-public", min=1, max=16, help="Most public tests of one task")
    ] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the choice of tests")] = 42,
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Move a share of each task's hidden tests to `public_tests`, which feedback may quote; of
    `cases` to `public_cases`.

    Public tests no longer count for the reward. At least half of the tests stay hidden. A task is
    changed only if its reference answer passes both parts. All rows are written in their order.
    Prints one line per unchanged task.
    """
    from corpus.files import load_valid_rows, refuse_existing
    from corpus.public_tests import publish

    refuse_existing([out], force=force, sources=[file])
    rows = load_valid_rows(file)
    name, loaded = start_grader(grader, config, (*CODE, "program"))
    findings = publish(rows, name, loaded, share, max_public, seed, slots)
    results = list(show_progress(findings, len(rows), "publishing", quiet))
    published, _ = _write_changed(out, rows, results)
    print(f"{published} of {len(rows)} tasks have new public tests: {out}")


@tasks_app.command("mutate")
def mutate_tasks(
    file: TaskFile,
    out: Out,
    grader: CodeGrader = "ocaml",
    per_task: Annotated[
        int, typer.Option(min=1, max=100, help="Most repair tasks of one task")
    ] = 4,
    tries: Annotated[
        int,
        typer.Option("--max-mutants", min=1, max=1000, help="Most mutants of one task to grade"),
    ] = 12,
    seed: Annotated[int, typer.Option(help="Seed of the choice of edits")] = 42,
    lints: Annotated[
        bool, typer.Option("--lints", help="Add edits that only clippy reports (Rust)")
    ] = False,
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Create code-repair tasks by mutating reference solutions: broken code, the grader's feedback,
    the fix.

    Each mutant differs by one edit: an operator, a constant off by one, a missing case, `rec` or
    word, a negated condition, swapped arguments, a wrong constructor ... Edits change the syntax
    tree of OCaml and the tokens of Rust.
    The mutant is the new task's `stub`, the grader's feedback is in `message` and in the prompt,
    and `group` names the original task. Tests and signature stay the same.

    A mutant that passes all tests never becomes a task. It is in FILE.survivors.jsonl: either the
    tests are weak, or the edit changes nothing.
    """
    from corpus.files import build_sibling_path, load_valid_rows, refuse_existing, write_rows
    from corpus.repair_tasks import break_tasks, create_mutations

    if lints and grader != "rust":
        raise Misuse("--lints requires --grader rust")
    refuse_existing([out, build_sibling_path(out, "survivors")], force=force, sources=[file])
    rows = load_valid_rows(file)
    name, loaded = start_grader(grader, config, CODE)
    mutations = create_mutations(loaded)
    tasks = break_tasks(
        rows,
        name,
        loaded,
        mutations,
        per_task=per_task,
        tries=tries,
        seed=seed,
        lints=lints,
        slots=slots,
    )
    results = list(show_progress(tasks, len(rows), "breaking", quiet))
    repairs = write_rows(out, (row for result in results for row in result.repairs))
    survivors = write_rows(
        build_sibling_path(out, "survivors"),
        (row for result in results for row in result.survivors),
    )
    for result in results:
        if result.problem is not None:
            log_line(f"{result.where}: {result.id}: {result.problem[:500]}")
    tried = sum(result.tried for result in results)
    print(
        f"{repairs} repair tasks of {len(rows)} tasks are in {out}; {tried} broken answers were"
        " graded"
    )
    print(f"{survivors} of these pass all tests: {build_sibling_path(out, 'survivors')}")
    if not repairs:
        raise typer.Exit(1)


@tasks_app.command("trajectories")
def write_trajectories(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="JSONL, JSON or CSV file of tasks with stub and solution, from tasks mutate",
        ),
    ],
    out: Out,
    grader: CodeGrader = "ocaml",
    format_: Annotated[
        str, typer.Option("--format", help="Format of the rows: chat or agent")
    ] = "chat",
    attempts: Annotated[
        int,
        typer.Option(
            "--max-broken-attempts", min=1, max=10, help="Most broken attempts before the right one"
        ),
    ] = 1,
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Write repair trajectories: broken attempt, the grader's feedback, fixed file.

    \b
    chat   messages with calls of one tool, and tools, in the form of chat templates
    agent  the same with eight tools, from run_tests to search_crates_io; for Rust

    The grader writes every reply of the tool. With several attempts, the first has the mistakes of
    several tasks of one group, and each attempt has one less. Tasks whose stub passes or whose
    solution fails are left out, with the reason.
    """
    from corpus.agent_format import build_agent_row
    from corpus.files import build_sibling_path, load_valid_rows, refuse_existing, write_rows
    from corpus.task_rows import Finding
    from corpus.trajectories import DESCRIBING, build_trajectories
    from corpus.trajectory_formats import build_chat_row
    from services.graders.rust.grader import RustGrader

    if format_ not in ("chat", "agent"):
        raise Misuse(f"--format {format_}: use one of chat, agent")
    if format_ == "agent" and grader != "rust":
        raise Misuse("--format agent requires --grader rust")
    refuse_existing([out, build_sibling_path(out, "rejected")], force=force, sources=[file])
    rows = load_valid_rows(file)
    name, loaded = start_grader(grader, config, CODE)
    results = build_trajectories(rows, name, loaded, attempts, slots)
    output_rows: list[dict[str, Any]] = []
    rejected: list[Finding] = []
    for result in show_progress(results, len(rows), "grading", quiet):
        metadata = {
            name: result.row.values[name] for name in DESCRIBING if name in result.row.values
        }
        if result.trajectory is None:
            rejected.append(Finding(result.row, [str(result.problem)]))
        elif format_ == "agent" and isinstance(loaded, RustGrader):
            output_rows.append({**build_agent_row(result.trajectory, loaded), **metadata})
        else:
            output_rows.append({**build_chat_row(result.trajectory), **metadata})
    write_rows(out, output_rows)
    write_findings(out, "rejected", rejected)
    print(f"{len(output_rows)} trajectories of {len(rows)} tasks are in {out}")
    if not output_rows:
        raise typer.Exit(1)


@tasks_app.command("dedupe")
def dedupe_tasks(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="JSONL, JSON or CSV file of tasks or demonstrations"),
    ],
    out: Out,
    force: Force = False,
) -> None:
    """Remove duplicate rows: the same prompt, the same tests, or 80% of a prompt's 5-grams.

    The first row stays. Rows of one `group` (several repairs of one task) are duplicates only when
    their prompts are the same. Removed rows are in FILE.duplicates.jsonl, each with its reason and
    the row that stays.
    """
    from corpus.duplicates import find_duplicates
    from corpus.files import build_sibling_path, load_valid_rows, refuse_existing, write_task_rows

    refuse_existing([out, build_sibling_path(out, "duplicates")], force=force, sources=[file])
    rows = load_valid_rows(file)
    duplicates = find_duplicates(rows)
    gone = {id(double.row) for double in duplicates}
    write_task_rows(out, [row for row in rows if id(row) not in gone])
    write_findings(out, "duplicates", duplicates)
    print(
        f"{len(rows) - len(duplicates)} of {len(rows)} rows are in {out}; the other"
        f" {len(duplicates)} were there before"
    )


@tasks_app.command("decontaminate")
def decontaminate_tasks(
    train: Annotated[
        str, typer.Argument(metavar="TRAIN", help="JSONL, JSON or CSV file of training rows")
    ],
    against: Annotated[
        list[str], typer.Option("--against", help="File of an evaluation set; may be repeated")
    ],
    out: Out,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Remove training rows that overlap with an evaluation set.

    A row is removed when it has the id, group, title, prompt, tests or solution of an evaluation
    row, 13 words in a row of its prompt or 50 tokens of its code. Every reason is in
    FILE.contaminated.jsonl, with the place of the evaluation row and a common n-gram. Exit status 0
    whether or not an overlap was found.
    """
    from corpus.contamination import EvalIndex
    from corpus.files import build_sibling_path, load_valid_rows, refuse_existing, write_rows
    from corpus.task_rows import Finding

    refuse_existing(
        [out, build_sibling_path(out, "contaminated")], force=force, sources=[train, *against]
    )
    rows = load_valid_rows(train)
    evaluation = EvalIndex([row for file in against for row in load_valid_rows(file)])
    clean = []
    leaking = []
    for row in show_progress(rows, len(rows), "comparing", quiet):
        if reasons := evaluation.find_leaks(row.values):
            leaking.append(Finding(row, reasons))
        else:
            clean.append(row.values)
    write_rows(out, clean)
    write_findings(out, "contaminated", leaking)
    print(
        f"{len(clean)} of {len(rows)} rows are in {out}; {len(leaking)} give away what is measured"
        " on"
    )


@tasks_app.command("split")
def split_tasks(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSONL, JSON or CSV file of tasks")],
    train: Annotated[Path, typer.Option("--train", help="JSONL file for training rows")],
    measured: Annotated[Path, typer.Option("--eval", help="JSONL file for evaluation rows")],
    share: Annotated[
        float, typer.Option("--eval-fraction", min=0.0, max=1.0, help="Fraction of evaluation rows")
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the choice of problems")] = 42,
    force: Force = False,
) -> None:
    """Split tasks by problem, so that variants of one problem are never on both sides.

    Variants have the same group, prompt, tests or solution, or nearly the same prompt. The same
    file and seed give the same split; rows that you add later move no others, unless they join
    problems.
    """
    from corpus.files import load_valid_rows, refuse_existing, write_task_rows
    from corpus.splitting import split

    if train.resolve() == measured.resolve():
        raise Misuse(f"{train}: --train and --eval are the same file")
    refuse_existing([train, measured], force=force, sources=[file])
    trained, held_out, problems = split(load_valid_rows(file), share, seed)
    write_task_rows(train, trained)
    write_task_rows(measured, held_out)
    print(f"{len(trained)} rows to train on: {train}")
    print(f"{len(held_out)} rows to measure on: {measured}; {problems} problems in all")


def start_grader(
    name: GraderName, config: Path | None, allowed: Sequence[GraderName] = ()
) -> tuple[GraderName, Grader]:
    """Return the grader's name and the grader, after its self-test. Raises Misuse for an unknown
    name and for one that is not `allowed`, Fault."""
    from gradus.descriptions import grader_named
    from services.graders.base import load

    grader_named(name)
    if allowed and name not in allowed:
        raise Misuse(f"--grader {name}: this is for tasks of {' and '.join(allowed)}")
    with show_start(name):
        grader = load(name, config=config)
        grader.self_test()
    return name, grader


def _write_changed(out: Path, rows: Sequence[Row], results: Sequence[Finding]) -> tuple[int, int]:
    """Write all rows, and print why some are not changed. Return how many are new, and how many
    have a problem."""
    from corpus.files import write_task_rows

    write_task_rows(out, map(attrgetter("row"), results))
    problems = [result for result in results if result.problems]
    for result in problems:
        print(f"{result.row.where}: {result.row.values.get('id', '')}: {result.problems[0]}")
    changed = [row for row, result in zip(rows, results, strict=True) if result.row is not row]
    return len(changed), len(problems)


def write_findings(out: Path, suffix: str, findings: Sequence[Finding]) -> None:
    """Write the rows that were left out, with their reasons, beside `out`; remove the file of an
    earlier run where there are none."""
    from corpus.files import build_sibling_path, write_rows

    path = build_sibling_path(out, suffix)
    if not findings:
        path.unlink(missing_ok=True)
        return
    rows = []
    for finding in findings:
        location = finding.row.where
        name = finding.row.values.get("id")
        rows.append(
            {"where": location, "id": name, "reasons": finding.problems, "row": finding.row.values}
        )
        # an id that could not be used is as its source wrote it
        problems = "; ".join(finding.problems)[:500]
        log_line(escape_hidden(f"{location}: {name}: {problems}"))
    write_rows(path, rows)
    log_line(f"gradus: {len(findings)} were left out: {path}")
