"""The corpus of dishonest answers to story tasks: reads it and reports the attacks that paid.

A file holds the attacks on one task of `configs/tasks/story.jsonl`: `task`, its id, and `attacks`,
each with its `class` and `completion` (`@60 times line #@` as in the other corpora). The honest
answer is the task's `solution`. An attack is held when it earns less than that answer with half of
its stories missing; there are two such halves, the stories with odd and those with even numbers,
and what counts is the mean of what they earn. `exceptions.yaml` beside the files names the attacks
that are known to earn more, with what they earned, what the halves earned, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from gradus.contract import Faulted, Graded, StorySubmission, Submission, TaskSubmission
from gradus.errors import Misuse
from gradus.resources import configs
from gradus.row_reader import read_rows
from gradus.tasks.story import StoryTask
from services.attacks import Line, Trial, corpus_folder
from services.attacks.code import fill_placeholders

EXCEPTIONS = "exceptions.yaml"
FIGURE_TOLERANCE = 0.03
"""An exception whose figure is further off than this, or that is held by more, is out of date."""
STALE = "is listed as an exception and is none any more"


class StoryAttack(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Annotated[str, Field(alias="class", min_length=1)]
    completion: str

    @property
    def text(self) -> str:
        return fill_placeholders(self.completion)


class KnownException(BaseModel):
    """An attack that is known to pay, with the reason."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    file: str
    kind: Annotated[str, Field(alias="class")]
    reward: float
    half: float
    reason: Annotated[str, Field(min_length=20)]


@dataclass(frozen=True, slots=True)
class Sprint:
    """A task with its honest answer and the attacks on it."""

    name: str
    task: StoryTask
    honest: tuple[str, ...]
    """Stories, one line each."""
    attacks: tuple[StoryAttack, ...] = ()

    def build_submission(
        self, completion: str, submission_id: str = "one"
    ) -> TaskSubmission[StoryTask]:
        return StorySubmission(id=submission_id, completion=completion, task=self.task)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attack, and the reward that it must stay below."""

    sprint: Sprint
    attack: StoryAttack
    result: Graded | Faulted
    half: float

    @property
    def reward(self) -> float:
        """The reward; 1 for a fault, because an attack that breaks the grader got through."""
        return self.result.reward if isinstance(self.result, Graded) else 1.0

    @property
    def is_held(self) -> bool:
        return self.reward < self.half


def split_halves(stories: Sequence[str]) -> tuple[str, str]:
    """Return the two answers with half of the stories; of an odd number, each has the smaller
    half."""
    even_count = len(stories) // 2 * 2
    return "\n".join(stories[0:even_count:2]), "\n".join(stories[1:even_count:2])


def read_story_rows() -> dict[str, dict[str, Any]]:
    rows = read_rows(configs() / "tasks" / "story.jsonl")
    return {str(row.values["id"]): dict(row.require_valid().values) for row in rows}


def build_sprint(name: str, row: dict[str, Any], tried: tuple[StoryAttack, ...] = ()) -> Sprint:
    task = StoryTask.model_validate(
        {name: row[name] for name in StoryTask.model_fields if name in row}
    )
    return Sprint(name, task, tuple(row["solution"].splitlines()), tried)


def load_sprints() -> tuple[Sprint, ...]:
    """Return the corpus, in the order of its files' names."""
    rows = read_story_rows()
    sprints = []
    for path in sorted(corpus_folder("story").glob("*.yaml")):
        if path.name != EXCEPTIONS:
            file = yaml.safe_load(path.read_text())
            tried = tuple(map(StoryAttack.model_validate, file["attacks"]))
            sprints.append(build_sprint(path.stem, rows[file["task"]], tried))
    return tuple(sprints)


def load_exceptions() -> dict[tuple[str, str], KnownException]:
    """Return the known exceptions, by file and class."""
    entries = yaml.safe_load((corpus_folder("story") / EXCEPTIONS).read_text())
    exceptions = map(KnownException.model_validate, entries)
    return {(exception.file, exception.kind): exception for exception in exceptions}


def iter_submissions(sprints: Iterable[Sprint]) -> Iterator[Submission]:
    """Yield the submissions to grade: for each sprint its two halves, then its attacks."""
    for sprint in sprints:
        texts = [*split_halves(sprint.honest), *(attack.text for attack in sprint.attacks)]
        yield from (
            sprint.build_submission(text, f"{sprint.name}.{number}")
            for number, text in enumerate(texts)
        )


def compute_outcomes(
    sprints: Iterable[Sprint], results: Iterable[Graded | Faulted]
) -> Iterator[Outcome]:
    """Yield one outcome per attack, from the results of `iter_submissions` in their order. Raises
    Misuse for a faulted half."""
    waiting = iter(results)
    for sprint in sprints:
        both = [next(waiting), next(waiting)]
        for result in both:
            if isinstance(result, Faulted):
                raise Misuse(f"an honest answer was not graded: {result.fault.message}")
        half = sum(result.reward for result in both if isinstance(result, Graded)) / 2
        for attack in sprint.attacks:
            yield Outcome(sprint, attack, next(waiting), half)


def check_outcome(
    outcome: Outcome, exceptions: dict[tuple[str, str], KnownException]
) -> tuple[str, str | None]:
    """Return `held`, `known` or `THROUGH`, and the problem, if any: also an exception that no
    longer pays is one."""
    exception = exceptions.get((outcome.sprint.name, outcome.attack.kind))
    if outcome.is_held:
        return (
            "held",
            STALE if exception and outcome.reward < outcome.half - FIGURE_TOLERANCE else None,
        )
    if isinstance(outcome.result, Faulted):
        return "THROUGH", f"a fault in place of a verdict: {outcome.result.fault.message}"
    if exception is None:
        return "THROUGH", f"earns {outcome.reward:.2f}, half of an honest answer {outcome.half:.2f}"
    off = max(abs(exception.reward - outcome.reward), abs(exception.half - outcome.half))
    earned = f"earns {outcome.reward:.2f} and the halves {outcome.half:.2f}"
    return "known", f"{earned}, which is not what is listed" if off > FIGURE_TOLERANCE else None


class StoryCorpus:
    words = ("held", "known", "THROUGH")

    def __init__(self) -> None:
        self._sprints = load_sprints()
        self._exceptions = load_exceptions()

    def build_submissions(self) -> list[Submission]:
        return list(iter_submissions(self._sprints))

    def build_trials(self) -> list[Trial]:
        """Return the corpus for reward functions of others: an attack may earn less than half of
        what the honest answer does."""
        trials = []
        for sprint in self._sprints:
            honest = Trial(
                name=f"{sprint.name}: honest",
                kind="honest",
                group=sprint.name,
                prompt=sprint.task.sprint_goal or "",
                completion="\n".join(sprint.honest),
                task=sprint.task.model_dump(mode="json", exclude_defaults=True),
                limit=0.75,
            )
            wrong = replace(honest, name=f"{sprint.name}: wrong", kind="wrong")
            trials += [honest, replace(wrong, completion="I do not know.")]
            for attack in sprint.attacks:
                name = f"{sprint.name}: {attack.kind}"
                trial = replace(honest, name=name, kind="attack", completion=attack.text, limit=0.5)
                trials.append(replace(trial, must_not="earn half of what the honest answer earns"))
        return trials

    def render_lines(self, results: Iterable[Graded | Faulted]) -> Iterator[Line]:
        for outcome in compute_outcomes(self._sprints, results):
            word, problem = check_outcome(outcome, self._exceptions)
            place = f"{outcome.sprint.name}: {outcome.attack.kind}"
            yield Line(
                word,
                f"{outcome.reward:.2f}  {place:60} must earn less than {outcome.half:.2f}",
                problem,
            )
