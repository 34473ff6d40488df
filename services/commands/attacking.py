"""`gradus attack`: the corpus of hostile answers against a grader, or against another reward
function."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradus.console import Grader, Quiet, Slots, Url, show_progress
from gradus.errors import Misuse
from services.commands.grading import grade_submissions

if TYPE_CHECKING:
    from services.attacks import Trial
    from services.attacks.target import Judgement, Target

_TARGET = "Another reward function"
_SHAPES = "trl, open-r1, verl or nemo-gym"


def attack(
    grader: Grader,
    url: Url = None,
    deadline_s: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds for the whole corpus, with --url")
    ] = 600.0,
    api_key: Annotated[
        str | None, typer.Option(envvar="GRADUS_API_KEY", help="API key of the service at --url")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Attack this reward function in place of the grader",
            rich_help_panel=_TARGET,
        ),
    ] = None,
    shape: Annotated[
        str, typer.Option(help=f"How the function is called: {_SHAPES}", rich_help_panel=_TARGET)
    ] = "trl",
    timeout_s: Annotated[
        float,
        typer.Option(min=1, max=600, help="Seconds for one completion", rich_help_panel=_TARGET),
    ] = 30.0,
    memory_mb: Annotated[
        int, typer.Option(min=128, help="MiB of memory for one completion", rich_help_panel=_TARGET)
    ] = 2048,
    bind: Annotated[
        list[Path] | None,
        typer.Option(
            help="Further path that boxes see, read-only; repeatable", rich_help_panel=_TARGET
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object", rich_help_panel=_TARGET)
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(help="Write the corpus to this new folder as a data set; grade nothing"),
    ] = None,
    slots: Slots = None,
    quiet: Quiet = False,
) -> None:
    """Grade the corpus of hostile answers, on this machine or on the service at --url.

    Prints a table. Exit status 1 when an attack got credit that it did not earn, or broke the
    grader. With --target the function of another project rewards the corpus and honest controls, in
    boxes without network; exit status 1 when it credits an attack or refuses an honest answer.

    \b
    gradus attack program --target my_rewards:reward --shape trl
    """
    from gradus.descriptions import grader_named
    from services.attacks import load_corpus

    name = grader_named(grader)
    corpus = load_corpus(name)
    if export is not None:
        from services.attacks.export import export_corpus

        digest = export_corpus(export, name, corpus.build_trials())
        print(f"{export}: sha256:{digest}")
        return
    if target is not None:
        from services.attacks.target import Shape, Target

        if shape not in set(Shape):
            raise Misuse(f"--shape {shape}: use {_SHAPES}")
        called = Target(
            target, Shape(shape), timeout_s=timeout_s, memory_mb=memory_mb, binds=bind or ()
        )
        _attack_target(called, target, name, corpus.build_trials(), slots, as_json, quiet)
        return
    submissions = corpus.build_submissions()
    results = grade_submissions(name, submissions, url, deadline_s, api_key, slots)
    counts = dict.fromkeys(corpus.words, 0)
    wrong = 0
    for line in corpus.render_lines(show_progress(results, len(submissions), "attacking", quiet)):
        counts[line.word] += 1
        print(f"{line.word:7} {line.text}")
        if line.problem is not None:
            wrong += 1
            print(f"        {line.problem}")
    known_note = f", {counts['known']} are known to pay" if "known" in counts else ""
    print(f"{counts['held']} of {sum(counts.values())} attacks held{known_note}")
    if wrong:
        raise typer.Exit(1)


def _attack_target(
    target: Target,
    name: str,
    grader: str,
    trials: Sequence[Trial],
    slots: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    from gradus import __version__
    from services.attacks.export import compute_digest, render_rows
    from services.attacks.target import Word, attack_target

    judgements = []
    found = attack_target(target, grader, trials, slots)
    for judgement in show_progress(found, len(trials), "attacking", quiet):
        judgements.append(judgement)
        if not as_json:
            _print_judgement(judgement)
    counts: Counter[str] = Counter()
    for judgement in judgements:
        if judgement.trial.kind != "wrong":
            counts[judgement.word] += 1
    honest = counts[Word.ACCEPTED] + counts[Word.REFUSED]
    if as_json:
        results = []
        for judgement in judgements:
            results.append(
                {
                    "name": judgement.trial.name,
                    "kind": judgement.trial.kind,
                    "outcome": judgement.word.lower(),
                    "reward": judgement.reward.value,
                    "error": judgement.reward.error,
                }
            )
        about = {
            "target": name,
            "grader": grader,
            "version": __version__,
            "digest": compute_digest(render_rows(grader, trials)),
            "counts": {word.lower(): counts[word] for word in Word},
            "results": results,
        }
        print(json.dumps(about, ensure_ascii=False))
    else:
        print(
            f"{counts[Word.CREDITED]} attacks credited, {counts[Word.HELD]} held,"
            f" {counts[Word.BROKE]} without a reward; {counts[Word.REFUSED]} of {honest} honest"
            f" answers refused; {counts[Word.SKIPPED]} of other languages skipped"
        )
    if counts[Word.CREDITED] or counts[Word.REFUSED]:
        raise typer.Exit(1)


def _print_judgement(judgement: Judgement) -> None:
    trial, reward = judgement.trial, judgement.reward
    number = "     -" if reward.value is None else f"{reward.value:6.2f}"
    note = f"must not {trial.must_not}" if trial.must_not else f"{trial.kind} answer"
    print(f"{judgement.word:8} {number}  {trial.name:36} {note}")
    if reward.error:
        print(f"         {reward.error}")
