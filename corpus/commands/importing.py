"""Commands that import tasks, and texts for pretraining: `gradus tasks import` and `gradus tasks
texts`."""

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

FORMATS = (
    "exercism",
    "multipl-e",
    "humaneval",
    "ocamler",
    "ocamler-eval",
    "ocamler-sft",
    "rust-pipeline",
    "scrum",
)
OLD_COMMANDS = ("exercism", "multipl-e", "humaneval", "columns")
"""Former commands of `gradus tasks import`, understood for one release."""
OLD_LAYOUTS = {"b": "rust-pipeline"}

Validate = Annotated[
    bool | None,
    typer.Option(
        "--validate/--no-validate",
        help="Grade reference answers and stubs",
        show_default="if the toolchain is installed; not stories",
    ),
]
ProvenOnly = Annotated[
    bool, typer.Option("--require-solution", help="Reject tasks without a reference answer")
]
DropFailing = Annotated[
    bool, typer.Option(help="Treat failing reference answers as absent, and count them")
]
AnyStyle = Annotated[
    bool,
    typer.Option(
        "--ignore-lint", help="Accept reference answers that pass the tests with lint warnings"
    ),
]
CpuS = Annotated[
    float | None,
    typer.Option(
        min=0.01, max=600, help="CPU seconds for each task's tests", show_default="the grader's"
    ),
]
Licence = Annotated[str | None, typer.Option(help="Licence of records that name none")]
Source = Annotated[str | None, typer.Option(help="Source of records that name none")]
Language = Annotated[
    str | None, typer.Option(help="Language: ocaml or rust", show_default="the records'")
]


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


def import_tasks(
    paths: Annotated[
        list[str],
        typer.Argument(help="File, or root of an Exercism track's checkout", metavar="PATH"),
    ],
    out: Out,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="Format of PATH, listed above", show_default="none"
        ),
    ] = None,
    language: Language = None,
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
    layout: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Import tasks from other data sets. Records that cannot be used are in FILE.rejected.jsonl,
    with reasons.

    \b
    exercism       checkout of github.com/exercism/ocaml or /rust; needs --language
    multipl-e      MultiPL-E in OCaml (ml) or Rust (rs): name, language, prompt, tests; no answers
    humaneval      HumanEval-X, HumanEvalPack: task_id, prompt, canonical_solution, test; often --ignore-lint
    ocamler        id, prompt (doc comment and `let f (x : int) : int =`), tests
    ocamler-eval   id, problem, solution, tests, difficulty; --drop-failing drops stubs
    ocamler-sft    prompt, solution: becomes worked examples, for `warm_start.dataset`
    rust-pipeline  description, starter_code, tests, perhaps id, solution, complexity
    scrum          sprint_name, sprint_goal, formatted_issues, num_issues, perhaps team_context

    \b
    git clone --depth 1 https://github.com/exercism/ocaml
    gradus tasks import ocaml --format exercism --language ocaml -o exercism-ocaml.jsonl

    Each task keeps its licence, its authors and its source. Reference answers are graded where the
    toolchain is installed. Exercises that need packages or crates which are not installed are
    rejected with their names.
    """  # noqa: E501
    from corpus.dataset_layouts import LAYOUTS, column_drafts, references_told
    from corpus.exercism import exercism_drafts
    from corpus.files import rows_of
    from corpus.humaneval import humaneval_drafts, language_of, multipl_e_drafts
    from gradus.descriptions import grader_named

    path, chosen = _path_and_format(paths, format_, layout)
    shared = (
        out,
        force,
        validate,
        proven_only,
        any_style,
        cpu_s,
        licence,
        source,
        slots,
        config,
        quiet,
    )
    options = _ImportOptions(*shared, drop_failing)
    if chosen == "exercism":
        if language is None:
            raise Misuse("--format exercism needs --language ocaml or rust")
        if not path.is_dir():
            raise Misuse(f"{path}: not a folder")
        name = grader_named(language)
        _import(exercism_drafts(path, name), name, options, [path])
        return
    rows = rows_of(path)
    if chosen in ("multipl-e", "humaneval"):
        name = language_of(rows, language)
        drafts = (multipl_e_drafts if chosen == "multipl-e" else humaneval_drafts)(rows, name)
        _import(drafts, name, options, [path])
        return
    if language is not None:
        raise Misuse(f"--language: --format {chosen} has one language only")
    columns = LAYOUTS[chosen]
    if columns.grader == "story":
        log_line(f"gradus: {references_told(rows)}")
    if columns.grader is None:
        _import_examples(column_drafts(rows, columns), options, [path])
    else:
        _import(column_drafts(rows, columns), columns.grader, options, [path])


def _path_and_format(paths: list[str], format_: str | None, layout: str | None) -> tuple[Path, str]:
    """The source and its format; former command names before PATH are accepted with a note. Raises
    Misuse."""
    if len(paths) == 2 and paths[0] in OLD_COMMANDS:
        format_ = layout if paths[0] == "columns" else paths[0]
        log_line(
            f"gradus: `tasks import {paths[0]} ...` is deprecated: "
            f"write `tasks import {paths[1]} --format {OLD_LAYOUTS.get(format_ or '', format_)}`"
        )
        paths = paths[1:]
    if len(paths) != 1:
        raise Misuse(f"give one PATH, not {len(paths)}")
    format_ = OLD_LAYOUTS.get(format_ or "", format_)
    if format_ not in FORMATS:
        raise Misuse(f"--format {format_ or 'is missing'}: choose one of {', '.join(FORMATS)}")
    return Path(paths[0]), format_


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
    max_repeated: Annotated[
        float, typer.Option(min=0, max=1, help="Largest share of repeated lines in a text")
    ] = 0.3,
    near: Annotated[
        float,
        typer.Option(
            "--similarity",
            min=0.3,
            max=1,
            help="Largest allowed share of common 5-grams of two texts; 1: exact",
        ),
    ] = 0.8,
    force: Force = False,
) -> None:
    """Clean texts for pretraining and remove duplicates. Writes rows of `text` and `source`.

    \b
    gradus tasks texts books/ notes.jsonl -o texts.jsonl
    gradus train pretrain FILE.yaml --data.dataset texts.jsonl

    Cleaning makes line ends and Unicode uniform and takes control characters away; it changes no
    words. A duplicate has the words of an earlier text, or nearly all of its runs of words.
    """
    from corpus.files import refuse_existing, sibling_path
    from corpus.texts import decide_texts, text_drafts

    if any(out.resolve().is_relative_to(path.resolve()) for path in paths):
        raise Misuse(f"{out}: is also an input; choose another output file")
    refuse_existing([out, sibling_path(out, "rejected")], force=force)
    drafts = list(text_drafts(paths, column))
    if not drafts:
        raise Misuse(f"{', '.join(map(str, paths))}: no texts found")
    _finish(list(decide_texts(drafts, min_words, max_repeated, near)), out)


# ---------------------------------------------------------------------- what they do


def _import(
    drafts: Iterable[Draft], name: GraderName, options: _ImportOptions, sources: list[Path]
) -> None:
    from corpus.files import refuse_existing, sibling_path
    from corpus.import_validation import decide
    from corpus.signing import LANGUAGES, sign
    from gradus.row_reader import Row

    refuse_existing(
        [options.out, sibling_path(options.out, "rejected")], force=options.force, sources=sources
    )
    found = [_completed(draft, options) for draft in drafts]
    grader = _grader(name, options)
    if grader is not None and name in LANGUAGES:
        rows = [Row(draft.where, draft.values, draft.problem) for draft in found]
        signed = with_progress(
            sign(rows, name, grader, options.slots), len(rows), "signing", options.quiet
        )
        found = [
            replace(draft, values=result.values)
            for draft, result in zip(found, signed, strict=True)
        ]
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
        "licence": (
            None if "license" in draft.values else draft.values.get("licence", options.licence)
        ),
        "source": draft.values.get("source", options.source),
    }
    return replace(
        draft, values={**draft.values, **{name: value for name, value in said.items() if value}}
    )


def _grader(name: GraderName, options: _ImportOptions) -> Any:
    """The grader to validate with; None where none is wanted, or none can start and none was asked
    for.

    Stories are graded when that was asked for: their texts show most of what is wrong, and a row
    takes 0.4 s.
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
            first = seen.setdefault(
                (draft.values["prompt"], draft.values["completion"]), draft.where
            )
            yield Decision(draft, () if first == draft.where else (f"the same as at {first}",))

    refuse_existing(
        [options.out, sibling_path(options.out, "rejected")], force=options.force, sources=sources
    )
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
        log_line(
            f"{decision.draft.where}: {decision.draft.id}: {'; '.join(decision.problems)[:500]}"
        )
    for warning, number in Counter(
        chain.from_iterable(decision.warnings for decision in good)
    ).items():
        log_line(f"gradus: warning: {number} tasks: {warning}")
    print(
        f"{len(good)} of {len(decisions)} records are in {out}"
        + (f"; the others in {rejected}" if bad else "")
    )
    if not good:
        raise typer.Exit(1)
