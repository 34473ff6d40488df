"""What the page is told, as plain values for JSON. Every text in it is to be shown as text: none is safe as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradus.contract import Stage
from services.dashboard.confined_files import ConfinedDirectory
from services.dashboard.evaluations import MODES, Evaluation, Figures
from services.dashboard.groups import BUCKETS, Group, Groups, records_of
from services.dashboard.jsonl_tail import Json
from services.dashboard.run import FollowedRun
from services.dashboard.series import Binned, Row, StepLog, finite, mean_of, share_of

DIGITS = 6
"""Significant ones, of what is drawn."""
STAGES = tuple(stage.value for stage in Stage)
"""In the order in which an answer reaches them."""
MAX_COMPLETION_CHARS = 20_000
MAX_PROMPT_CHARS = 8_000
MAX_DIAGNOSTICS = 6
MAX_DIAGNOSTIC_CHARS = 600
MAX_PARTS = 24
MAX_SAME_PROMPT = 200


def summary_of(run: FollowedRun, now: float) -> Json:
    """One row of the list of runs."""
    state, why = run.state(now)
    log = run.metrics
    held_out = _newest_held_out(run.evaluations.in_order())
    is_warming = log.step is None and run.warm_start.step is not None
    return {
        "id": run.id,
        "version": run.version,
        "state": state.value,
        "why": why,
        "set_aside": run.is_set_aside,
        "changed_at": run.changed_at,
        "step": log.step if log.step is not None else run.warm_start.step,
        "max_steps": None if is_warming else run.max_steps,
        "phase": "warm start" if is_warming else "",
        "stage": run.stage,
        "grader": run.grader,
        "reward": log.newest.get("reward"),
        "reward_std": log.newest.get("reward_std"),
        "loss": log.latest.get("loss"),
        "held_out": held_out
        and {"name": held_out[0].name, "mode": held_out[1].mode, "pass_rate": held_out[1].pass_rate},
        "alarms": [{"rule": one.rule.value, "title": one.title, "detail": one.detail} for one in run.alerts()],
    }


def detail_of(run: FollowedRun, now: float) -> Json:
    """Everything of a run but its completions."""
    return {
        **summary_of(run, now),
        "newest": run.metrics.newest,
        "metrics": _columns(run.metrics),
        "warm_start": _columns(run.warm_start),
        "outcomes": _tallies(run.groups.outcomes, tuple(run.groups.outcomes.names)),
        "buckets": _tallies(run.groups.buckets, BUCKETS),
        "funnel": _funnel(run.metrics),
        "evaluations": [
            {
                "name": one.name,
                "created": one.created,
                "step": one.step,
                "figures": [{name: getattr(each, name) for name in each.__slots__} for each in one.figures],
            }
            for one in run.evaluations.in_order()
        ],
        "groups": run.groups.numbers,
        "completions": run.groups.completions,
        "settings": run.settings(),
        "log": run.log_lines,
        "unreadable": run.unreadable,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _columns(log: StepLog) -> Json:
    binned = log.binned
    values = {name: [_rounded(mean) for mean in binned.means(name)] for name in binned.names}
    return {"steps": binned.steps(), "steps_per_point": binned.width, "logged": log.logged, "values": values}


def _tallies(binned: Binned, names: Sequence[str]) -> Json:
    """Shares by bin, and how many there were at each."""
    columns = {name: binned.totals(name) for name in names}
    sums = [sum(column[n] for column in columns.values()) for n in range(len(binned.steps()))]
    shares = {
        name: [_rounded(count / total) if total else None for count, total in zip(column, sums, strict=True)]
        for name, column in columns.items()
    }
    counts = {name: [int(count) for count in column] for name, column in columns.items()}
    return {"steps": binned.steps(), "steps_per_point": binned.width, "shares": shares, "counts": counts}


def _funnel(log: StepLog) -> Json | None:
    """The share of verdicts that came at least so far, in the first and in the last logged steps."""
    prefix = "gradus/stage/"
    stages = [stage for stage in STAGES if prefix + stage in log.binned.names]
    if not stages:
        return None
    levels = []
    for n, stage in enumerate(stages):
        beyond = stages[n:]
        shares = [sum(share_of(rows, prefix + name) for name in beyond) for rows in (log.first, log.last_rows())]
        levels.append({"name": f"reached {stage}", "shares": [_rounded(min(1.0, share)) for share in shares]})
    passed = [_rounded(mean_of(rows, "gradus/passed")) for rows in (log.first, log.last_rows())]
    levels.append({"name": "passed", "shares": passed})
    return {"columns": [_span(log.first), _span(log.last_rows())], "levels": levels}


def _span(rows: Sequence[Row]) -> str:
    first, last = rows[0][0], rows[-1][0]
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"


def _newest_held_out(evaluations: Sequence[Evaluation]) -> tuple[Evaluation, Figures] | None:
    for evaluation in reversed(evaluations):
        for mode in MODES:
            if (found := evaluation.of(mode)) is not None and found.pass_rate is not None:
                return evaluation, found
    return None


# ------------------------------------------------------------------------------------------------------------ groups


def group_of(confined: ConfinedDirectory, run: FollowedRun, group: Group, *, with_signal: bool = False) -> Json:
    """One group with its completions, as they stand in the file now. `with_signal`: which neighbours are named."""
    records = records_of(confined, run.completions_path, group)
    known = run.groups.of_prompt(group.prompt_id)[-MAX_SAME_PROMPT:]
    prompt, left_out = _cut(_text_of(records[0].get("prompt")) if records else "", MAX_PROMPT_CHARS)
    return {
        "number": group.number,
        "range": run.groups.numbers,
        "older": run.groups.beside(group.number, -1, with_signal=with_signal),
        "newer": run.groups.beside(group.number, 1, with_signal=with_signal),
        "step": group.step,
        "prompt_id": group.prompt_id,
        "prompt": prompt,
        "prompt_left_out": left_out,
        "grader": run.grader,
        "samples": [_sample(record) for record in records],
        "of": len(group.places),
        "same_prompt": [
            {
                "number": one.number,
                "step": one.step,
                "reward": _rounded(one.reward_sum / one.graded if one.graded else None),
                "passed": one.passed,
            }
            for one in known
        ],
    }


def _sample(record: Json) -> Json:
    completion, left_out = _cut(_text_of(record.get("completion")), MAX_COMPLETION_CHARS)
    diagnostics = _items(record.get("diagnostics"))
    return {
        "completion": completion,
        "left_out": left_out,
        "reward": finite(record.get("reward")),
        "advantage": finite(record.get("advantage")),
        "passed": record.get("passed") is True,
        "stage": str(record.get("stage") or "")[:40],
        "components": _parts(record.get("components")),
        "tests": _tests(record.get("tests")),
        "flags": [str(flag)[:100] for flag in _items(record.get("flags"))[:MAX_PARTS]],
        "diagnostics": [_diagnostic(one) for one in diagnostics[:MAX_DIAGNOSTICS] if isinstance(one, Mapping)],
        "more_diagnostics": max(0, len(diagnostics) - MAX_DIAGNOSTICS),
        "fault": _fault(record.get("fault")),
        "cached": record.get("cached") is True,
    }


def _fault(given: Any) -> dict[str, str] | None:
    if not isinstance(given, Mapping):
        return None
    return {name: str(given.get(name))[:MAX_DIAGNOSTIC_CHARS] for name in ("kind", "message")}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parts(given: Any) -> dict[str, float]:
    items = list(given.items())[:MAX_PARTS] if isinstance(given, Mapping) else []
    return {str(name)[:60]: number for name, value in items if (number := finite(value)) is not None}


def _tests(given: Any) -> Json | None:
    if not isinstance(given, Mapping):
        return None
    passed, total = finite(given.get("passed")), finite(given.get("total"))
    return None if passed is None or total is None else {"passed": int(passed), "total": int(total)}


def _diagnostic(given: Mapping[str, Any]) -> Json:
    line = finite(given.get("line"))
    return {
        "stage": str(given.get("stage"))[:40],
        "severity": str(given.get("severity"))[:20],
        "line": None if line is None else int(line),
        "message": str(given.get("message"))[:MAX_DIAGNOSTIC_CHARS],
    }


def _text_of(given: Any) -> str:
    """A prompt or completion as one text; of a conversation, what each says after its role."""
    if isinstance(given, list):
        turns = [one for one in given[:MAX_PARTS] if isinstance(one, Mapping)]
        return "\n\n".join(f"[{one.get('role')}]\n{one.get('content')}" for one in turns)
    return given if isinstance(given, str) else ""


def _cut(text: str, most: int) -> tuple[str, int]:
    return text[:most], max(0, len(text) - most)


def wanted_group(
    groups: Groups, number: int | None = None, step: int | None = None, *, with_signal: bool = False
) -> Group | None:
    """The group of that number, or the first of that step, or the newest, if wanted the newest with a signal."""
    if step is not None:
        return groups.at_step(step)
    numbers = groups.numbers
    if number is None and numbers is not None:
        number = groups.beside(numbers[1] + 1, -1, with_signal=with_signal)
    return None if number is None else groups.get(number)
