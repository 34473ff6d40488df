"""The answers of the API, as plain values for JSON. Texts in them are not safe as HTML."""

from __future__ import annotations

from gradus.contract import Stage
from gradus.descriptions import description_of
from services.dashboard.files import ConfinedDirectory, Json
from services.dashboard.groups import Group, records_of
from services.dashboard.run import FollowedRun
from services.dashboard.samples import cut, sample_of, text_of
from services.dashboard.series import Binned, StepLog, finite

DIGITS = 6
"""Significant ones, of what is drawn."""
MAX_COMPLETION_CHARS = 20_000
MAX_PROMPT_CHARS = 8_000


def summary_of(run: FollowedRun, now: float) -> Json:
    """Return one row of the list of runs."""
    state, why = run.state(now)
    log = run.metrics
    is_warming = log.step is None and run.warm_start.step is not None
    return {
        "id": run.id,
        "kind": "evaluation" if run.is_evaluation else "run",
        "version": run.version,
        "state": state.value,
        "why": why,
        "changed_at": run.changed_at,
        "step": log.step if log.step is not None else run.warm_start.step,
        "max_steps": None if is_warming else run.max_steps,
        "phase": "warm start" if is_warming else "",
        "stage": run.stage,
        "model": run.model,
        "grader": run.grader,
        "step_time": log.latest.get("step_time"),
        "reward": log.newest.get("reward"),
        "reward_std": log.newest.get("reward_std"),
        "loss": log.latest.get("loss"),
        "held_out": _held_out(run),
    }


def _held_out(run: FollowedRun) -> Json | None:
    """Return the pass rate of the newest evaluation that has one."""
    for one in reversed(run.evaluations.in_order()):
        for figures in one.figures:
            if figures["pass_rate"] is not None:
                return {**figures, "name": one.name, "tasks": str(one.given.get("tasks") or "")}
    return None


def detail_of(run: FollowedRun, now: float) -> Json:
    """Return everything of a run but its completions."""
    sides = run.evaluations.before_and_after()
    dates = [(one.name, one.created) for one in sides]
    groups = run.groups
    return {
        **summary_of(run, now),
        "newest": run.metrics.newest,
        "metrics": _columns(run.metrics),
        "warm_start": _columns(run.warm_start),
        "outcomes": _tallies(groups.outcomes),
        "evaluations": [
            {"name": one.name, "created": one.created, "step": one.step, "figures": one.figures}
            for one in run.evaluations.in_order()
        ],
        "stages": _stages(run),
        "measured": [one.given for one in sides],
        "evaluation_s": sum(finite(one.given.get("duration_s")) or 0.0 for one in sides),
        # Only comparisons of those two evaluations that are there now.
        "comparisons": [one for one in run.comparisons if _made_of(one) == dates],
        "groups": groups.numbers,
        "completions": groups.completions,
        "faulted": groups.faulted,
        "passed": groups.passed,
        "flags": dict(groups.flags),
        "graders": list(groups.graders),
        "faults": groups.faults.most_frequent(),
        "environment": run.environment,
        "missing": run.missing(),
        "settings": run.settings(),
        "log": run.log_lines,
    }


def _made_of(comparison: Json) -> list[tuple[object, object]]:
    """Return name and date of the evaluations that were compared."""
    sides = [comparison.get("before"), comparison.get("after")]
    return [(one.get("name"), one.get("created")) for one in sides if isinstance(one, dict)]


def _stages(run: FollowedRun) -> list[str]:
    """Return the stages in the order in which an answer reaches them: the grader's, as far as an
    evaluation tells, then all others."""
    measured = run.evaluations.in_order()
    if measured:
        return list(measured[-1].given["stages"])
    stages = [*description_of(run.grader).stages, *Stage]
    return list(dict.fromkeys(map(str, stages)))


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _columns(log: StepLog) -> Json:
    return {
        "steps": log.binned.steps(),
        "steps_per_point": log.binned.width,
        "values": _values(log.binned),
    }


def _values(binned: Binned) -> dict[str, list[float | None]]:
    """Return means by name; `time`, of which six digits say little, in seconds since the first
    logged step."""
    means = {name: binned.means(name) for name in binned.names}
    start = next((value for value in means.get("time", ()) if value is not None), 0.0)
    if "time" in means:
        means["time"] = [None if value is None else value - start for value in means["time"]]
    return {name: list(map(_rounded, column)) for name, column in means.items()}


def _tallies(binned: Binned) -> Json:
    counts = {name: list(map(int, binned.totals(name))) for name in binned.names}
    return {"steps": binned.steps(), "counts": counts}


def group_of(confined: ConfinedDirectory, run: FollowedRun, group: Group) -> Json:
    """Return one group with its completions, as they stand in the file now."""
    records = records_of(confined, run.completions_path, group)
    prompt, left_out = cut(text_of(records[0].get("prompt")) if records else "", MAX_PROMPT_CHARS)
    return {
        "number": group.number,
        "range": run.groups.numbers,
        "step": group.step,
        "prompt_id": group.prompt_id,
        "prompt": prompt,
        "prompt_left_out": left_out,
        "samples": [sample_of(record, MAX_COMPLETION_CHARS, None) for record in records],
        "of": len(group.places),
    }
