"""`gradus replay`: grades the stored completions of a run or an evaluation again and tells every changed reward.

Nothing is sampled and no stored file is changed. Each completion is judged under the rubric that it was judged under.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gradus.console import visible
from gradus.contract import Faulted, Graded, GraderName
from gradus.errors import Misuse
from gradus.row_reader import read_rows
from gradus.tasks import task_class
from gradus.tasks.base import Task
from gradus.validation import explain
from trainer.config import TrainConfig
from trainer.evaluate.intervals import Part
from trainer.evaluate.judging import Judge
from trainer.evaluate.plan import Plan
from trainer.evaluate.store import EvalFolder, stored_rows, write_text
from trainer.evaluate.verdicts import cause_of
from trainer.rewards import Record, clean, outcome_of, text_of, with_opening
from trainer.run_folder import RunFolder

ROUNDING = 1e-6
"""Rewards are rounded to this many places on the wire."""
HANDFUL = 256
OnProgress = Callable[[int, int], None]


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
    """What changed with the reward: see `BECAUSE`."""
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
    """Of tasks that the folder does not hold; left alone."""
    faulted_now: int
    by_reason: dict[str, int]
    changed: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class _Stored:
    """One stored completion, ready to be judged again."""

    file: str
    line: int
    record: Record
    task: Task
    opening: str


BECAUSE = ("now passes", "no longer passes", "another stage", "more tests pass", "fewer tests pass", "flags", "form")
"""Reasons of a change, the first that holds: `form` is all else, as style and weights of the parts."""


def replay(folder: Path, grader: str | None, judge_of: Callable[[str], Judge], on_progress: OnProgress) -> Replay:
    """Grade what is stored in `folder` again; `judge_of` makes the judge for a grader's name.

    Raises Misuse for a folder without completions or tasks, and for a grader that its files do not name.
    """
    stored = _Folder(folder, grader)
    judge = judge_of(stored.grader)
    return asyncio.run(_replayed(stored, judge, on_progress))


async def _replayed(stored: _Folder, judge: Judge, on_progress: OnProgress) -> Replay:
    await judge.known(stored.grader)
    info = await judge.info()
    work = list(stored.completions())
    changed: list[Change] = []
    faulted = 0
    for start in range(0, len(work), HANDFUL):
        handful = work[start : start + HANDFUL]
        for one, result in zip(handful, await _judged(handful, judge), strict=True):
            faulted += isinstance(result, Faulted)
            if isinstance(result, Graded) and abs(result.reward - one.record["reward"]) > ROUNDING:
                changed.append(_change(one, result))
        on_progress(start + len(handful), len(work))
    return Replay(
        grader=info.grader,
        old_graders=tuple(sorted({str(one.record["grader"]) for one in work})),
        completions=len(work),
        unjudged_before=stored.unjudged,
        without_task=stored.without_task,
        faulted_now=faulted,
        by_reason=dict(Counter(change.because for change in changed).most_common()),
        changed=tuple(changed),
    )


async def _judged(handful: list[_Stored], judge: Judge) -> list[Graded | Faulted]:
    """Results in order; each rubric is asked for by itself."""
    results: dict[int, Graded | Faulted] = {}
    for rubric in dict.fromkeys(one.record["rubric"] for one in handful):
        places = [place for place, one in enumerate(handful) if one.record["rubric"] == rubric]
        found = await judge.grade([_submission(handful[place], place) for place in places], rubric)
        results |= dict(zip(places, found, strict=True))
    return [results[place] for place in range(len(handful))]


def _submission(one: _Stored, place: int) -> dict[str, Any]:
    text = text_of(one.record["completion"])
    return {"id": str(place), "completion": clean(with_opening(one.opening, text)), "task": one.task}


def _change(one: _Stored, result: Graded) -> Change:
    new = outcome_of(result)
    return Change(
        file=one.file,
        line=one.line,
        prompt_id=str(one.record["prompt_id"]),
        old_reward=one.record["reward"],
        new_reward=result.reward,
        old_cause=cause_of(one.record),
        new_cause=cause_of(new),
        old_grader=str(one.record["grader"]),
        new_grader=result.grader,
        because=_because(one.record, new),
        completion=text_of(one.record["completion"]),
    )


def _because(old: Record, new: Record) -> str:
    if old["passed"] != new["passed"]:
        return "now passes" if new["passed"] else "no longer passes"
    if old["stage"] != new["stage"]:
        return "another stage"
    tests = [(found.get("tests") or {}).get("passed", 0) for found in (old, new)]
    if tests[0] != tests[1]:
        return "more tests pass" if tests[1] > tests[0] else "fewer tests pass"
    return "flags" if sorted(old["flags"]) != sorted(new["flags"]) else "form"


# ------------------------------------------------------------------------------------------------------ what is stored


class _Folder:
    """The stored completions of a run folder or of an evaluation's."""

    def __init__(self, path: Path, grader: str | None) -> None:
        if not path.is_dir():
            raise Misuse(f"{path}: there is no such folder")
        self._path = path
        self.unjudged = 0
        self.without_task = 0
        named, self._opening = _settings(path)
        if grader is None and named is None:
            raise Misuse(f"{path}: holds neither plan.json nor config.resolved.json with a grader; name it by --grader")
        if grader is not None and named is not None and grader != named:
            raise Misuse(f"{path}: was judged by the grader {named}, not {grader}")
        self.grader = grader or named or ""
        self._tasks = dict(_tasks(path, self.grader))
        if not self._tasks:
            raise Misuse(
                f"{path}: holds no tasks to judge by: tasks.jsonl, or tasks.train.jsonl and tasks.held_out.jsonl"
            )

    def completions(self) -> Iterator[_Stored]:
        """Every completion that has a verdict, file by file."""
        files = [*self._files()]
        if not files:
            raise Misuse(f"{self._path}: holds no completions")
        for file in files:
            for number, row in enumerate(stored_rows(file), start=1):
                one = self._stored(file, number, dict(row.values), row.where)
                if one is not None:
                    yield one

    def _files(self) -> Iterator[Path]:
        for own in (self._path / "completions.jsonl", EvalFolder(self._path).turns):
            yield from [own] if own.exists() else []
        yield from sorted((self._path / "eval").glob("*.completions.jsonl"))

    def _stored(self, file: Path, number: int, record: Record, where: str) -> _Stored | None:
        if not _has_verdict(record):
            self.unjudged += 1
            return None
        task = self._tasks.get(str(record.get("prompt_id")))
        if task is None:
            self.without_task += 1
            return None
        if not isinstance(record.get("completion"), (str, list)) or not isinstance(record.get("rubric"), str):
            raise Misuse(f"{where}: is no completion of ours")
        return _Stored(str(file.relative_to(self._path)), number, record, task, self._opening)


def _has_verdict(record: Mapping[str, Any]) -> bool:
    reward = record.get("reward")
    return record.get("fault") is None and isinstance(reward, int | float) and not isinstance(reward, bool)


def _settings(path: Path) -> tuple[str | None, str]:
    """The grader and the opening of completions, as the folder's own files name them."""
    folder, run = EvalFolder(path), RunFolder(path)
    try:
        if folder.plan.exists():
            plan = Plan.model_validate_json(folder.plan.read_bytes())
            return plan.grader, plan.opening
        if run.resolved_config.exists():
            config = TrainConfig.model_validate_json(run.resolved_config.read_bytes())
            return config.reward.grader if config.reward.grader else None, config.prompt.opening
    except ValidationError as error:
        raise Misuse(f"{path}: its settings cannot be read by this version: {explain(error)}") from None
    return None, ""


def _tasks(path: Path, grader: GraderName) -> Iterator[tuple[str, Task]]:
    run = RunFolder(path)
    for file in (EvalFolder(path).tasks, run.train_tasks, run.held_out_tasks):
        for row in read_rows(file) if file.exists() else ():
            values = row.checked().values
            try:
                yield str(values["id"]), task_class(grader).model_validate(values["task"])
            except KeyError as missing:
                raise Misuse(f"{row.where}: {missing.args[0]}: is missing") from None
            except ValidationError as error:
                raise Misuse(f"{row.where}: {explain(error)}") from None


# ------------------------------------------------------------------------------------------------- the command's part


def main(
    run: Path, grader: str | None, judge_of: Callable[[str], Judge], out: Path, *, quiet: bool, shown: int = 20
) -> int:
    """Replay a folder and write what changed; the path of that file is printed last.

    Returns 1 when any reward changed, else 3 when any completion could not be judged, else 0. Raises Misuse.
    """
    console = Console(stderr=True)
    columns = (TextColumn("grading again"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        found = replay(run, grader, judge_of, lambda done, total: progress.update(bar, completed=done, total=total))
    write_text(out, found.model_dump_json(by_alias=True, indent=1) + "\n")
    for line in _said(found, shown):
        print(line)
    print(out)
    return EXIT_CHANGED if found.changed else EXIT_FAULTED if found.faulted_now else 0


EXIT_CHANGED, EXIT_FAULTED = 1, 3


def _said(found: Replay, shown: int) -> Iterator[str]:
    for change in found.changed[:shown]:
        yield (
            f"{change.file}:{change.line}: {visible(change.prompt_id)}: {change.old_reward:g} -> "
            f"{change.new_reward:g}, {change.because} ({change.old_cause} -> {change.new_cause})"
        )
    if len(found.changed) > shown:
        yield f"and {len(found.changed) - shown} more"
    reasons = ", ".join(f"{count} x {reason}" for reason, count in found.by_reason.items())
    yield f"{len(found.changed)} of {found.completions} rewards changed" + (f": {reasons}" if reasons else "")
    yield f"judged by {', '.join(found.old_graders) or 'nobody'}; now by {found.grader}"
    for count, what in (
        (found.faulted_now, "could not be judged now"),
        (found.unjudged_before, "had no verdict and were left alone"),
        (found.without_task, "belong to tasks that are not in the folder and were left alone"),
    ):
        if count:
            yield f"{count} completions {what}"
