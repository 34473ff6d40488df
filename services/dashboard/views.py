"""The answers of the API, as plain values for JSON. Texts in them are not safe as HTML."""

from __future__ import annotations

from gradus.contract import Stage
from gradus.descriptions import describe_offline
from services.dashboard.files import ConfinedDirectory, Json
from services.dashboard.groups import Group, read_records
from services.dashboard.run import FollowedRun
from services.dashboard.samples import build_sample, cut, render_text
from services.dashboard.series import Binned, StepLog, to_finite

DIGITS = 6
"""Significant ones, of what is drawn."""
MAX_COMPLETION_CHARS = 20_000
MAX_PROMPT_CHARS = 8_000


def build_summary(run: FollowedRun, now: float) -> Json:
    """Return one row of the list of runs."""
    state, why = run.get_state(now)
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
        "held_out": _find_held_out(run),
    }


def _find_held_out(run: FollowedRun) -> Json | None:
    """Return the pass rate of the newest evaluation that has one."""
    for evaluation in reversed(run.evaluations.list_by_step()):
        for figures in evaluation.figures:
            if figures["pass_rate"] is not None:
                return {
                    **figures,
                    "name": evaluation.name,
                    "tasks": str(evaluation.content.get("tasks") or ""),
                }
    return None


def build_detail(run: FollowedRun, now: float) -> Json:
    """Return everything of a run but its completions."""
    sides = run.evaluations.select_before_and_after()
    dates = [(entry.name, entry.created) for entry in sides]
    groups = run.groups
    return {
        **build_summary(run, now),
        "newest": run.metrics.newest,
        "metrics": _build_columns(run.metrics),
        "warm_start": _build_columns(run.warm_start),
        "outcomes": _build_tallies(groups.outcomes),
        "evaluations": [
            {
                "name": entry.name,
                "created": entry.created,
                "step": entry.step,
                "figures": entry.figures,
            }
            for entry in run.evaluations.list_by_step()
        ],
        "stages": _list_stages(run),
        "measured": [entry.content for entry in sides],
        "evaluation_s": sum(to_finite(entry.content.get("duration_s")) or 0.0 for entry in sides),
        # Only comparisons of those two evaluations that are there now.
        "comparisons": [entry for entry in run.comparisons if _read_sides(entry) == dates],
        "groups": groups.numbers,
        "completions": groups.completions,
        "faulted": groups.faulted,
        "passed": groups.passed,
        "flags": dict(groups.flags),
        "graders": list(groups.graders),
        "faults": groups.faults.list_most_frequent(),
        "environment": run.environment,
        "missing": run.list_missing(),
        "settings": run.list_settings(),
        "log": run.log_lines,
    }


def _read_sides(comparison: Json) -> list[tuple[object, object]]:
    """Return name and date of the evaluations that were compared."""
    sides = [comparison.get("before"), comparison.get("after")]
    return [(side.get("name"), side.get("created")) for side in sides if isinstance(side, dict)]


def _list_stages(run: FollowedRun) -> list[str]:
    """Return the stages in the order in which an answer reaches them: the grader's, as far as an
    evaluation tells, then all others."""
    measured = run.evaluations.list_by_step()
    if measured:
        return list(measured[-1].content["stages"])
    stages = [*describe_offline(run.grader).stages, *Stage]
    return list(dict.fromkeys(map(str, stages)))


def _round_value(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _build_columns(log: StepLog) -> Json:
    return {
        "steps": log.binned.list_steps(),
        "steps_per_point": log.binned.width,
        "values": _compute_means(log.binned),
    }


def _compute_means(binned: Binned) -> dict[str, list[float | None]]:
    """Return means by name; `time`, of which six digits say little, in seconds since the first
    logged step."""
    means = {name: binned.compute_means(name) for name in binned.names}
    start = next((value for value in means.get("time", ()) if value is not None), 0.0)
    if "time" in means:
        means["time"] = [None if value is None else value - start for value in means["time"]]
    return {name: list(map(_round_value, column)) for name, column in means.items()}


def _build_tallies(binned: Binned) -> Json:
    counts = {name: list(map(int, binned.compute_totals(name))) for name in binned.names}
    return {"steps": binned.list_steps(), "counts": counts}


def build_group(confined: ConfinedDirectory, run: FollowedRun, group: Group) -> Json:
    """Return one group with its completions, as they stand in the file now."""
    records = read_records(confined, run.completions_path, group)
    prompt, left_out = cut(
        render_text(records[0].get("prompt")) if records else "", MAX_PROMPT_CHARS
    )
    return {
        "number": group.number,
        "range": run.groups.numbers,
        "step": group.step,
        "prompt_id": group.prompt_id,
        "prompt": prompt,
        "prompt_left_out": left_out,
        "samples": [build_sample(record, MAX_COMPLETION_CHARS, None) for record in records],
        "of": len(group.places),
    }
