"""A known grader: its description, and the JSON Schema of its tasks, compiled to refuse tasks
before they are queued.

Messages name the field and what it should be, and never repeat a value: values are tests and
prompts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple, cast

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind

from gradus.descriptions import GraderDescription
from gradus.errors import Misuse, TooLarge
from gradus.tasks.base import TOO_LONG, check_text
from services.api.problems import make_field_refusal

log = logging.getLogger("gradus.api")

Path = tuple[str | int, ...]


class Mistake(NamedTuple):
    at: Path
    message: str
    is_size: bool = False


class KnownGrader:
    def __init__(self, description: GraderDescription) -> None:
        """A schema that cannot be compiled refuses nothing: the worker that announced it judges its
        tasks anyway."""
        self.description = description
        try:
            self._validator = jsonschema_rs.validator_for(
                description.task_schema, mask="the value", offline=True
            )
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            log.warning(
                "the %s grader announced a task schema that cannot be compiled: %s",
                description.name,
                error,
            )
            self._validator = jsonschema_rs.validator_for(True)

    def refuse_mistakes(self, tasks: Sequence[dict[str, Any]]) -> None:
        """Raise Refused for what is wrong with `tasks` by the schema, and for texts that are too
        long or hold NUL, which it does not limit.

        The status is 413 when only sizes are wrong, else 422.
        """
        mistakes: list[Mistake] = []
        for index, task in enumerate(tasks):
            top: Path = ("submissions", index, "task")
            for error in self._validator.iter_errors(task):
                mistakes += self._iter_mistakes(error, top)
            mistakes += _find_bad_texts(task, top)
        if mistakes:
            status = (
                TooLarge.status if all(mistake.is_size for mistake in mistakes) else Misuse.status
            )
            raise make_field_refusal(
                status, [(mistake.at, mistake.message) for mistake in mistakes]
            )

    def _iter_mistakes(self, error: jsonschema_rs.ValidationError, top: Path) -> Iterator[Mistake]:
        at = (*top, *error.instance_path)
        kind = error.kind
        if isinstance(kind, Kind.Required):
            yield Mistake((*at, str(kind.property)), "Field required")
        elif isinstance(kind, Kind.AdditionalProperties):
            around: Any = reduce(
                lambda node, key: node[key],
                error.schema_path[:-1],
                cast(Any, self.description.task_schema),
            )
            patterns = " or ".join(around.get("patternProperties", ()))
            message = (
                f"Names here match {patterns}" if patterns else "Extra inputs are not permitted"
            )
            yield from (Mistake((*at, name), message) for name in kind.unexpected)
        elif isinstance(kind, Kind.AnyOf | Kind.OneOfNotValid):
            # Mistakes by the first alternative whose type fits, or by the first of all.
            depth = len(error.instance_path)
            for inner_error in min(kind.context, key=lambda branch: _has_other_type(branch, depth)):
                yield from self._iter_mistakes(inner_error, top)
        elif isinstance(kind, Kind.Pattern) and kind.pattern == r"\S":
            yield Mistake(at, "Should be more than white space")
        elif isinstance(kind, Kind.MaxItems):
            yield Mistake(at, f"Should have at most {kind.limit} items", is_size=True)
        else:
            yield Mistake(at, error.message)


def _has_other_type(branch: Sequence[jsonschema_rs.ValidationError], depth: int) -> bool:
    """Return whether the value at `depth` does not have the type of an alternative."""
    return any(
        isinstance(error.kind, Kind.Type) and len(error.instance_path) == depth for error in branch
    )


def _find_bad_texts(value: Any, at: Path) -> Iterator[Mistake]:
    if isinstance(value, str):
        try:
            check_text(value)
        except ValueError as error:
            yield Mistake(at, str(error), is_size=str(error) == TOO_LONG)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _find_bad_texts(name, (*at, name))
            yield from _find_bad_texts(inner, (*at, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _find_bad_texts(inner, (*at, index))
