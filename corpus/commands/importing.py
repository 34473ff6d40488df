"""Commands that make tasks, and texts to pretrain on, of other people's material: `gradus tasks import ...`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corpus.commands.tasks import Force, Out
from gradus.console import Config, Quiet, Slots, log_line, with_progress
from gradus.errors import Fault, Misuse

if TYPE_CHECKING:
    from corpus.drafts import Draft
    from corpus.import_validation import Decision
    from gradus.contract import GraderName

import_app = typer.Typer(
    help="Make tasks of other people's material. What cannot be used is in FILE.rejected.jsonl beside, with reasons.",
    no_args_is_help=True,
)
Validate = Annotated[
    bool | None,
    typer.Option(
        "--validate/--no-validate",
        help="Grade reference answers and stubs",
        show_default="where that can be; stories not",
    ),
]
ProvenOnly = Annotated[bool, typer.Option(help="Reject tasks that come without a reference answer")]
DropFailing = Annotated[bool, typer.Option(help="Reference answers that do not pass count as absent, and are counted")]
AnyStyle = Annotated[
    bool, typer.Option(help="Reference answers need only pass the tests; lint warnings and the like do not matter")
]
CpuS = Annotated[
    float | None, typer.Option(min=0.01, max=600, help="CPU seconds for each task's tests", show_default="the grader's")
]
Licence = Annotated[str | None, typer.Option(help="Licence of the records that name none of their own")]
Source = Annotated[str | None, typer.Option(help="Where the records are from, for those that do not say it")]
Language = Annotated[str | None, typer.Option(help="ocaml or rust", show_default="what the records say")]


@dataclass(frozen=True, slots=True)
class _ImportOptions:
    """The options that all imports share, without the sources."""

    out: Path
    force: bool
    validate: bool | None
    proven_only: bool
    any_style: bool
    cpu_s: float | None
    licence: str | None
    source: str | None
    slots: int | None
    config: Path | None
    quiet: bool
    drop_failing: bool = False


@import_app.command("exercism")
def import_exercism(
    folder: Annotated[Path, typer.Argument(help="Root of a checkout of github.com/exercism/ocaml or /rust")],
    language: Annotated[str, typer.Option(help="ocaml or rust")],
    out: Out,
    force: Force = False,
    validate: Validate = None,
    proven_only: ProvenOnly = False,
    any_style: AnyStyle = False,
    cpu_s: CpuS = None,
    licence: Licence = None,
    source: Source = None,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Exercises of an Exercism track: description, interface, stub, tests, example.

    \b
    git clone --depth 1 https://github.com/exercism/ocaml
    gradus tasks import exercism ocaml --language ocaml -o exercism-ocaml.jsonl

    Each task keeps its licence, its authors and where it is from; `group` is the same for both languages. Exercises
    that need packages or crates which are not installed are rejected with the names of these.
    """
    from corpus.exercism import exercism_drafts
    from gradus.descriptions import grader_named

    if not folder.is_dir():
        raise Misuse(f"{folder}: is no folder")
    name = grader_named(language)
    options = _ImportOptions(out, force, validate, proven_only, any_style, cpu_s, licence, source, slots, config, quiet)
    _import(exercism_drafts(folder, name), name, options, [folder])


@import_app.command("multipl-e")
def import_multipl_e(
    file: Annotated[Path, typer.Argument(help="JSONL or JSON with name, language, prompt, tests")],
    out: Out,
    language: Language = None,
    force: Force = False,
    validate: Validate = None,
    cpu_s: CpuS = None,
    licence: Licence = None,
    source: Source = None,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Problems of MultiPL-E in OCaml (ml) or Rust (rs), HumanEval's and MBPP's.

    They come without reference answers. What can be shown is shown: a stub of the asked-for type compiles, the tests
    compile against it and it does not pass them. Good to measure on; train on what is proven.
    """
    from corpus.files import rows_of
    from corpus.humaneval import language_of, multipl_e_drafts

    rows = rows_of(file)
    name = language_of(rows, language)
    options = _ImportOptions(out, force, validate, False, False, cpu_s, licence, source, slots, config, quiet)
    _import(multipl_e_drafts(rows, name), name, options, [file])


@import_app.command("humaneval")
def import_humaneval(
    file: Annotated[Path, typer.Argument(help="JSONL or JSON with task_id, prompt, canonical_solution, test")],
    out: Out,
    language: Language = None,
    force: Force = False,
    validate: Validate = None,
    any_style: AnyStyle = False,
    cpu_s: CpuS = None,
    licence: Licence = None,
    source: Source = None,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Problems in the columns of HumanEval with reference answers, such as HumanEval-X and HumanEvalPack in Rust.

    Functions are made `pub`, tests an integration test file, imports that nothing uses are left out. Most reference
    answers of HumanEval-X have lint warnings: --any-style lets those in.
    """
    from corpus.files import rows_of
    from corpus.humaneval import humaneval_drafts, language_of

    rows = rows_of(file)
    name = language_of(rows, language)
    options = _ImportOptions(out, force, validate, False, any_style, cpu_s, licence, source, slots, config, quiet)
    _import(humaneval_drafts(rows, name), name, options, [file])


@import_app.command("columns")
def import_columns(
    file: Annotated[Path, typer.Argument(help="JSONL, JSON or CSV")],
    layout: Annotated[str, typer.Option(help="ocamler, ocamler-eval, ocamler-sft, b or scrum")],
    out: Out,
    force: Force = False,
    validate: Validate = None,
    proven_only: ProvenOnly = False,
    drop_failing: DropFailing = False,
    any_style: AnyStyle = False,
    cpu_s: CpuS = None,
    licence: Licence = None,
    source: Source = None,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Rows in the columns of other projects' data sets.

    \b
    ocamler       id, prompt (doc comment and `let f (x : int) : int =`), tests
    ocamler-eval  id, problem, solution, tests, difficulty; with --drop-failing where solutions are stubs
    ocamler-sft   prompt, solution: becomes worked examples, for `warm_start.dataset`
    b             description, starter_code, tests (inside of the answer's file), perhaps id, solution, complexity
    scrum         sprint_name, sprint_goal, formatted_issues, num_issues, perhaps team_context
    """
    from corpus.dataset_layouts import LAYOUTS, column_drafts, references_told
    from corpus.files import rows_of

    if layout not in LAYOUTS:
        raise Misuse(f"--layout {layout}: is none of {', '.join(LAYOUTS)}")
    chosen = LAYOUTS[layout]
    shared = (out, force, validate, proven_only, any_style, cpu_s, licence, source, slots, config, quiet)
    options = _ImportOptions(*shared, drop_failing)
    rows = rows_of(file)
    drafts = column_drafts(rows, chosen)
    if chosen.grader == "story":
        log_line(f"gradus: {references_told(rows)}")
    if chosen.grader is None:
        _import_examples(drafts, options, [file])
    else:
        _import(drafts, chosen.grader, options, [file])


@import_app.command("texts")
def import_texts(
    paths: Annotated[list[Path], typer.Argument(help="Files and folders of .txt, .md, .jsonl, .json and .csv")],
    out: Out,
    column: Annotated[str, typer.Option(help="Column of rows that holds the text")] = "text",
    min_words: Annotated[int, typer.Option(min=1, help="Leave out texts with fewer words")] = 20,
    max_repeated: Annotated[
        float, typer.Option(min=0, max=1, help="Share of a text's lines that may be repetitions of others")
    ] = 0.3,
    near: Annotated[
        float, typer.Option(min=0.3, max=1, help="Share of runs of 5 words that two texts may have in common; 1: exact")
    ] = 0.8,
    force: Force = False,
) -> None:
    """Texts to pretrain on, cleaned and without duplicates: one row of `text` and `source` each.

    \b
    gradus tasks import texts books/ notes.jsonl -o texts.jsonl
    gradus train pretrain FILE.yaml --data.dataset texts.jsonl

    Cleaning makes line ends and Unicode uniform and takes control characters away; it changes no words. A duplicate
    has the words of an earlier text, or nearly all of its runs of words.
    """
    from corpus.files import refuse_existing, sibling_path
    from corpus.texts import decide_texts, text_drafts

    if any(out.resolve().is_relative_to(path.resolve()) for path in paths):
        raise Misuse(f"{out}: is read from and cannot be written to; choose another file")
    refuse_existing([out, sibling_path(out, "rejected")], force=force)
    drafts = list(text_drafts(paths, column))
    if not drafts:
        raise Misuse(f"{', '.join(map(str, paths))}: holds no texts")
    _finish(list(decide_texts(drafts, min_words, max_repeated, near)), out)


# ------------------------------------------------------------------------------------------------------ what they do


def _import(drafts: Iterable[Draft], name: GraderName, options: _ImportOptions, sources: list[Path]) -> None:
    from corpus.files import refuse_existing, sibling_path
    from corpus.import_validation import decide
    from corpus.signing import LANGUAGES, sign
    from gradus.row_reader import Row

    refuse_existing([options.out, sibling_path(options.out, "rejected")], force=options.force, sources=sources)
    found = [_completed(draft, options) for draft in drafts]
    grader = _grader(name, options)
    if grader is not None and name in LANGUAGES:
        rows = [Row(draft.where, draft.values, draft.problem) for draft in found]
        signed = with_progress(sign(rows, name, grader, options.slots), len(rows), "signing", options.quiet)
        found = [replace(draft, values=result.values) for draft, result in zip(found, signed, strict=True)]
    decisions = decide(
        found,
        name,
        grader,
        options.slots,
        full_marks=not options.any_style,
        proven_only=options.proven_only,
        drop_failing=options.drop_failing,
    )
    what = "validating" if grader is not None else "reading"
    _finish(list(with_progress(decisions, len(found), what, options.quiet)), options.out)


def _completed(draft: Draft, options: _ImportOptions) -> Draft:
    """The draft with what the options say of all."""
    if draft.problem is not None:
        return draft
    said = {
        "limits": {"cpu_s": options.cpu_s} if options.cpu_s and "tests" in draft.values else None,
        "licence": None if "license" in draft.values else draft.values.get("licence", options.licence),
        "source": draft.values.get("source", options.source),
    }
    return replace(draft, values={**draft.values, **{name: value for name, value in said.items() if value}})


def _grader(name: GraderName, options: _ImportOptions) -> Any:
    """The grader to validate with; None where none is wanted, or none can start and none was asked for.

    Stories are graded when that was asked for: their texts show most of what is wrong, and a row takes 0.4 s.
    """
    from services.graders.base import load

    if options.validate is False or (options.validate is None and name == "story"):
        return None
    try:
        grader = load(name, config=options.config)
        grader.self_test()
        return grader
    except Fault as fault:
        if options.validate:
            raise
        log_line(f"gradus: warning: the tasks are not validated: {fault.message}")
        return None


def _import_examples(drafts: Iterable[Draft], options: _ImportOptions, sources: list[Path]) -> None:
    """Worked examples have no tests: an empty one is rejected, and one that was there before."""
    from corpus.files import refuse_existing, sibling_path
    from corpus.import_validation import Decision

    def decided() -> Iterator[Decision]:
        seen: dict[tuple[Any, Any], str] = {}
        for draft in (_completed(one, options) for one in drafts):
            if draft.problem is not None:
                yield Decision(draft, (draft.problem,))
                continue
            first = seen.setdefault((draft.values["prompt"], draft.values["completion"]), draft.where)
            yield Decision(draft, () if first == draft.where else (f"the same as at {first}",))

    refuse_existing([options.out, sibling_path(options.out, "rejected")], force=options.force, sources=sources)
    _finish(list(decided()), options.out)


def _finish(decisions: list[Decision], out: Path) -> None:
    from corpus.files import sibling_path, write_rows

    good = [decision for decision in decisions if not decision.problems]
    bad = [decision for decision in decisions if decision.problems]
    rejected = sibling_path(out, "rejected")
    write_rows(out, (decision.draft.values for decision in good))
    if bad:
        write_rows(rejected, (decision.rejected for decision in bad))
    else:
        rejected.unlink(missing_ok=True)
    for decision in bad:
        log_line(f"{decision.draft.where}: {decision.draft.id}: {'; '.join(decision.problems)[:500]}")
    for warning, number in Counter(chain.from_iterable(decision.warnings for decision in good)).items():
        log_line(f"gradus: warning: {number} tasks: {warning}")
    print(f"{len(good)} of {len(decisions)} records are in {out}" + (f"; the others in {rejected}" if bad else ""))
    if not good:
        raise typer.Exit(1)
