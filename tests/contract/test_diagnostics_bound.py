"""Diagnostics of an answer take a bounded part of a result, whichever grader reports them."""

from __future__ import annotations

from gradus.contract import Diagnostic, Stage
from services.graders.base.grader import MAX_DIAGNOSTICS_BYTES, clip_diagnostics


def test_diagnostics_beyond_the_bound_are_counted() -> None:
    one = Diagnostic(stage=Stage.TYPES, message="\x01" * 1000)
    kept = clip_diagnostics((one,) * 20_000)
    assert sum(len(d.model_dump_json()) for d in kept[:-1]) <= MAX_DIAGNOSTICS_BYTES
    assert kept[-1].message == f"and {20_000 - len(kept) + 1} more"


def test_few_diagnostics_stay_as_they_are() -> None:
    few = (Diagnostic(stage=Stage.TESTS, message="2 of 2 tests failed an assertion"),) * 3
    assert clip_diagnostics(few) == few
