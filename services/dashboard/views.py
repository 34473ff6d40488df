"""The answers of the API, as plain values for JSON. Texts in them are not safe as HTML."""

from __future__ import annotations

from gradus.contract import Stage
from gradus.descriptions import describe_offline
from gradus.tasks import get_task_class
from services.dashboard.files import ConfinedDirectory, Json
from services.dashboard.groups import Group, read_records
from services.dashboard.run import FollowedRun
from services.dashboard.samples import build_sample, cut, render_text
from services.dashboard.series import Binned, StepLog, to_finite, to_mapping

DIGITS = 6  # significant digits of values that are drawn
MAX_COMPLETION_CHARS = 20_000
MAX_PROMPT_CHARS = 8_000


def build_summary(run: FollowedRun, now: float) -> Json:
    """Return one row of the list of runs."""
    state, why = run.get_state(now)
    log = run.metrics
    progress = {"step": log.step, "max_steps": run.max_steps, "phase": ""}
    if log.step is None and run.warm_start.step is not None:
        progress = {"step": run.warm_start.step, "max_steps": None, "phase": "warm start"}
    return {
        "id": run.id,
        "kind": "evaluation" if run.is_evaluation else "run",
        "version": run.version,
        "state": state.value,
        "why": why,
        "changed_at": run.changed_at,
        **progress,
        "stage": run.stage,
        "model": run.model,
        "grader": run.grader,
        "headline": get_task_class(run.grader).HEADLINE,
        "step_time": log.latest.get("step_time"),
        "reward": log.newest.get("reward"),
        "reward_std": log.newest.get("reward_std"),
        "loss": log.latest.get("loss"),
        "held_out": _find_held_out(run),
    }


def _find_held_out(run: FollowedRun) -> Json | None:
    for evaluation in reversed(run.evaluations.list_by_step()):
        for figures in evaluation.figures:
            if figures["pass_rate"] is not None:
                tasks = str(evaluation.content.get("tasks") or "")
                return {**figures, "name": evaluation.name, "tasks": tasks}
    return None


def build_detail(run: FollowedRun, now: float) -> Json:
    """Return everything of a run but its completions."""
    sides = run.evaluations.select_before_and_after()
    dates = [(entry.name, entry.created) for entry in sides]
    groups = run.groups
    outcomes = groups.outcomes
    counts = {name: list(map(int, outcomes.compute_totals(name))) for name in outcomes.names}
    return {
        **build_summary(run, now),
        "newest": run.metrics.newest,
        "metrics": _build_columns(run.metrics),
        "warm_start": _build_columns(run.warm_start),
        "outcomes": {"steps": outcomes.list_steps(), "counts": counts},
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
    before = to_mapping(comparison.get("before"))
    after = to_mapping(comparison.get("after"))
    return [(before.get("name"), before.get("created")), (after.get("name"), after.get("created"))]


def _list_stages(run: FollowedRun) -> list[str]:
    """Return the stages in the order in which an answer reaches them: those of the newest
    evaluation, else the grader's, then all others."""
    measured = run.evaluations.list_by_step()
    if measured:
        return list(measured[-1].content["stages"])
    stages = [*describe_offline(run.grader).stages, *Stage]
    return list(dict.fromkeys(map(str, stages)))


def _build_columns(log: StepLog) -> Json:
    return {
        "steps": log.binned.list_steps(),
        "steps_per_point": log.binned.width,
        "values": {name: _compute_column(log.binned, name) for name in log.binned.names},
    }


def _compute_column(binned: Binned, name: str) -> list[float | None]:
    """Return the rounded means of a name; of `time`, which DIGITS would blur, the seconds since the
    first logged step."""
    start = None if name == "time" else 0.0
    column: list[float | None] = []
    for value in binned.compute_means(name):
        if value is None:
            column.append(None)
            continue
        if start is None:
            start = value
        column.append(float(f"{value - start:.{DIGITS}g}"))
    return column


def build_group(confined: ConfinedDirectory, run: FollowedRun, group: Group) -> Json:
    """Return one group with its completions, as they are in the file now."""
    records = read_records(confined, run.completions_path, group)
    prompt = render_text(records[0].get("prompt")) if records else ""
    prompt, left_out = cut(prompt, MAX_PROMPT_CHARS)
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
