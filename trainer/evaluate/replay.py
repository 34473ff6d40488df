"""`gradus replay`: grades the stored completions of a run or an evaluation again and tells every
changed reward.

Nothing is sampled and no stored file is changed. Each completion is judged under the rubric that it
was judged under.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from rich.console import Console

from gradus.console import escape_hidden
from gradus.contract import Graded
from gradus.errors import Misuse
from gradus.row_reader import read_rows, read_stored_rows
from gradus.tasks import get_task_class
from gradus.tasks.base import Task, clean_text
from gradus.validation import explain, read_as
from gradus.whole_file import write_text
from trainer.config.run import TrainConfig
from trainer.evaluate.collect import OnProgress, show_progress_bar
from trainer.evaluate.completion_store import COMPLETIONS, TASKS, TURNS
from trainer.evaluate.grader_backend import Judge
from trainer.evaluate.intervals import Part
from trainer.evaluate.plan import EvalPlan
from trainer.evaluate.verdicts import find_cause, is_judged
from trainer.rewards.judge import Record, add_opening, build_outcome, get_completion_text
from trainer.runs.folder import RunFolder

ROUNDING = 1e-6
"""Rewards are rounded to this many places on the wire."""
HANDFUL = 256
MOST_SHOWN = 20
EXIT_CHANGED, EXIT_FAULTED = 1, 3


class Change(Part):
    """One completion whose reward is another one now."""

    file: str
    line: int
    """1-based, in that file."""
    prompt_id: str
    old_reward: float
    new_reward: float
    old_cause: str
    new_cause: str
    old_grader: str
    new_grader: str


class Replay(Part):
    schema_: Literal["gradus/replay@1"] = Field("gradus/replay@1", alias="schema")
    grader: str
    completions: int
    left_alone: int
    """Stored without a verdict, or of tasks that the folder does not hold."""
    faulted_now: int
    changed: tuple[Change, ...]


async def replay(folder: Path, judge_of: Callable[[str], Judge], on_progress: OnProgress) -> Replay:
    """Grade what is stored in `folder` again; `judge_of` makes the judge for a grader's name.

    Raises Misuse for a folder without completions or tasks.
    """
    name, opening = _read_settings(folder)
    tasks = _read_tasks(folder, name)
    stored = list(_read_completions(folder))
    judge = judge_of(name)
    revision = (await judge.info()).grader
    by_rubric: dict[str, list[Record]] = {}
    for record in stored:
        if is_judged(record) and record["prompt_id"] in tasks:
            by_rubric.setdefault(record["rubric"], []).append(record)
    count = sum(map(len, by_rubric.values()))
    done = 0
    faulted = 0
    changed = []
    for rubric, alike in by_rubric.items():
        for start in range(0, len(alike), HANDFUL):
            handful = alike[start : start + HANDFUL]
            submissions = []
            for place, record in enumerate(handful):
                submissions.append(
                    {
                        "id": str(place),
                        "completion": clean_text(
                            add_opening(opening, get_completion_text(record["completion"]))
                        ),
                        "task": tasks[record["prompt_id"]],
                    }
                )
            results = await judge.grade(submissions, rubric)
            for record, result in zip(handful, results, strict=True):
                if not isinstance(result, Graded):
                    faulted += 1
                elif abs(result.reward - record["reward"]) > ROUNDING:
                    changed.append(
                        Change(
                            **{name: record[name] for name in ("file", "line", "prompt_id")},
                            old_reward=record["reward"],
                            new_reward=result.reward,
                            old_cause=find_cause(record),
                            new_cause=find_cause(build_outcome(result)),
                            old_grader=record["grader"],
                            new_grader=result.grader,
                        )
                    )
            done += len(handful)
            on_progress("graded again", done, count)
    return Replay(
        grader=revision,
        completions=count,
        left_alone=len(stored) - count,
        faulted_now=faulted,
        changed=tuple(changed),
    )


# ---------------------------------------------------------------------- what is stored


def _read_settings(path: Path) -> tuple[str, str]:
    """Return the grader and the opening of completions, as the files of the folder name them."""
    plan_file = path / "plan.json"
    if plan_file.exists():
        plan = read_as(EvalPlan, plan_file, "plan")
        grader = plan.grader
        opening = plan.opening
    else:
        description = "configuration of a run on rewards"
        config = read_as(TrainConfig, RunFolder(path).resolved_config, description)
        grader = config.reward.grader
        opening = config.prompt.opening
    if grader is None:
        raise Misuse(f"{path}: was not judged by a grader")
    return grader, opening


def _read_tasks(path: Path, grader: str) -> dict[str, Task]:
    run = RunFolder(path)
    tasks: dict[str, Task] = {}
    for file in (path / TASKS, run.train_tasks, run.held_out_tasks):
        for row in read_rows(file) if file.exists() else ():
            values = row.require_valid().values
            try:
                tasks[str(values["id"])] = get_task_class(grader).model_validate(values["task"])
            except KeyError as missing:
                raise Misuse(f"{row.where}: {missing.args[0]}: is missing") from None
            except ValidationError as error:
                raise Misuse(f"{row.where}: {explain(error)}") from None
    if not tasks:
        raise Misuse(f"{path}: holds no tasks to judge by")
    return tasks


def _read_completions(path: Path) -> Iterator[Record]:
    """Yield every completion, file by file, with its `file` and `line`."""
    main_files = []
    for file in (path / COMPLETIONS, path / TURNS):
        if file.exists():
            main_files.append(file)
    files = [*main_files, *sorted((path / "eval").glob("*.completions.jsonl"))]
    if not files:
        raise Misuse(f"{path}: holds no completions")
    for file in files:
        for number, row in enumerate(read_stored_rows(file), start=1):
            if not {"prompt_id", "completion", "reward", "rubric", "grader"} <= row.values.keys():
                raise Misuse(f"{row.where}: is no completion of ours")
            yield {**row.values, "file": str(file.relative_to(path)), "line": number}


# ---------------------------------------------------------------------- the command's part


def main(run: Path, judge_of: Callable[[str], Judge]) -> int:
    """Replay a folder and write what changed to its replay.json, whose path is printed last.

    Returns 1 when any reward changed, else 3 when any completion could not be judged, else 0.
    Raises Misuse.
    """
    with show_progress_bar(Console(stderr=True)) as on_progress:
        result = asyncio.run(replay(run, judge_of, on_progress))
    out = run / "replay.json"
    write_text(out, result.model_dump_json(by_alias=True, indent=1) + "\n")
    for change in result.changed[:MOST_SHOWN]:
        print(
            f"{change.file}:{change.line}: {escape_hidden(change.prompt_id)}: {change.old_reward:g}"
            f" -> {change.new_reward:g} ({change.old_cause} -> {change.new_cause})"
        )
    if len(result.changed) > MOST_SHOWN:
        print(f"and {len(result.changed) - MOST_SHOWN} more")
    print(
        f"{len(result.changed)} of {result.completions} rewards changed; {result.faulted_now} could"
        f" not be judged now, {result.left_alone} had no verdict or no task; by {result.grader}"
    )
    print(out)
    if result.changed:
        return EXIT_CHANGED
    return EXIT_FAULTED if result.faulted_now else 0
