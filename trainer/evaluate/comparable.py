"""Whether two evaluations can be compared: what differs between them beside the model. Compares no figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainer.evaluate.outcome import Evaluation


@dataclass(frozen=True, slots=True)
class Reason:
    """Something else that a difference may come from."""

    text: str
    is_fatal: bool
    """A pass or a reward does not mean the same on both sides."""


def incomparable(before: Evaluation, after: Evaluation) -> Iterator[Reason]:
    """Reasons why a difference between the two may come from something else than the model."""
    sides = [
        ("different tasks, or differently worded", True, before.tasks_sha256, after.tasks_sha256),
        ("different graders", True, before.graders, after.graders),
        ("different rubrics", True, before.rubrics, after.rubrics),
        ("different toolchains", False, before.toolchains, after.toolchains),
        ("a different limit on new tokens", False, before.max_new_tokens, after.max_new_tokens),
        ("different sampling", False, _sampling(before), _sampling(after)),
    ]
    for text, is_fatal, first, last in sides:
        if first != last and () not in (first, last):
            yield Reason(text, is_fatal)


def _sampling(evaluation: Evaluation) -> tuple[tuple[str, float, int, int], ...]:
    return tuple(
        (found.mode, found.temperature, found.samples, found.turns.asked if found.turns else 1)
        for found in evaluation.measurements
    )
