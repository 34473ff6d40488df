"""Commands on files of tasks: `gradus tasks ...`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradus.console import Config, Quiet, Slots, log_line, with_progress
from gradus.errors import Misuse

if TYPE_CHECKING:
    from corpus.trajectories import TrajectoryResult
    from services.graders.base import Grader

tasks_app = typer.Typer(help="Create and check files of tasks.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", "-o", help="JSONL file to write")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files")]


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
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Check that every task is usable for training.

    Checks fields and duplicates; that tests parse and type-check; that the reference answer gets
    full marks; that the stub and an empty answer do not. For stories: the references as the answer
    earn at least 0.9, a solution 0.5, stub and empty answer less; the prompt holds no reference.
    Prints one line per problem, and for usable OCaml tasks how many tests compare outside the
    answer's process. Exit status 0 when all are usable, else 1.
    """
    from corpus.task_validation import compared_outside, validate
    from gradus.descriptions import grader_named
    from gradus.row_reader import read_rows
    from services.graders.base import load
    from services.graders.ocaml.grader import OcamlGrader

    name = grader_named(grader)
    if name == "preference":
        raise Misuse(
            "a reward model needs no tasks, so there is nothing to check: any prompt will do"
        )
    rows = list(read_rows(file))
    if not rows:
        raise Misuse(f"{file}: holds no rows")
    loaded = load(name, config=config)
    loaded.self_test()
    bad = 0
    for finding in with_progress(
        validate(rows, name, loaded, slots), len(rows), "validating", quiet
    ):
        for problem in finding.problems:
            print(f"{finding.where}: {finding.task_id}: {problem}", flush=True)
        for warning in finding.warnings:
            log_line(f"{finding.where}: {finding.task_id}: warning: {warning}")
        bad += bool(finding.problems)
    print(f"{len(rows) - bad} of {len(rows)} tasks are usable")
    if bad:
        raise typer.Exit(1)
    if isinstance(loaded, OcamlGrader):
        outside, tests = compared_outside(loaded, rows)
        print(
            f"{outside} of {tests} tests ({outside / tests:.1%}) compare with values that no"
            " answer's process holds"
        )


@tasks_app.command("sign")
def sign_tasks(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSONL, JSON or CSV file of tasks with solutions")
    ],
    out: Out,
    grader: Annotated[str, typer.Option(help="Grader of the tasks: ocaml or rust")] = "ocaml",
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
    from corpus.files import checked_rows, refuse_existing, write_rows
    from corpus.signing import LANGUAGES, sign
    from gradus.descriptions import grader_named
    from services.graders.base import load

    name = grader_named(grader)
    if name not in LANGUAGES:
        raise Misuse(f"--grader {grader}: tasks of {' and '.join(LANGUAGES)} have signatures")
    refuse_existing([out], force=force, sources=[file])
    rows = checked_rows(file)
    loaded = load(name, config=config)
    loaded.self_test()
    results = list(with_progress(sign(rows, name, loaded, slots), len(rows), "signing", quiet))
    write_rows(out, (result.values for result in results))
    unsigned = [result for result in results if result.problem]
    for result in unsigned:
        print(f"{result.row.where}: {result.row.values.get('id', '')}: {result.problem}")
    signed = sum(result.is_new for result in results)
    print(f"{signed} of {len(rows)} tasks were signed, {len(unsigned)} could not be: {out}")
    if unsigned:
        raise typer.Exit(1)


@tasks_app.command("publish")
def publish_tests(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSONL, JSON or CSV file of tasks with solutions")
    ],
    out: Out,
    grader: Annotated[str, typer.Option(help="Grader of the tasks: ocaml or rust")] = "ocaml",
    share: Annotated[
        float, typer.Option(min=0.0, max=0.5, help="Share of a task's tests to publish")
    ] = 0.25,
    most: Annotated[
        int, typer.Option("--max-public", min=1, max=16, help="Most public tests of one task")
    ] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the choice of tests")] = 42,
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Move a share of each task's hidden tests to `public_tests`, which feedback may quote.

    Public tests no longer count for the reward. At least half of the tests stay hidden. A task is
    changed only if its reference answer passes both parts. All rows are written in their order.
    Prints one line per unchanged task.
    """
    from corpus.files import checked_rows, refuse_existing, write_rows
    from corpus.public_tests import SINGLE_TESTS, publish
    from gradus.descriptions import grader_named
    from services.graders.base import load

    name = grader_named(grader)
    if name not in SINGLE_TESTS:
        raise Misuse(
            f"--grader {grader}: only tasks of {' and '.join(SINGLE_TESTS)} have tests to publish"
        )
    refuse_existing([out], force=force, sources=[file])
    rows = checked_rows(file)
    loaded = load(name, config=config)
    loaded.self_test()
    found = publish(rows, name, loaded, share, most, seed, slots)
    results = list(with_progress(found, len(rows), "publishing", quiet))
    write_rows(out, (result.values for result in results))
    for result in results:
        if result.problem:
            print(f"{result.row.where}: {result.row.values.get('id', '')}: {result.problem}")
    print(
        f"{sum(not result.problem for result in results)} of {len(rows)} tasks have new public"
        f" tests: {out}"
    )


@tasks_app.command("mutate")
def mutate_tasks(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSONL, JSON or CSV file of tasks with solutions")
    ],
    out: Out,
    grader: Annotated[str, typer.Option(help="Grader of the tasks: ocaml or rust")] = "ocaml",
    per_task: Annotated[
        int, typer.Option(min=1, max=100, help="Most repair tasks of one task")
    ] = 4,
    tries: Annotated[
        int,
        typer.Option("--max-mutants", min=1, max=1000, help="Most mutants of one task to grade"),
    ] = 12,
    seed: Annotated[int, typer.Option(help="Seed of the choice of edits")] = 42,
    engine: Annotated[
        str, typer.Option(help="Source of Rust mutations: auto, own or cargo-mutants")
    ] = "auto",
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
    tree of OCaml; those of Rust come from cargo-mutants if it is installed, else from the tokens.
    The mutant is the new task's `stub`, the grader's feedback is in `message` and in the prompt,
    and `group` names the original task. Tests and signature stay the same.

    A mutant that passes all tests never becomes a task. It is in FILE.survivors.jsonl: either the
    tests are weak, or the edit changes nothing.
    """
    from corpus.files import checked_rows, refuse_existing, sibling_path, write_rows
    from corpus.repair_tasks import MutationOptions, break_tasks, mutations_for
    from gradus.descriptions import grader_named
    from services.graders.base import load

    name = grader_named(grader)
    if lints and name != "rust":
        raise Misuse("--lints requires --grader rust")
    refuse_existing([out, sibling_path(out, "survivors")], force=force, sources=[file])
    rows = checked_rows(file)
    loaded = load(name, config=config)
    mutations = mutations_for(name, loaded, engine)
    loaded.self_test()
    log_line(f"gradus: breaking answers by {mutations.engine}")
    tasks = break_tasks(
        rows, name, loaded, mutations, MutationOptions(per_task, tries, seed, lints), slots
    )
    found = list(with_progress(tasks, len(rows), "breaking", quiet))
    repairs = write_rows(out, (row for one in found for row in one.repairs))
    survivors = write_rows(
        sibling_path(out, "survivors"), (row for one in found for row in one.survivors)
    )
    for one in (one for one in found if one.problem is not None):
        log_line(f"{one.where}: {one.id}: {str(one.problem)[:500]}")
    tried = sum(one.tried for one in found)
    print(
        f"{repairs} repair tasks of {len(rows)} tasks are in {out}; {tried} broken answers were"
        " graded"
    )
    print(f"{survivors} of these pass all tests: {sibling_path(out, 'survivors')}")
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
    grader: Annotated[str, typer.Option(help="Grader of the tasks: ocaml or rust")] = "ocaml",
    format_: Annotated[
        str, typer.Option("--format", help="Format of the rows: chat, agent or harmony")
    ] = "chat",
    by_turn: Annotated[
        bool,
        typer.Option(
            "--per-turn", help="Write one prompt and completion per turn of the assistant (harmony)"
        ),
    ] = False,
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
    chat     messages with calls of one tool, and tools, in the form of chat templates
    agent    the same with eight tools, from run_tests to search_crates_io; for Rust
    harmony  text for gpt-oss: channels analysis, commentary and final

    The grader writes every reply of the tool. With several attempts, the first has the mistakes of
    several tasks of one group, and each attempt has one less. Tasks whose stub passes or whose
    solution fails are left out, with the reason.
    """
    from corpus.files import checked_rows, refuse_existing, sibling_path, write_rows
    from corpus.trajectories import trajectories
    from corpus.trajectory_formats import Format
    from gradus.descriptions import grader_named
    from services.graders.base import load

    if format_ not in {one.value for one in Format}:
        raise Misuse(f"--format {format_}: use one of {', '.join(Format)}")
    if by_turn and format_ != Format.HARMONY:
        raise Misuse("--per-turn requires --format harmony")
    name = grader_named(grader)
    if format_ == Format.AGENT and name != "rust":
        raise Misuse("--format agent requires --grader rust")
    refuse_existing([out, sibling_path(out, "rejected")], force=force, sources=[file])
    rows = checked_rows(file)
    loaded = load(name, config=config)
    loaded.self_test()
    told = list(
        with_progress(
            trajectories(rows, name, loaded, attempts, slots), len(rows), "grading", quiet
        )
    )
    bad = [
        {"where": one.where, "id": one.id, "reasons": [one.problem]}
        for one in told
        if one.problem is not None
    ]
    number = write_rows(
        out, [row for one in told for row in _written(one, format_, by_turn, loaded)]
    )
    _write_rejected(out, bad)
    print(f"{len(told) - len(bad)} trajectories of {len(told)} tasks, {number} rows, are in {out}")
    if not number:
        raise typer.Exit(1)


def _written(
    told: TrajectoryResult, format_: str, by_turn: bool, grader: Grader
) -> Iterator[dict[str, Any]]:
    """The rows of one trajectory; none where there is none."""
    from corpus.agent_format import agent_row
    from corpus.trajectory_formats import Format, chat_row, harmony_row, harmony_turns
    from services.graders.rust.grader import RustGrader

    if told.trajectory is None:
        return
    if format_ == Format.AGENT:
        assert isinstance(grader, RustGrader)
        rows = [agent_row(told.trajectory, grader)]
    elif format_ == Format.CHAT:
        rows = [chat_row(told.trajectory)]
    else:
        rows = list(harmony_turns(told.trajectory)) if by_turn else [harmony_row(told.trajectory)]
    yield from ({**row, **told.columns} for row in rows)


def _write_rejected(out: Path, bad: list[dict[str, Any]]) -> None:
    from corpus.files import sibling_path, write_rows

    rejected = sibling_path(out, "rejected")
    if bad:
        write_rows(rejected, bad)
        for one in bad:
            log_line(f"{one['where']}: {one['id']}: {'; '.join(one['reasons'])[:500]}")
        log_line(f"gradus: {len(bad)} were left out: {rejected}")
    else:
        rejected.unlink(missing_ok=True)


@tasks_app.command("dedupe")
def dedupe_tasks(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="JSONL, JSON or CSV file of tasks or demonstrations"),
    ],
    out: Out,
    near: Annotated[
        float,
        typer.Option(
            "--similarity",
            min=0.3,
            max=1,
            help="Largest allowed share of common 5-grams of two prompts; 1: exact",
        ),
    ] = 0.8,
    force: Force = False,
) -> None:
    """Remove duplicate rows: the same prompt, the same tests, or nearly the same prompt.

    The first row stays. Rows of one `group` (several repairs of one task) are duplicates only when
    their prompts are the same. Removed rows are in FILE.duplicates.jsonl, each with its reason and
    the row that stays.
    """
    from corpus.duplicates import find_duplicates
    from corpus.files import checked_rows, refuse_existing, sibling_path, write_rows

    refuse_existing([out, sibling_path(out, "duplicates")], force=force, sources=[file])
    rows = checked_rows(file)
    found = find_duplicates(rows, near)
    gone = {id(double.row) for double in found}
    write_rows(out, (row.values for row in rows if id(row) not in gone))
    told = [
        {
            "where": one.row.where,
            "id": one.row.values.get("id"),
            "of": one.of.where,
            "of_id": one.of.values.get("id"),
            "reason": one.reason,
            "row": one.row.values,
        }
        for one in found
    ]
    write_rows(sibling_path(out, "duplicates"), told)
    print(
        f"{len(rows) - len(found)} of {len(rows)} rows are in {out}; the other {len(found)} were"
        " there before"
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
    words: Annotated[
        int,
        typer.Option(
            "--prompt-ngram", min=4, max=100, help="Words in a row of a prompt that make an overlap"
        ),
    ] = 13,
    signs: Annotated[
        int,
        typer.Option(
            "--code-ngram", min=10, max=1000, help="Code tokens in a row that make an overlap"
        ),
    ] = 50,
    common: Annotated[
        int,
        typer.Option(
            "--boilerplate-threshold",
            min=2,
            help="Ignore n-grams that so many evaluation problems share",
        ),
    ] = 5,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Remove training rows that overlap with an evaluation set.

    A row is removed when it has the id, group, title, prompt, tests or solution of an evaluation
    row, or an n-gram of its prompt or its code. Every reason is in FILE.contaminated.jsonl, with
    the evaluation row and a common n-gram. Exit status 0 whether or not an overlap was found.
    """
    from corpus.contamination import EvalIndex, NgramSizes
    from corpus.files import checked_rows, refuse_existing, sibling_path, write_rows

    refuse_existing(
        [out, sibling_path(out, "contaminated")], force=force, sources=[train, *against]
    )
    rows = checked_rows(train)
    measured = [row for file in against for row in checked_rows(file)]
    evaluation = EvalIndex(measured, NgramSizes(words, signs, common))
    clean, told = [], []
    for row in with_progress(rows, len(rows), "comparing", quiet):
        leaks = evaluation.leaks(row.values)
        if not leaks:
            clean.append(row.values)
            continue
        reasons = [
            {"at": one.of.where, "id": one.of.values.get("id"), "reason": one.reason}
            for one in leaks
        ]
        told.append(
            {"where": row.where, "id": row.values.get("id"), "leaks": reasons, "row": row.values}
        )
    write_rows(out, clean)
    write_rows(sibling_path(out, "contaminated"), told)
    if evaluation.ignored:
        log_line(
            f"gradus: {evaluation.ignored} runs that {common} problems or more share were taken for"
            " wording"
        )
    print(
        f"{len(clean)} of {len(rows)} rows are in {out}; {len(told)} give away what is measured on"
    )
    if told:
        print(f"reasons: {sibling_path(out, 'contaminated')}")


@tasks_app.command("split")
def split_tasks(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSONL, JSON or CSV file of tasks")],
    train: Annotated[Path, typer.Option("--train", help="JSONL file for training rows")],
    measured: Annotated[Path, typer.Option("--eval", help="JSONL file for evaluation rows")],
    share: Annotated[
        float, typer.Option("--eval-fraction", min=0.0, max=1.0, help="Fraction of evaluation rows")
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the choice of problems")] = 42,
    by: Annotated[str, typer.Option(help="Column that variants of one problem share")] = "group",
    near: Annotated[
        float,
        typer.Option(
            "--similarity",
            min=0.3,
            max=1,
            help="Share of common 5-grams that makes two prompts one problem; 1: exact",
        ),
    ] = 0.8,
    force: Force = False,
) -> None:
    """Split tasks by problem, so that variants of one problem are never on both sides.

    Variants have the same group, prompt, tests or solution, or nearly the same prompt. The same
    file and seed give the same split; rows that you add later move no others, unless they join
    problems.
    """
    from corpus.files import checked_rows, refuse_existing, write_rows
    from corpus.splitting import split

    if train.resolve() == measured.resolve():
        raise Misuse(f"{train}: --train and --eval are the same file")
    refuse_existing([train, measured], force=force, sources=[file])
    found = split(checked_rows(file), share, seed, by, near)
    write_rows(train, (row.values for row in found.train))
    write_rows(measured, (row.values for row in found.measured))
    print(f"{len(found.train)} rows to train on: {train}")
    print(f"{len(found.measured)} rows to measure on: {measured}; {found.problems} problems in all")
