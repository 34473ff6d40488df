"""`gradus replay`: grades the stored completions of a run or an evaluation again and tells every
changed reward.

Nothing is sampled and no stored file is changed. Each completion is judged under the rubric that it
was judged under.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from rich.console import Console

from gradus.console import visible
from gradus.contract import Faulted, Graded
from gradus.errors import Misuse
from gradus.row_reader import read_rows, stored_rows
from gradus.tasks import task_class
from gradus.tasks.base import Task, cleaned
from gradus.validation import explain, read_as
from gradus.whole_file import write_text
from trainer.config.run import TrainConfig
from trainer.evaluate.collect import OnProgress, progress_bar
from trainer.evaluate.completion_store import EvalFolder
from trainer.evaluate.grader_backend import Judge
from trainer.evaluate.intervals import Part
from trainer.evaluate.plan import EvalPlan
from trainer.evaluate.verdicts import cause_of
from trainer.rewards.judge import Record, outcome_of, text_of, with_opening
from trainer.runs.folder import RunFolder

ROUNDING = 1e-6
"""Rewards are rounded to this many places on the wire."""
HANDFUL = 256
EXIT_CHANGED, EXIT_FAULTED = 1, 3


class Change(Part):
    """One completion whose verdict is another one now."""

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
    because: str
    """What changed with the reward: see `_because`."""
    completion: str


class Replay(Part):
    schema_: Literal["gradus/replay@1"] = Field("gradus/replay@1", alias="schema")
    grader: str
    """The revision that judged now."""
    old_graders: tuple[str, ...]
    completions: int
    """Stored with a verdict, and judged again."""
    unjudged_before: int
    """Stored without a verdict, for a fault or a generation error; left alone."""
    without_task: int
    """Completions of tasks that the folder does not hold; left alone."""
    faulted_now: int
    by_reason: dict[str, int]
    changed: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class _Stored:
    """One stored completion with a verdict."""

    file: str
    line: int
    record: Record
    task: Task


async def replay(
    folder: Path, grader: str | None, judge_of: Callable[[str], Judge], on_progress: OnProgress
) -> Replay:
    """Grade what is stored in `folder` again; `judge_of` makes the judge for a grader's name.

    Raises Misuse for a folder without completions or tasks, and for a grader that its files do not
    name.
    """
    name, opening = _settings(folder, grader)
    tasks = _tasks(folder, name)
    judge = judge_of(name)
    await judge.known(name)
    info = await judge.info()
    work, unjudged, without_task = _completions(folder, tasks)
    results: dict[int, Graded | Faulted] = {}
    # Each rubric is asked for by itself.
    for rubric in dict.fromkeys(one.record["rubric"] for one in work):
        alike = [place for place, one in enumerate(work) if one.record["rubric"] == rubric]
        for start in range(0, len(alike), HANDFUL):
            handful = alike[start : start + HANDFUL]
            texts = [
                cleaned(with_opening(opening, text_of(work[place].record["completion"])))
                for place in handful
            ]
            submissions = [
                {"id": str(place), "completion": text, "task": work[place].task}
                for place, text in zip(handful, texts, strict=True)
            ]
            results |= zip(handful, await judge.grade(submissions, rubric), strict=True)
            on_progress("graded again", len(results), len(work))
    changed = [
        _change(one, result)
        for place, one in enumerate(work)
        if isinstance(result := results[place], Graded)
        and abs(result.reward - one.record["reward"]) > ROUNDING
    ]
    return Replay(
        grader=info.grader,
        old_graders=tuple(sorted({str(one.record["grader"]) for one in work})),
        completions=len(work),
        unjudged_before=unjudged,
        without_task=without_task,
        faulted_now=sum(isinstance(result, Faulted) for result in results.values()),
        by_reason=dict(Counter(change.because for change in changed).most_common()),
        changed=tuple(changed),
    )


def _change(one: _Stored, result: Graded) -> Change:
    old, new = one.record, outcome_of(result)
    return Change(
        file=one.file,
        line=one.line,
        prompt_id=str(old["prompt_id"]),
        old_reward=old["reward"],
        new_reward=result.reward,
        old_cause=cause_of(old),
        new_cause=cause_of(new),
        old_grader=str(old["grader"]),
        new_grader=result.grader,
        because=_because(old, new),
        completion=text_of(old["completion"]),
    )


def _because(old: Record, new: Record) -> str:
    if old["passed"] != new["passed"]:
        return "now passes" if new["passed"] else "no longer passes"
    if old["stage"] != new["stage"]:
        return "another stage"
    before, after = ((found.get("tests") or {}).get("passed", 0) for found in (old, new))
    if before != after:
        return "more tests pass" if after > before else "fewer tests pass"
    return "flags" if sorted(old["flags"]) != sorted(new["flags"]) else "form"


# ---------------------------------------------------------------------- what is stored


def _settings(path: Path, grader: str | None) -> tuple[str, str]:
    """The grader and the opening of completions, as the files of the folder name them."""
    folder, run = EvalFolder(path), RunFolder(path)
    named, opening = None, ""
    if not path.is_dir():
        raise Misuse(f"{path}: there is no such folder")
    if folder.plan.exists():
        plan = read_as(EvalPlan, folder.plan, "plan")
        named, opening = plan.grader, plan.opening
    elif run.resolved_config.exists():
        config = read_as(TrainConfig, run.resolved_config, "configuration of a run on rewards")
        named, opening = config.reward.grader or None, config.prompt.opening
    if grader is None and named is None:
        raise Misuse(
            f"{path}: holds neither plan.json nor config.resolved.json with a grader; name it by"
            " --grader"
        )
    if grader is not None and named is not None and grader != named:
        raise Misuse(f"{path}: was judged by the grader {named}, not {grader}")
    return grader or named or "", opening


def _tasks(path: Path, grader: str) -> dict[str, Task]:
    run = RunFolder(path)
    tasks: dict[str, Task] = {}
    for file in (EvalFolder(path).tasks, run.train_tasks, run.held_out_tasks):
        for row in read_rows(file) if file.exists() else ():
            values = row.checked().values
            try:
                tasks[str(values["id"])] = task_class(grader).model_validate(values["task"])
            except KeyError as missing:
                raise Misuse(f"{row.where}: {missing.args[0]}: is missing") from None
            except ValidationError as error:
                raise Misuse(f"{row.where}: {explain(error)}") from None
    if not tasks:
        raise Misuse(
            f"{path}: holds no tasks to judge by: tasks.jsonl, or tasks.train.jsonl and"
            " tasks.held_out.jsonl"
        )
    return tasks


def _completions(path: Path, tasks: Mapping[str, Task]) -> tuple[list[_Stored], int, int]:
    """Every completion with a verdict, file by file; how many have none, and how many belong to no
    task."""
    own = [file for file in (path / "completions.jsonl", EvalFolder(path).turns) if file.exists()]
    files = [*own, *sorted((path / "eval").glob("*.completions.jsonl"))]
    if not files:
        raise Misuse(f"{path}: holds no completions")
    found: list[_Stored] = []
    unjudged = without_task = 0
    for file in files:
        for number, row in enumerate(stored_rows(file), start=1):
            record = dict(row.values)
            reward, task = record.get("reward"), tasks.get(str(record.get("prompt_id")))
            if (
                record.get("fault") is not None
                or not isinstance(reward, int | float)
                or isinstance(reward, bool)
            ):
                unjudged += 1
            elif task is None:
                without_task += 1
            elif isinstance(record.get("completion"), str | list) and isinstance(
                record.get("rubric"), str
            ):
                found.append(_Stored(str(file.relative_to(path)), number, record, task))
            else:
                raise Misuse(f"{row.where}: is no completion of ours")
    return found, unjudged, without_task


# ---------------------------------------------------------------------- the command's part


def main(
    run: Path,
    grader: str | None,
    judge_of: Callable[[str], Judge],
    out: Path,
    *,
    quiet: bool,
    shown: int = 20,
) -> int:
    """Replay a folder and write what changed; the path of that file is printed last.

    Returns 1 when any reward changed, else 3 when any completion could not be judged, else 0.
    Raises Misuse.
    """
    with progress_bar(Console(stderr=True, quiet=quiet)) as on_progress:
        found = asyncio.run(replay(run, grader, judge_of, on_progress))
    write_text(out, found.model_dump_json(by_alias=True, indent=1) + "\n")
    for line in _said(found, shown):
        print(line)
    print(out)
    return EXIT_CHANGED if found.changed else EXIT_FAULTED if found.faulted_now else 0


def _said(found: Replay, shown: int) -> Iterator[str]:
    for change in found.changed[:shown]:
        yield (
            f"{change.file}:{change.line}: {visible(change.prompt_id)}: {change.old_reward:g} -> "
            f"{change.new_reward:g}, {change.because} ({change.old_cause} -> {change.new_cause})"
        )
    if len(found.changed) > shown:
        yield f"and {len(found.changed) - shown} more"
    reasons = ", ".join(f"{count} x {reason}" for reason, count in found.by_reason.items())
    yield f"{len(found.changed)} of {found.completions} rewards changed" + (
        f": {reasons}" if reasons else ""
    )
    yield f"judged by {', '.join(found.old_graders) or 'nobody'}; now by {found.grader}"
    for count, what in (
        (found.faulted_now, "could not be judged now"),
        (found.unjudged_before, "had no verdict and were left alone"),
        (found.without_task, "belong to tasks that are not in the folder and were left alone"),
    ):
        if count:
            yield f"{count} completions {what}"
