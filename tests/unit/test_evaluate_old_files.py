"""Evaluations of an earlier version are read, and their figures come out of their completions to
the last digit.

tests/cases/evaluations was written by commit 54c39c3: two folders as `gradus eval` leaves them, a
run folder with a measurement of its own, and comparisons of the two folders.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradus.descriptions import description_of
from trainer.evaluate.comparison import compare
from trainer.evaluate.completion_store import opened
from trainer.evaluate.plan import EvalPlan, Mode
from trainer.evaluate.results import measurement_of, read_evaluation

CASES = Path(__file__).parents[1] / "cases" / "evaluations"
WORDS_OF_FALLBACKS = ("wilson", "newcombe")
ADDED_SINCE = ".details.text"


def alike(old: Any, new: Any, where: str = "") -> None:
    """Fails where two trees differ; a method may have a reason behind its name now, and floats
    differ by rounding."""
    if isinstance(old, dict):
        assert old.keys() == new.keys(), where
        for name in old:
            alike(old[name], new[name], f"{where}.{name}")
    elif isinstance(old, list):
        assert len(old) == len(new), where
        for place, (first, last) in enumerate(zip(old, new, strict=True)):
            alike(first, last, f"{where}[{place}]")
    elif where.endswith(ADDED_SINCE):
        assert old is None, where
    elif isinstance(old, float):
        assert new == pytest.approx(old, rel=1e-14, abs=1e-15), where
    elif where.endswith(".method") and old in WORDS_OF_FALLBACKS:
        assert new.partition(":")[0] == old, where
    else:
        assert old == new, where


@pytest.mark.parametrize("path", ["before", "after", "run/eval/before.json"])
def test_figures_of_an_old_evaluation_come_out_of_its_completions(path: str) -> None:
    found = read_evaluation(CASES / path)
    records = found.records()
    assert len(records) == 60
    for stored in found.evaluation.measurements:
        again = measurement_of(
            [record for record in records if record["mode"] == stored.mode],
            mode=stored.mode,
            temperature=stored.temperature,
            samples=stored.samples,
            turns=stored.turns,
            description=description_of("ocaml"),
        )
        alike(stored.model_dump(mode="json"), again.model_dump(mode="json"), stored.mode)


@pytest.mark.parametrize("mode", ["sampled", "greedy"])
def test_old_evaluations_compare_as_they_did(mode: Mode) -> None:
    before, after = (read_evaluation(CASES / name) for name in ("before", "after"))
    again = compare(
        before.evaluation,
        after.evaluation,
        mode=mode,
        records=(before.records(), after.records()),
        seed=3,
    )
    alike(
        json.loads((CASES / f"comparison-{mode}.json").read_text(encoding="utf-8")),
        again.model_dump(mode="json", by_alias=True),
    )


def test_an_old_folder_is_continued(tmp_path: Path) -> None:
    for name in ("plan.json", "completions.jsonl"):
        (tmp_path / name).write_bytes((CASES / "before" / name).read_bytes())
    plan = EvalPlan.model_validate_json((tmp_path / "plan.json").read_bytes())
    with opened(tmp_path / "completions.jsonl", plan) as store:
        assert store.get(("sampled", "task-0", 0, 1)) is not None
