"""Completions chosen for reading, before and after beside each other, cut and made harmless for the eye.

The choice is by a fixed rule that does not look at the texts. Escaping is the template's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainer.evaluate.report.changes import Span, changed_spans
from trainer.evaluate.report.comparison import Pair, Turn, pairs_of, varied
from trainer.evaluate.report.curves import PART_STYLES
from trainer.evaluate.report.history import Json, Run, components_of, flags_of, is_verdict, task_of
from trainer.evaluate.report.words import counted, finite, number, shortened, visible

MOST_DIAGNOSTICS = 4
DIAGNOSTIC_CHARS, DIAGNOSTIC_LINES = 400, 8
PROMPT_CHARS, PROMPT_LINES = 1200, 24
SINGLES = 8


@dataclass(frozen=True, slots=True)
class Part:
    """A component of one reward; `width` in percent of the largest possible reward."""

    name: str
    value: str
    width: float
    style: str


@dataclass(frozen=True, slots=True)
class Shown:
    """One completion."""

    name: str
    verdict: str
    passed: bool
    reward: str
    tests: str
    parts: tuple[Part, ...]
    flags: tuple[str, ...]
    spans: tuple[Span, ...]
    left_out: str
    diagnostics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """One task with one or two completions."""

    task_id: str
    kind: str
    prompt: str
    shown: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class SampleGroup:
    title: str
    style: str
    count: str
    cards: tuple[Card, ...]


GROUPS: Mapping[Turn, tuple[str, str, int]] = {
    Turn.LEARNED: ("Wrong before, right after", "up", 6),
    Turn.LOST: ("Right before, wrong after", "down", 6),
    Turn.STILL_WRONG: ("Wrong both times", "flat", 4),
    Turn.KEPT: ("Right both times", "kept", 2),
}
"""(title, style, how many are shown)."""


def sample_groups(run: Run) -> Iterator[SampleGroup]:
    """The groups that have any pair; single completions where there is nothing to compare them with."""
    if run.before is None or run.after is None:
        yield from _singles(run)
        return
    names = (run.before.name, run.after.name)
    pairs = pairs_of(*(run.records.get(name, []) for name in names))
    styles = part_styles(_part_names(run))
    for turn, (title, style, most) in GROUPS.items():
        found = [pair for pair in pairs if pair.turn is turn]
        cards = tuple(card_of_pair(pair, names, styles) for pair in varied(found, most))
        if cards:
            yield SampleGroup(title, style, f"{counted(len(found), 'task')}, {len(cards)} shown", cards)


def _singles(run: Run) -> Iterator[SampleGroup]:
    for name, records in run.records.items():
        found = [record for record in records if is_verdict(record)]
        styles = part_styles(_part_names(run))
        cards = tuple(card_of_one(record, name, styles) for record in found[:SINGLES])
        if cards:
            yield SampleGroup(f"Completions of “{name}”", "flat", f"the first {len(cards)} of {len(found):,}", cards)


def _part_names(run: Run) -> Iterator[str]:
    for entry in run.training.steps.values():
        yield from entry.components
    for evaluation in run.evaluations.values():
        for measurement in evaluation.measurements:
            yield from measurement.components


def part_styles(names: Iterable[str]) -> dict[str, str]:
    """The colours that the chart of the parts of the reward has, by name."""
    return {name: PART_STYLES[n % len(PART_STYLES)] for n, name in enumerate(dict.fromkeys(names))}


def card_of_pair(pair: Pair, names: Sequence[str], styles: Mapping[str, str]) -> Card:
    """A task with two completions and marks where they differ."""
    texts = [shortened(visible(str(record.get("completion", "")))) for record in (pair.before, pair.after)]
    marked = changed_spans(texts[0][0], texts[1][0])
    shown = tuple(
        _shown(record, name, tuple(spans), text[1], styles)
        for record, name, spans, text in zip((pair.before, pair.after), names, marked, texts, strict=True)
    )
    return Card(visible(pair.task_id), visible(str(pair.after.get("kind") or "")), _prompt(pair.after), shown)


def card_of_one(record: Json, name: str, styles: Mapping[str, str]) -> Card:
    """A task with one completion."""
    text, left_out = shortened(visible(str(record.get("completion", ""))))
    shown = _shown(record, name, (Span(text, changed=False),), left_out, styles)
    return Card(visible(task_of(record)), visible(str(record.get("kind") or "")), _prompt(record), (shown,))


def _prompt(record: Json) -> str:
    given = record.get("prompt") or ""
    if isinstance(given, list):  # the messages of a chat
        given = "\n\n".join(str(turn.get("content")) for turn in given if isinstance(turn, Mapping))
    text, left_out = shortened(visible(str(given)), PROMPT_CHARS, PROMPT_LINES)
    return text + (f" […{left_out:,} more characters]" if left_out else "")


def _shown(record: Json, name: str, spans: tuple[Span, ...], left_out: int, styles: Mapping[str, str]) -> Shown:
    passed = record.get("passed") is True
    tests = record.get("tests")
    cut = ", cut off at the limit" if record.get("finish_reason") == "length" else ""
    return Shown(
        name=name,
        verdict=("passed" if passed else f"stopped at {visible(str(record.get('stage')))}") + cut,
        passed=passed,
        reward=number(finite(record.get("reward"))),
        tests=f"{tests.get('passed')} of {tests.get('total')} tests" if isinstance(tests, Mapping) else "",
        parts=tuple(_parts(record, styles)),
        flags=tuple(visible(flag) for flag in flags_of(record)),
        spans=spans,
        left_out=f"{left_out:,} more characters are in the completions of “{name}”" if left_out else "",
        diagnostics=tuple(_diagnostics(record)),
    )


def _parts(record: Json, styles: Mapping[str, str]) -> Iterator[Part]:
    for name, value in components_of(record).items():
        width = min(100.0, max(0.0, 100 * value))
        yield Part(visible(name), number(value), width, styles.get(name, "part-0"))


def _diagnostics(record: Json) -> Iterator[str]:
    given = record.get("diagnostics")
    items = [item for item in given if isinstance(item, Mapping)] if isinstance(given, list) else []
    for item in items[:MOST_DIAGNOSTICS]:
        where = f"{item.get('stage')}, line {item['line']}" if item.get("line") is not None else str(item.get("stage"))
        message, left_out = shortened(visible(str(item.get("message", ""))), DIAGNOSTIC_CHARS, DIAGNOSTIC_LINES)
        yield f"{visible(where)}: {message}{' …' if left_out else ''}"
    if len(items) > MOST_DIAGNOSTICS:
        yield f"and {len(items) - MOST_DIAGNOSTICS} more"
