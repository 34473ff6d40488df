"""The comparison at the end of `make demo-turns`: figures of hand-made runs."""

from __future__ import annotations

from pathlib import Path

from report_runs import RIGHT, WRONG, lines, record_of
from sample_evaluations import evaluation_of

from gradus.contract import Graded
from trainer.demo.turns import (
    SINGLE,
    TURNS,
    WARM_START,
    measured_of,
    steps_of_single_turns,
    table_of,
)
from trainer.evaluate.breakdowns import turns_of
from trainer.evaluate.results import measurement_of, write_outcome
from trainer.rewards.judge import Record

Chains = dict[str, list[list[Graded]]]
"""Verdicts of each chain's turns, by task."""


def records(chains: Chains) -> tuple[list[Record], list[Record]]:
    """Records of first answers, and of later ones."""
    made: tuple[list[Record], list[Record]] = ([], [])
    for task, samples in chains.items():
        for sample, verdicts in enumerate(samples):
            for turn, verdict in enumerate(verdicts, start=1):
                record = record_of(
                    verdict,
                    mode="sampled",
                    task_id=task,
                    kind=None,
                    sample=sample,
                    prompt="?",
                    completion="x",
                )
                made[turn > 1].append({**record, "turn": turn})
    return made


def measure(run: Path, name: str, chains: Chains) -> None:
    """What a run leaves of the held-out tasks, asked for twice."""
    first, later = records(chains)
    turns = turns_of(first, later, 2)
    measured = measurement_of(first, mode="sampled", temperature=1.0, samples=2, turns=turns)
    write_outcome(run, evaluation_of(name, first, measurements=(measured,)), first, later)


def seed_folder(folder: Path, after: Chains) -> Path:
    """What the commands of one seed leave: 40 tokens in turns and 30 in single ones."""
    half: Chains = {"a": [[RIGHT], [WRONG, WRONG]], "b": [[WRONG, WRONG], [WRONG, WRONG]]}
    measure(folder / "turns", "before", half)
    measure(folder / "turns", "after", after)
    measure(folder / "single", "after", half)
    asked = [{"step": step, "turn": turn, "tokens": 10} for step in (1, 2) for turn in (1, 2)]
    lines(folder / "turns" / "turns.jsonl", asked)
    lines(
        folder / "single" / "turns.jsonl",
        [{"step": step, "turn": 1, "tokens": 10} for step in (1, 2, 3)],
    )
    return folder


REPAIRED: Chains = {"a": [[RIGHT], [WRONG, RIGHT]], "b": [[WRONG, RIGHT], [WRONG, WRONG]]}


def test_a_chain_passes_in_its_first_turn_or_by_its_last(tmp_path: Path) -> None:
    found = measured_of(seed_folder(tmp_path, REPAIRED))
    assert {name: (one.tokens, one.first, one.last) for name, one in found.items()} == {
        WARM_START: (0, 0.25, 0.25),
        TURNS: (40, 0.25, 0.75),
        SINGLE: (30, 0.25, 0.25),
    }


def test_single_turns_get_steps_for_the_tokens_of_all_turns(tmp_path: Path) -> None:
    assert steps_of_single_turns(seed_folder(tmp_path, REPAIRED) / "turns") == 4


def test_the_table_has_gains_and_differences_over_seeds(tmp_path: Path) -> None:
    measured = {seed: measured_of(seed_folder(tmp_path / str(seed), REPAIRED)) for seed in (1, 2)}
    by_model = list(zip(*(column.cells for column in table_of(measured).columns), strict=True))
    same = "25.0% (25.0% to 25.0%)"
    more = "75.0% (75.0% to 75.0%)"
    nothing = "+0.0 (+0.0 to +0.0)"
    gained = "+50.0 (+50.0 to +50.0)"
    assert by_model == [
        (WARM_START, "0", same, same, nothing),
        (TURNS, "40", same, more, gained),
        (SINGLE, "30", same, same, nothing),
        (f"{TURNS} minus {SINGLE}, points", "", nothing, gained, gained),
    ]
