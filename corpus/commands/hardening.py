"""`gradus tasks harden`: tests that kill mutants which pass the tests of a task."""

from __future__ import annotations

from typing import Annotated

import typer

from corpus.commands.tasks import Force, Out, TaskFile, start_grader
from gradus.console import Config, Quiet, Slots, log_line, show_progress


def harden_tasks(
    file: TaskFile,
    out: Out,
    grader: Annotated[str, typer.Option(help="Grader of the tasks: ocaml, rust or program")] = (
        "ocaml"
    ),
    tries: Annotated[
        int,
        typer.Option("--max-mutants", min=1, max=1000, help="Most mutants of one task to grade"),
    ] = 24,
    max_tests: Annotated[
        int, typer.Option("--max-tests", min=1, max=50, help="Most tests to propose for one task")
    ] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the choice of edits and inputs")] = 42,
    force: Force = False,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Propose tests: inputs on which the solution differs from mutants that pass.

    Solutions are broken by one edit each. For mutants that pass all tests, inputs are tried: calls
    with literals of the signature's types near those of the tests (OCaml, Rust), or the task's
    own cases with changes (programs). Where the solution gives another value than a mutant, the
    value becomes a test. Tests are kept where the solution passes them all.

    Rows with proposed tests are written to --out; read the tests before use: they may ask for more
    than the prompt does. Exit status 1 when none are proposed.
    """
    from corpus.files import load_valid_rows, refuse_existing, write_task_rows
    from corpus.hardening.engine import harden_tasks as harden
    from corpus.hardening.hooks import HARDENED, create_hook

    refuse_existing([out], force=force, sources=[file])
    rows = load_valid_rows(file)
    name, loaded = start_grader(grader, config, HARDENED)
    outcomes = harden(
        rows,
        name,
        loaded,
        create_hook(loaded),
        tries=tries,
        max_tests=max_tests,
        seed=seed,
        slots=slots,
    )
    results = list(show_progress(outcomes, len(rows), "hardening", quiet))
    for result in results:
        task = result.row.values.get("id", "")
        if result.problem is not None and (result.before or not result.tried):
            log_line(f"{result.row.where}: {task}: {result.problem[:500]}")
        if result.tests:
            print(f"{task}: {result.before} of {result.tried} mutants passed, now {result.after}")
            for test in result.tests:
                print(f"    {test.text}")
    hardened = [result.row for result in results if result.tests]
    write_task_rows(out, hardened)
    tests = sum(len(result.tests) for result in results)
    before = sum(result.before for result in results)
    after = sum(result.after for result in results)
    tried = sum(result.tried for result in results)
    print(f"{tests} tests proposed for {len(hardened)} of {len(rows)} tasks: {out}")
    print(f"{before} of {tried} mutants passed, now {after}")
    if not hardened:
        raise typer.Exit(1)
