"""Packages and crates that tasks require and a grader lacks: found before a run, by grading one
task of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gradus.contract import Faulted, Graded, GraderName, Submission, submission_class
from trainer.data.tasks import Example

FIELDS = ("packages", "dependencies")
"""Fields of tasks that name what a grader has to have."""


def lacking(
    examples: Iterable[Example],
    grader: GraderName,
    grade: Callable[[Sequence[Submission]], Iterable[Graded | Faulted]],
) -> list[str]:
    """What is wrong, for each set of requirements that the grader lacks, with the first task that
    has it."""
    first: dict[tuple[str, ...], Example] = {}
    for example in examples:
        names = tuple(sorted(name for field in FIELDS for name in getattr(example.task, field, ())))
        if names:
            first.setdefault(names, example)
    asked = [  # an empty completion gets its verdict before packages and crates are looked for
        submission_class(grader).model_validate(
            {"id": one.id, "completion": one.solution or "x", "task": one.task}
        )
        for one in first.values()
    ]
    return [
        f"task {result.id!r} needs {', '.join(names)}: {result.fault.message}"
        for names, result in zip(first, grade(asked) if asked else (), strict=True)
        if isinstance(result, Faulted) and not result.fault.retryable
    ]
