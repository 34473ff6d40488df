"""completions.jsonl of a run: what was graded, with the advantage that TRL made of each reward.

Rewards are known one call before advantages, so lines wait here for theirs. Computes no advantage
itself: scaling, faults, further sources and other processes' samples are TRL's to weigh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trainer.runs.folder import append_lines


class CompletionsFile:
    """Holds the lines of one round of generation until `settle`; nothing that was taken is lost on
    the way."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._held: list[dict[str, Any]] = []
        self._further: dict[str, list[dict[str, Any]]] = {}

    def take(self, records: Iterable[dict[str, Any]]) -> None:
        self._held.extend(records)

    def add_extra_results(self, name: str, records: Sequence[dict[str, Any]]) -> None:
        """What another grader said of the same completions, in the same order, before or after they
        were taken."""
        self._further.setdefault(name, []).extend(records)

    def settle(self, advantages_B: Sequence[float]) -> None:
        """Write what is held with its advantages, in the order in which it was taken; None where
        the counts differ."""
        held = self._held
        further = self._further
        self._held = []
        self._further = {}
        lines = []
        for place, record in enumerate(held):
            line = {**record}
            services = {
                name: found[place] for name, found in further.items() if len(found) == len(held)
            }
            if services:
                line["services"] = services
            line["advantage"] = advantages_B[place] if len(advantages_B) == len(held) else None
            lines.append(line)
        if lines:
            append_lines(self._file, lines)


class AdvantageLoggingMixin:
    """Goes before one of TRL's online trainers in the list of bases, and settles its completions
    after each round."""

    completions_file: CompletionsFile | None = None

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        file = self.completions_file
        try:
            output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
            if file is not None:
                file.settle(output["advantages"].tolist())
        finally:
            if (
                file is not None
            ):  # what is still held, where the round ended before it had advantages
                file.settle(())
        return output
