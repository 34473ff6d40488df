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

tasks_app = typer.Typer(help="Make and check files of tasks.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", "-o", help="JSONL file to write")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist")]


@tasks_app.command("validate")
def validate_tasks(
    file: Annotated[
        str, typer.Argument(help="JSONL, JSON or CSV with id, prompt, tests or references, solution, stub ...")
    ],
    grader: Annotated[str, typer.Option(help="Which grader judges these tasks")] = "ocaml",
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Check that every task can be used to train on.

    Fields and duplicates; tests parse and type-check; the reference answer gets full marks; the stub and an empty
    answer do not. For stories: the references, given as the answer, earn 0.9, a solution 0.5, stub and empty answer
    less; no reference stands in the prompt. Prints one line per problem. Exit status 0 when all are usable, 1 when
    some are not. For usable OCaml tasks it also prints how many tests compare outside the process that runs the answer.
    """
    from corpus.task_validation import compared_outside, validate
    from gradus.descriptions import grader_named
    from gradus.row_reader import read_rows
    from services.graders.base import load
    from services.graders.ocaml.grader import OcamlGrader

    name = grader_named(grader)
    if name == "preference":
        raise Misuse("a reward model needs no tasks, so there is nothing to check: any prompt will do")
    rows = list(read_rows(file))
    if not rows:
        raise Misuse(f"{file}: holds no rows")
    loaded = load(name, config=config)
    loaded.self_test()
    bad = 0
    for finding in with_progress(validate(rows, name, loaded, slots), len(rows), "validating", quiet):
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
        print(f"{outside} of {tests} tests ({outside / tests:.1%}) compare with values that no answer's process holds")


@tasks_app.command("sign")
def sign_tasks(
    file: Annotated[str, typer.Argument(help="JSONL, JSON or CSV of tasks with solutions")],
    out: Out,
    grader: Annotated[str, typer.Option(help="ocaml or rust")] = "ocaml",
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Derive signatures from reference solutions and tests, for tasks that have none.

    A signature declares what the tests use of the solution; tests then see these types and nothing else of an answer.
    It is kept only if the solution passes all tests with it. All rows are written, in their order; those that
    have a signature or `cases` stay as they are. Prints one line per task that could not be signed. Exit status 1 when
    there are such tasks.
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
    file: Annotated[str, typer.Argument(help="JSONL, JSON or CSV of tasks with solutions")],
    out: Out,
    grader: Annotated[str, typer.Option(help="ocaml or rust")] = "ocaml",
    share: Annotated[float, typer.Option(min=0.0, max=0.5, help="Share of a task's tests to make public")] = 0.25,
    most: Annotated[int, typer.Option(min=1, max=16, help="Public tests of one task, at most")] = 3,
    seed: Annotated[int, typer.Option(help="Draws which tests become public")] = 42,
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Move a share of each task's hidden tests to `public_tests`, which feedback may quote.

    Public tests no longer count for the reward. At least half of the tests stay hidden. A task is changed only if its
    reference answer passes both parts. All rows are written, in their order. Prints one line per task that stays as it
    was.
    """
    from corpus.files import checked_rows, refuse_existing, write_rows
    from corpus.public_tests import SINGLE_TESTS, publish
    from gradus.descriptions import grader_named
    from services.graders.base import load

    name = grader_named(grader)
    if name not in SINGLE_TESTS:
        raise Misuse(f"--grader {grader}: only tasks of {' and '.join(SINGLE_TESTS)} have tests to publish")
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
    print(f"{sum(not result.problem for result in results)} of {len(rows)} tasks have new public tests: {out}")


@tasks_app.command("mutate")
def mutate_tasks(
    file: Annotated[str, typer.Argument(help="JSONL, JSON or CSV of tasks with solutions")],
    out: Out,
    grader: Annotated[str, typer.Option(help="ocaml or rust")] = "ocaml",
    per_task: Annotated[int, typer.Option(min=1, max=100, help="Repair tasks of one task, at most")] = 4,
    tries: Annotated[int, typer.Option(min=1, max=1000, help="Broken answers to grade of one task, at most")] = 12,
    seed: Annotated[int, typer.Option(help="Draws which edits are tried")] = 42,
    engine: Annotated[str, typer.Option(help="What breaks Rust: auto, own or cargo-mutants")] = "auto",
    lints: Annotated[bool, typer.Option("--lints", help="Rust: also edits of which clippy alone warns")] = False,
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Create code-repair tasks by mutating reference solutions: broken code, the grader's feedback, the fix.

    Each solution is broken by one edit: an operator, a constant off by one, a forgotten case, `rec` or word, a negated
    condition, swapped arguments, a wrong constructor ... OCaml on the syntax tree; Rust with cargo-mutants where it is
    installed, else on its tokens. Broken code is the new task's `stub`, what the grader says is in `message` and in
    the prompt, and `group` holds the task that it was made of. Tests and signature stay the same.

    Broken code that passes all tests never becomes a task. It is in FILE.survivors.jsonl: either the tests are weak
    there, or the edit changes nothing.
    """
    from corpus.files import checked_rows, refuse_existing, sibling_path, write_rows
    from corpus.repair_tasks import MutationOptions, break_tasks, mutations_for
    from gradus.descriptions import grader_named
    from services.graders.base import load

    name = grader_named(grader)
    if lints and name != "rust":
        raise Misuse("--lints: is for --grader rust")
    refuse_existing([out, sibling_path(out, "survivors")], force=force, sources=[file])
    rows = checked_rows(file)
    loaded = load(name, config=config)
    mutations = mutations_for(name, loaded, engine)
    loaded.self_test()
    log_line(f"gradus: breaking answers by {mutations.engine}")
    tasks = break_tasks(rows, name, loaded, mutations, MutationOptions(per_task, tries, seed, lints), slots)
    found = list(with_progress(tasks, len(rows), "breaking", quiet))
    repairs = write_rows(out, (row for one in found for row in one.repairs))
    survivors = write_rows(sibling_path(out, "survivors"), (row for one in found for row in one.survivors))
    for one in (one for one in found if one.problem is not None):
        log_line(f"{one.where}: {one.id}: {str(one.problem)[:500]}")
    tried = sum(one.tried for one in found)
    print(f"{repairs} repair tasks of {len(rows)} tasks are in {out}; {tried} broken answers were graded")
    print(f"{survivors} of these pass all tests: {sibling_path(out, 'survivors')}")
    if not repairs:
        raise typer.Exit(1)


@tasks_app.command("trajectories")
def write_trajectories(
    file: Annotated[str, typer.Argument(help="JSONL, JSON or CSV of tasks with stub and solution: from tasks mutate")],
    out: Out,
    grader: Annotated[str, typer.Option(help="ocaml or rust")] = "ocaml",
    format_: Annotated[str, typer.Option("--format", help="chat, agent or harmony")] = "chat",
    by_turn: Annotated[
        bool,
        typer.Option("--per-turn", help="harmony: one prompt and completion per turn of the assistant, for warm_start"),
    ] = False,
    attempts: Annotated[int, typer.Option(min=1, max=10, help="Broken attempts before the right one, at most")] = 1,
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Write repair trajectories: broken attempt, what the grader really says of it, fixed file.

    \b
    chat     messages with calls of one tool, and tools, as chat templates take them
    agent    the same with eight tools, from run_tests to search_crates_io; for Rust
    harmony  text for gpt-oss: channels analysis, commentary and final

    Every reply of the tool is graded here and now. With several attempts, the first has the mistakes of several tasks
    of one group, and each attempt has one less. Tasks whose stub passes or whose solution does not are left out, with
    the reason.
    """
    from corpus.files import checked_rows, refuse_existing, sibling_path, write_rows
    from corpus.trajectories import trajectories
    from corpus.trajectory_formats import Format
    from gradus.descriptions import grader_named
    from services.graders.base import load

    if format_ not in {one.value for one in Format}:
        raise Misuse(f"--format {format_}: is none of {', '.join(Format)}")
    if by_turn and format_ != Format.HARMONY:
        raise Misuse("--per-turn: is for --format harmony")
    name = grader_named(grader)
    if format_ == Format.AGENT and name != "rust":
        raise Misuse("--format agent: is for --grader rust")
    refuse_existing([out, sibling_path(out, "rejected")], force=force, sources=[file])
    rows = checked_rows(file)
    loaded = load(name, config=config)
    loaded.self_test()
    told = list(with_progress(trajectories(rows, name, loaded, attempts, slots), len(rows), "grading", quiet))
    bad = [{"where": one.where, "id": one.id, "reasons": [one.problem]} for one in told if one.problem is not None]
    number = write_rows(out, [row for one in told for row in _written(one, format_, by_turn, loaded)])
    _write_rejected(out, bad)
    print(f"{len(told) - len(bad)} trajectories of {len(told)} tasks, {number} rows, are in {out}")
    if not number:
        raise typer.Exit(1)


def _written(told: TrajectoryResult, format_: str, by_turn: bool, grader: Grader) -> Iterator[dict[str, Any]]:
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
    file: Annotated[str, typer.Argument(help="JSONL, JSON or CSV of tasks or worked examples")],
    out: Out,
    near: Annotated[
        float,
        typer.Option(
            "--similarity", min=0.3, max=1, help="Share of 5-grams that two prompts may have in common; 1: exact"
        ),
    ] = 0.8,
    force: Force = False,
) -> None:
    """Leave out rows that are there already: the same prompt, the same tests, or nearly the same prompt.

    The first of each stays. Rows of one `group` (several repairs of one task) are doubles only when their prompts are
    the same. What was left out is in FILE.duplicates.jsonl, each row with its reason and the row that stays.
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
    print(f"{len(rows) - len(found)} of {len(rows)} rows are in {out}; the other {len(found)} were there before")


@tasks_app.command("decontaminate")
def decontaminate_tasks(
    train: Annotated[str, typer.Argument(help="JSONL, JSON or CSV of what is trained on")],
    against: Annotated[list[str], typer.Option("--against", help="A file of what is measured on; may be given again")],
    out: Out,
    words: Annotated[int, typer.Option(min=4, max=100, help="Length of a run of words in prompts")] = 13,
    signs: Annotated[int, typer.Option(min=10, max=1000, help="Length of a run of signs in code and tests")] = 50,
    common: Annotated[
        int, typer.Option(min=2, help="A run that so many problems measured on have is the wording of prompts")
    ] = 5,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Remove training rows that overlap with an evaluation set.

    A row is left out when it has the id, group, title, prompt, tests or solution of a row measured on, or a run of 13
    words of its prompt or of 50 signs of its code. Every reason is in FILE.contaminated.jsonl, with the row measured
    on and a run in common. Exit status 0 whether or not any was found.
    """
    from corpus.contamination import EvalIndex, NgramSizes
    from corpus.files import checked_rows, refuse_existing, sibling_path, write_rows

    refuse_existing([out, sibling_path(out, "contaminated")], force=force, sources=[train, *against])
    rows = checked_rows(train)
    measured = [row for file in against for row in checked_rows(file)]
    evaluation = EvalIndex(measured, NgramSizes(words, signs, common))
    clean, told = [], []
    for row in with_progress(rows, len(rows), "comparing", quiet):
        leaks = evaluation.leaks(row.values)
        if not leaks:
            clean.append(row.values)
            continue
        reasons = [{"at": one.of.where, "id": one.of.values.get("id"), "reason": one.reason} for one in leaks]
        told.append({"where": row.where, "id": row.values.get("id"), "leaks": reasons, "row": row.values})
    write_rows(out, clean)
    write_rows(sibling_path(out, "contaminated"), told)
    if evaluation.ignored:
        log_line(f"gradus: {evaluation.ignored} runs that {common} problems or more share were taken for wording")
    print(f"{len(clean)} of {len(rows)} rows are in {out}; {len(told)} give away what is measured on")
    if told:
        print(f"reasons: {sibling_path(out, 'contaminated')}")


@tasks_app.command("split")
def split_tasks(
    file: Annotated[str, typer.Argument(help="JSONL, JSON or CSV of tasks")],
    train: Annotated[Path, typer.Option("--train", help="JSONL file for the rows to train on")],
    measured: Annotated[Path, typer.Option("--eval", help="JSONL file for the rows to measure on")],
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the rows to measure on")] = 0.1,
    seed: Annotated[int, typer.Option(help="Draws which problems are measured on")] = 42,
    by: Annotated[str, typer.Option(help="Column that is the same for variants of one problem")] = "group",
    near: Annotated[
        float,
        typer.Option("--similarity", min=0.3, max=1, help="Share of 5-grams that makes prompts one problem; 1: exact"),
    ] = 0.8,
    force: Force = False,
) -> None:
    """Split tasks by problem, so that variants of one problem are never on both sides.

    Variants have the same group, prompt, tests or solution, or nearly the same prompt. The same file and seed give the
    same split; rows that are added later move no others between sides unless they tie problems together.
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
