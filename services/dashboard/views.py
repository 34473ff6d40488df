"""The answers of the API, as plain values for JSON. Texts in them are not safe as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from gradus.contract import Stage
from gradus.descriptions import description_of
from services.dashboard.evaluations import MODES
from services.dashboard.files import ConfinedDirectory, Json
from services.dashboard.groups import BUCKETS, CACHED, FIRST, REPEATED, Group, Groups, records_of
from services.dashboard.run import FollowedRun
from services.dashboard.run_alerts import alerts_of
from services.dashboard.samples import cut, sample_of, samples_of, text_of
from services.dashboard.series import Binned, StepLog, finite

DIGITS = 6
"""Significant ones, of what is drawn."""
MAX_COMPLETION_CHARS = 20_000
MAX_PROMPT_CHARS = 8_000
MAX_SAME_PROMPT = 200
MAX_LISTED_SETTINGS, MAX_LISTED_CHARS = 100, 60
"""Limits of the settings that the list of runs compares: their number, and characters of each
value."""
NOT_COMPARED = ("output_dir", "model.name", "reward.grader", "reward.urls", "generation.url")


def summary_of(run: FollowedRun, now: float) -> Json:
    """One row of the list of runs."""
    state, why = run.state(now)
    log = run.metrics
    rated = [
        (one, found)
        for one in reversed(run.evaluations.in_order())
        for mode in MODES
        if (found := one.of(mode)) is not None and found.pass_rate is not None
    ]
    held_out = [
        {**asdict(found), "name": one.name, "tasks": str(one.given.get("tasks") or "")}
        for one, found in rated
    ]
    kept = [
        (name, text[:MAX_LISTED_CHARS]) for name, text in run.settings() if name not in NOT_COMPARED
    ]
    is_warming = log.step is None and run.warm_start.step is not None
    return {
        "id": run.id,
        "kind": "evaluation" if run.is_evaluation else "run",
        "version": run.version,
        "state": state.value,
        "why": why,
        "set_aside": run.is_set_aside,
        "changed_at": run.changed_at,
        "step": log.step if log.step is not None else run.warm_start.step,
        "max_steps": None if is_warming else run.max_steps,
        "phase": "warm start" if is_warming else "",
        "stage": run.stage,
        "model": run.model,
        "grader": run.grader,
        "settings": dict(kept[:MAX_LISTED_SETTINGS]),
        "step_time": log.latest.get("step_time"),
        "best": _best(run.metrics.binned, held_out),
        "reward": log.newest.get("reward"),
        "reward_std": log.newest.get("reward_std"),
        "loss": log.latest.get("loss"),
        "held_out": held_out[0] if held_out else None,
        "alarms": [asdict(one) for one in alerts_of(log, run.evaluations.in_order())],
    }


def _best(binned: Binned, held_out: Sequence[Json]) -> Json | None:
    """The best held-out pass rate; without one the best reward; without rewards the lowest loss."""
    if held_out:
        best = max(reversed(held_out), key=lambda one: one["pass_rate"])
        return {"what": "pass rate", "value": best["pass_rate"], "at": best["name"]}
    for name, choose in (("reward", max), ("eval_loss", min), ("loss", min)):
        known = [
            (mean, step)
            for step, mean in zip(binned.steps(), binned.means(name), strict=True)
            if mean is not None
        ]
        if known:
            value, step = choose(known, key=lambda pair: pair[0])
            return {
                "what": name.replace("eval_loss", "held-out loss"),
                "value": _rounded(value),
                "at": f"step {step}",
            }
    return None


def detail_of(run: FollowedRun, now: float) -> Json:
    """Everything of a run but its completions."""
    measured = run.evaluations.in_order()
    own = map(str, description_of(run.grader).stages)
    sides = [(one.name, one.created) for one in run.evaluations.before_and_after()]
    compared = [(one, [one.get("before"), one.get("after")]) for one in run.comparisons]
    made = [
        (one, [(at.get("name"), at.get("created")) for at in of if isinstance(at, Mapping)])
        for one, of in compared
    ]
    return {
        **summary_of(run, now),
        "newest": run.metrics.newest,
        "metrics": _columns(run.metrics),
        "warm_start": _columns(run.warm_start),
        "outcomes": _tallies(run.groups.outcomes, tuple(run.groups.outcomes.names)),
        "buckets": _tallies(run.groups.buckets, BUCKETS),
        "repeats": _tallies(run.groups.repeats, (FIRST, REPEATED, CACHED)),
        "parts": {"steps": run.groups.components.steps(), "values": _values(run.groups.components)},
        "evaluations": [
            {
                "name": one.name,
                "created": one.created,
                "step": one.step,
                "figures": [asdict(each) for each in one.figures],
            }
            for one in measured
        ],
        # In the order in which an answer reaches them: the grader's, as far as an evaluation tells,
        # then all others.
        "stages": measured[-1].stages
        if measured
        else list(dict.fromkeys((*own, *map(str, Stage)))),
        "measured": [one.given for one in run.evaluations.before_and_after()],
        "evaluation_s": sum(finite(one.given.get("duration_s")) or 0.0 for one in measured),
        # Only comparisons of those two evaluations that are there now.
        "comparisons": [one for one, of in made if of == sides],
        "groups": run.groups.numbers,
        "completions": run.groups.completions,
        "faulted": run.groups.faulted,
        "passed": run.groups.passed,
        "flags": dict(run.groups.flags),
        "graders": list(run.groups.graders),
        "faults": run.groups.faults.most_frequent(),
        "environment": run.environment,
        "plan": run.plan,
        "missing": run.missing(),
        "settings": run.settings(),
        "log": run.log_lines,
    }


def examples_of(run: FollowedRun) -> Json:
    """Completions of the evaluations before and after, or of the only one, and their faults."""
    return samples_of(run.confined, run.evaluations.before_and_after())


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _columns(log: StepLog) -> Json:
    steps, width = log.binned.steps(), log.binned.width
    return {
        "steps": steps,
        "steps_per_point": width,
        "logged": log.logged,
        "values": _values(log.binned),
    }


def _values(binned: Binned) -> dict[str, list[float | None]]:
    """Means by name; `time`, of which six digits say little, in seconds since the first logged
    step."""
    means = {name: binned.means(name) for name in binned.names}
    start = next((value for value in means.get("time", ()) if value is not None), 0.0)
    if "time" in means:
        means["time"] = [None if value is None else value - start for value in means["time"]]
    return {name: [_rounded(mean) for mean in column] for name, column in means.items()}


def _tallies(binned: Binned, names: Sequence[str]) -> Json:
    """Shares by bin, and how many there were at each."""
    columns = {name: binned.totals(name) for name in names}
    sums = [sum(column[n] for column in columns.values()) for n in range(len(binned.steps()))]
    shares = {
        name: [
            _rounded(count / total) if total else None
            for count, total in zip(column, sums, strict=True)
        ]
        for name, column in columns.items()
    }
    counts = {name: [int(count) for count in column] for name, column in columns.items()}
    return {
        "steps": binned.steps(),
        "steps_per_point": binned.width,
        "shares": shares,
        "counts": counts,
    }


# ------------------------------------------------------------------------------------------ groups


def group_of(
    confined: ConfinedDirectory, run: FollowedRun, group: Group, *, with_signal: bool = False
) -> Json:
    """One group with its completions, as they stand in the file now. `with_signal`: which
    neighbours are named."""
    records = records_of(confined, run.completions_path, group)
    known = run.groups.of_prompt(group.prompt_id)[-MAX_SAME_PROMPT:]
    prompt, left_out = cut(text_of(records[0].get("prompt")) if records else "", MAX_PROMPT_CHARS)
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
        "samples": [sample_of(record, MAX_COMPLETION_CHARS, None) for record in records],
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


def wanted_group(
    groups: Groups, number: int | None = None, step: int | None = None, *, with_signal: bool = False
) -> Group | None:
    """The group of that number, or the first of that step, or the newest, if wanted the newest with
    a signal."""
    if step is not None:
        return groups.at_step(step)
    numbers = groups.numbers
    if number is None and numbers is not None:
        number = groups.beside(numbers[1] + 1, -1, with_signal=with_signal)
    return None if number is None else groups.get(number)
