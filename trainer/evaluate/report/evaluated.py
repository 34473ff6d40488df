"""The report of one evaluation: `gradus eval`'s page, from its figures and its completions alone.

It says everything in words and tables; a template places them. Completions are chosen by a rule that reads none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.evaluate.figures import MOST_NAMES, Details, Group, Histogram
from trainer.evaluate.outcome import Evaluation, Measurement
from trainer.evaluate.report.facts import Fact
from trainer.evaluate.report.history import Json, task_of
from trainer.evaluate.report.rates import MODES, Panel, described, interval, panels_of, rate_in_words, spread
from trainer.evaluate.report.rendering import rendered, today, write_page
from trainer.evaluate.report.samples import Card, SampleGroup, card_of_one, part_styles
from trainer.evaluate.report.tables import FaultRow, Level, Share, Table, funnel_levels
from trainer.evaluate.report.turns import turns_table
from trainer.evaluate.report.words import NOTHING, counted, duration, number, percent, shortened, visible
from trainer.evaluate.verdicts import is_judged, typical_of
from trainer.languages import language_of

MOST_CAUSES, MOST_GROUPS, MOST_TROUBLES = 24, 40, 40
SHOWN_FAILED, SHOWN_PASSED = 24, 8
CUT_OFF_WARNING = 0.05
"""A larger share of completions that were cut off deserves a word at the top."""
MESSAGE_CHARS, MESSAGE_LINES = 600, 10


@dataclass(frozen=True, slots=True)
class EvaluatedPage:
    """Everything that the template places."""

    title: str
    made: str
    headline: str
    lead: str
    warnings: tuple[str, ...]
    cards: tuple[Fact, ...]
    panels: tuple[Panel, ...]
    names: tuple[str, ...]
    """Ways of sampling, the heads of columns."""
    funnel: tuple[Level, ...]
    rates: Table
    causes: tuple[Level, ...]
    groups: tuple[tuple[str, tuple[Level, ...]], ...]
    rewards: tuple[Level, ...]
    lengths: tuple[Level, ...]
    lengths_in: str
    speed: Table
    turns: Table | None
    names_invented: Table | None
    parts: Table | None
    flags: Table | None
    samples: tuple[SampleGroup, ...]
    troubles: tuple[FaultRow, ...]
    facts: tuple[Fact, ...]


def write_evaluation_report(
    evaluation: Evaluation, records: Sequence[Json], out: Path, later: Sequence[Json] = ()
) -> Path:
    """Write the page to `out`, at once or not at all; returns `out`. `later` are answers of turns after the first."""
    page = page_of(evaluation, records, today(), later)
    return write_page(rendered("evaluated.html.j2", page, "evaluation report"), out)


def page_of(evaluation: Evaluation, records: Sequence[Json], made: str, later: Sequence[Json] = ()) -> EvaluatedPage:
    """The page of an evaluation with all its completions. `made` says when, in words."""
    measured = evaluation.measurements
    main = next((found for mode in MODES if (found := evaluation.measured(mode))), None)
    details = [found.details for found in measured if found.details]
    words = {"tests": "every test passes", **language_of(evaluation.grader).rate_words}
    return EvaluatedPage(
        title=evaluation.name,
        made=made,
        headline=_headline(evaluation, main),
        lead=_lead(main),
        warnings=tuple(_warnings(evaluation)),
        cards=tuple(_cards(main, words)),
        panels=tuple(panels_of([evaluation])),
        names=tuple(described(found) for found in measured),
        # All bars in one colour: ways of sampling are no before and after.
        funnel=tuple(
            replace(level, shares=tuple(replace(share, style="after") for share in level.shares))
            for level in funnel_levels(evaluation.description, measured)
        ),
        rates=_rates_table(measured, words),
        causes=tuple(_causes(measured)),
        groups=tuple(_groups(details)),
        rewards=tuple(_bins([d.rewards for d in details], number)),
        lengths=tuple(_bins([d.lengths for d in details], lambda value: f"{value:,.0f}")),
        lengths_in=details[0].lengths_in if details else "characters",
        speed=_speed_table(measured),
        turns=turns_table(measured),
        names_invented=_names_table(measured),
        parts=_parts_table(measured, evaluation.description.components),
        flags=_flags_table(measured),
        samples=tuple(_samples(records, main.mode if main else "sampled", evaluation.description.stages)),
        troubles=tuple(_troubles([*records, *later])),
        facts=tuple(_facts(evaluation)),
    )


# -------------------------------------------------------------------------------------------------------- at the top


def _headline(evaluation: Evaluation, main: Measurement | None) -> str:
    rate = main.pass_at.get(1) if main else None
    model = visible(evaluation.model)
    if main is None or rate is None:
        return f"{model}: nothing could be judged."
    return f"{model} passes {percent(rate.value)} of {counted(len(main.problems), 'task')}."


def _lead(main: Measurement | None) -> str:
    rate = main.pass_at.get(1) if main else None
    return f"95% interval {interval(rate)}. {described(main)}." if main and rate else ""


def _warnings(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.faulted:
        yield f"{counted(evaluation.faulted, 'completion')} could not be judged and are in no rate: see Faults."
    if evaluation.unwritten:
        yield f"{counted(evaluation.unwritten, 'completion')} were never written and are in no rate: see Faults."
    for found in evaluation.measurements:
        cut = found.details.truncated if found.details else None
        if cut and cut.completions > CUT_OFF_WARNING * max(1, found.graded):
            yield (
                f"{described(found)}: {counted(cut.completions, 'completion')} were cut off at "
                f"{counted(evaluation.max_new_tokens, 'token')}, {cut.passed:,} of which passed. "
                "They count as they stand; a higher limit may change the rates."
            )
    if evaluation.broken:
        yield (
            f"{counted(evaluation.broken, 'chain')} of turns broke off by a fault or a generation error and count as "
            "not green. Run the same command again to go on from there."
        )
    if len(evaluation.graders) > 1:
        yield f"Several revisions judged: {', '.join(evaluation.graders)}. Run `gradus eval` again to judge alike."
    for judged_by in (*evaluation.graders, *evaluation.toolchains):
        if "unsandboxed" in judged_by:
            yield f"Judged without a sandbox: {judged_by}."


def _cards(main: Measurement | None, words: Mapping[str, str]) -> Iterator[Fact]:
    if main is None or main.details is None:
        return
    yield Fact("Tasks", f"{len(main.problems):,}")
    for k in sorted({1, max(main.pass_at, default=1)} & set(main.pass_at)):
        yield Fact(f"pass@{k}", percent(main.pass_at[k].value))
    for name, rate in main.details.rates.items():
        yield Fact(words.get(name, name).capitalize(), percent(rate.value))
    if main.details.partial_tests:
        yield Fact("Tests that pass, on average", percent(main.details.partial_tests.value))
    yield Fact("Mean reward", number(main.mean_reward.value) if main.mean_reward else NOTHING)


def _facts(evaluation: Evaluation) -> Iterator[Fact]:
    """The run card."""
    machine = evaluation.machine
    known = {
        "Model": evaluation.model,
        "Served": "by an endpoint" if evaluation.served else "in the measuring process",
        "Asked as": {"chat": "messages of a chat", "text": "one text"}.get(evaluation.asked_as or "", ""),
        "Tasks": f"{evaluation.tasks} (sha256 {evaluation.tasks_sha256[:12]})",
        "Grader": ", ".join(evaluation.graders),
        "Rubric": ", ".join(evaluation.rubrics),
        "Toolchain": ", ".join(evaluation.toolchains),
        "Sampling": "; ".join(described(found) for found in evaluation.measurements),
        "Top p": "" if evaluation.top_p is None else number(evaluation.top_p),
        "New tokens, at most": f"{evaluation.max_new_tokens:,}",
        "Seed": str(evaluation.seed),
        "Measured": evaluation.created,
        "Took": duration(evaluation.duration_s),
        "Machine": ", ".join(str(machine[key]) for key in ("system", "gpu") if machine.get(key)),
    }
    for label, value in known.items():
        if value:
            yield Fact(label, visible(value)[:200])


# ------------------------------------------------------------------------------------------------------------ tables


def _heads(measured: Sequence[Measurement]) -> tuple[str, ...]:
    return tuple(described(found) for found in measured)


def _rates_table(measured: Sequence[Measurement], words: Mapping[str, str]) -> Table:
    names = dict.fromkeys(name for found in measured if found.details for name in found.details.rates)
    rows = [
        (
            words.get(name, name),
            *(rate_in_words(found.details.rates.get(name) if found.details else None) for found in measured),
        )
        for name in names
    ]
    rows.append(
        (
            "tests that pass, on average",
            *(rate_in_words(d.partial_tests if (d := m.details) else None) for m in measured),
        )
    )
    cuts = [found.details.truncated if found.details else None for found in measured]
    cut_off = (f"{cut.completions:,}, {cut.passed:,} of them passed" if cut else "not known" for cut in cuts)
    rows.append(("cut off at the limit", *cut_off))
    imperative = [found.details.imperative if found.details else None for found in measured]
    rows += _invented_rows(measured)
    declined = [found.details.declined if found.details else None for found in measured]
    if any(declined):
        rows.append(("answers that decline the task", *(rate_in_words(rate) for rate in declined)))
    if any(imperative):
        rows.append(("assigns or loops (imperative)", *(rate_in_words(rate) for rate in imperative)))
    rows.append(("faults, in no rate", *(f"{found.faulted:,}" for found in measured)))
    rows.append(("never written, in no rate", *(f"{found.unwritten:,}" for found in measured)))
    return Table("Shares of the verdicts, with 95% intervals over tasks", ("", *_heads(measured)), tuple(rows))


def _invented_rows(measured: Sequence[Measurement]) -> Iterator[tuple[str, ...]]:
    invented = [found.details.invented if found.details else None for found in measured]
    if any(invented):
        yield "answers with names that do not exist", *(rate_in_words(one.answers if one else None) for one in invented)
        yield "errors of the compiler that say so", *(rate_in_words(one.errors if one else None) for one in invented)


def _names_table(measured: Sequence[Measurement]) -> Table | None:
    """The invented names that most answers have."""
    counts = [found.details.invented.names if found.details and found.details.invented else {} for found in measured]
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    rows = [
        (visible(name), *(_share(c.get(name, 0), m.graded).text for c, m in zip(counts, measured, strict=True)))
        for name, _ in total.most_common(MOST_NAMES)
    ]
    caption = "Names that do not exist, and the answers that have them"
    return Table(caption, ("name", *_heads(measured)), tuple(rows)) if rows else None


def _causes(measured: Sequence[Measurement]) -> Iterator[Level]:
    """What stopped completions, the most frequent first; shares are of all that were asked for."""
    totals: Counter[str] = Counter()
    counts = [found.details.causes if found.details else {} for found in measured]
    for one in counts:
        totals.update(one)
    for cause, _ in totals.most_common(MOST_CAUSES):
        asked = [found.graded + found.faulted + found.unwritten for found in measured]
        yield Level(visible(cause), "", tuple(_share(c.get(cause, 0), n) for c, n in zip(counts, asked, strict=True)))


def _share(count: int, total: int) -> Share:
    share = count / total if total else 0.0
    return Share(f"{count:,} ({percent(share)})", 100 * share, "after")


def _groups(details: Sequence[Details]) -> Iterator[tuple[str, tuple[Level, ...]]]:
    for column in ("difficulty", "kind"):
        names = dict.fromkeys(name for found in details for name in found.groups.get(column, {}))
        if len(names) > 1:
            levels = [
                _group_level(name, [found.groups.get(column, {}).get(name) for found in details]) for name in names
            ]
            yield column, tuple(levels[:MOST_GROUPS])


def _group_level(name: str, groups: Sequence[Group | None]) -> Level:
    shares = []
    for group in groups:
        rate = group.rate if group else None
        text = f"{rate_in_words(rate)}, reward {number(group.mean_reward)}" if group else NOTHING
        shares.append(Share(text, 100 * rate.value if rate else 0.0, "after"))
    tasks = max((group.tasks for group in groups if group), default=0)
    return Level(visible(name), counted(tasks, "task"), tuple(shares))


def _bins(histograms: Sequence[Histogram | None], show: Callable[[float], str]) -> Iterator[Level]:
    """A row for each bin. Histograms of another width than the widest one's have no common rows and are left out."""
    known = [found for found in histograms if found is not None]
    if not known:
        return
    edges = max((found.edges for found in known), key=lambda found: found[-1])
    fitting = [found for found in known if found.edges == edges[: len(found.edges)]]
    largest = max(max(found.counts) for found in fitting) or 1
    for place, (low, high) in enumerate(zip(edges, edges[1:], strict=False)):
        shares = []
        for found in histograms:
            fits = found in fitting and found is not None
            count = found.counts[place] if fits and found and place < len(found.counts) else 0
            shares.append(Share(f"{count:,}" if fits else NOTHING, 100 * count / largest, "after"))
        yield Level(f"{show(low)} to {show(high)}", "", tuple(shares))


def _speed_table(measured: Sequence[Measurement]) -> Table:
    details = [found.details for found in measured]
    speeds = [found.speed if found else None for found in details]
    rows: list[tuple[str, ...]] = [
        ("tokens of prompts", *(number(s.prompt_tokens, 7) if s else NOTHING for s in speeds)),
        ("tokens of completions", *(number(s.completion_tokens, 7) if s else NOTHING for s in speeds)),
        ("tokens per second, all together", *(number(s.tokens_per_s) if s else NOTHING for s in speeds)),
        ("tokens per second, of each", *(spread(s.tokens_per_s_each if s else None) for s in speeds)),
        ("seconds per completion", *(spread(s.latency_s if s else None) for s in speeds)),
        ("tokens per completion", *(spread(d.completion_tokens if d else None) for d in details)),
        ("characters per completion", *(spread(d.completion_chars if d else None) for d in details)),
        ("lines of code per answer", *(spread(d.sizes.answer_lines if d and d.sizes else None) for d in details)),
        ("lines changed from the stub", *(spread(d.sizes.changed_lines if d and d.sizes else None) for d in details)),
        ("asked for more than once", *(f"{s.retried:,}" if s else NOTHING for s in speeds)),
    ]
    return Table("Means, and in brackets p50 · p90 · p99", ("", *_heads(measured)), tuple(rows))


def _parts_table(measured: Sequence[Measurement], components: Sequence[str]) -> Table | None:
    """Components in the order of the grader's description; those that no verdict has are left out."""
    seen = dict.fromkeys(name for found in measured for name in found.components)
    names = [*(name for name in components if name in seen), *(name for name in seen if name not in components)]
    rows = [(visible(name), *(number(found.components.get(name)) for found in measured)) for name in names]
    return Table("Parts of the reward, means over verdicts", ("part", *_heads(measured)), tuple(rows)) if rows else None


def _flags_table(measured: Sequence[Measurement]) -> Table | None:
    names = sorted({flag for found in measured for flag in found.flags})
    rows = [(visible(flag), *(_share(m.flags.get(flag, 0), m.graded).text for m in measured)) for flag in names]
    return Table("Completions that were flagged", ("flag", *_heads(measured)), tuple(rows)) if rows else None


# ------------------------------------------------------------------------------------------------------- completions


def _samples(records: Sequence[Json], mode: str, stages: Sequence[str]) -> Iterator[SampleGroup]:
    """The middle completion of each task, in the order of the task file."""
    by_task: dict[str, list[Json]] = {}
    for record in records:
        if record.get("mode") == mode and is_judged(record):
            by_task.setdefault(task_of(record), []).append(record)
    middle = [one for group in by_task.values() if (one := typical_of(group, stages))]
    styles = part_styles(name for record in middle for name in record["components"])
    for title, style, passed, most in (
        ("Did not pass", "down", False, SHOWN_FAILED),
        ("Passed", "kept", True, SHOWN_PASSED),
    ):
        found = [record for record in middle if (record["passed"] is True) is passed]
        cards: tuple[Card, ...] = tuple(card_of_one(record, mode, styles) for record in found[:most])
        if cards:
            yield SampleGroup(title, style, f"{counted(len(found), 'task')}, {len(cards)} shown", cards)


def _troubles(records: Iterable[Json]) -> Iterator[FaultRow]:
    """Faults and generation errors that say the same together, the most frequent first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for record in records:
        for where, trouble in (("judging", record.get("fault")), ("writing", record.get("error"))):
            if isinstance(trouble, Mapping):
                counts[where, str(trouble.get("kind")), str(trouble.get("message"))] += 1
    for (where, kind, message), count in counts.most_common(MOST_TROUBLES):
        shown, left_out = shortened(visible(message), MESSAGE_CHARS, MESSAGE_LINES)
        yield FaultRow(where, visible(kind), f"{count:,}", shown + (" …" if left_out else ""))
