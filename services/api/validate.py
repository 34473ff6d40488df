"""Third step of a request: its tasks, by the JSON Schema that their grader announced.

Messages name the field and what it should be, and never repeat a value: values are tests and
prompts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind

from gradus.contract import GradeRequest
from gradus.descriptions import GraderDescription
from gradus.errors import Misuse, TooLarge
from gradus.tasks.base import TOO_LONG, check_text
from services.api.parse import parse_model, refuse_lax_json
from services.api.problems import make_field_refusal

log = logging.getLogger("gradus.api")

Path = tuple[str | int, ...]


class Mistake(NamedTuple):
    path: Path
    message: str
    is_size: bool = False


class KnownGrader:
    """A grader's description, and the validator of requests to it."""

    def __init__(self, description: GraderDescription) -> None:
        """A schema that cannot be compiled accepts every task: the worker that announced it
        validates tasks too."""
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

    def parse_request(self, data: bytes | dict[str, Any]) -> GradeRequest:
        """Return a request of JSON or of an object, with valid tasks. Raises a Misuse: 400, 413,
        422."""
        request = parse_model(GradeRequest, data)
        self.validate_tasks([submission.task for submission in request.submissions])
        # After the tasks: the schema's mistake names the field of an infinite number.
        if isinstance(data, bytes):
            refuse_lax_json(data)
        return request

    def validate_tasks(self, tasks: Sequence[dict[str, Any]]) -> None:
        """Raise Refused for tasks that do not fit the schema, and for texts that are too long or
        hold NUL, which the schema does not limit.

        The status is 413 when only sizes are wrong, else 422.
        """
        mistakes: list[Mistake] = []
        for index, task in enumerate(tasks):
            top: Path = ("submissions", index, "task")
            for error in self._validator.iter_errors(task):
                mistakes += self._iter_mistakes(error, top)
            mistakes += _find_bad_texts(task, top)
        if mistakes:
            only_sizes = all(mistake.is_size for mistake in mistakes)
            status = TooLarge.status if only_sizes else Misuse.status
            raise make_field_refusal(
                status, [(mistake.path, mistake.message) for mistake in mistakes]
            )

    def _iter_mistakes(self, error: jsonschema_rs.ValidationError, top: Path) -> Iterator[Mistake]:
        path = (*top, *error.instance_path)
        kind = error.kind
        if isinstance(kind, Kind.Required):
            yield Mistake((*path, str(kind.property)), "Field required")
        elif isinstance(kind, Kind.AdditionalProperties):
            schema: Any = self.description.task_schema
            for key in error.schema_path[:-1]:
                schema = schema[key]
            message = "Extra inputs are not permitted"
            patterns = schema.get("patternProperties")
            if patterns:
                message = f"Names here match {' or '.join(patterns)}"
            for name in kind.unexpected:
                yield Mistake((*path, name), message)
        elif isinstance(kind, Kind.AnyOf | Kind.OneOfNotValid):
            # Mistakes by the first alternative whose type fits, or by the first of all.
            depth = len(error.instance_path)
            for inner_error in min(kind.context, key=lambda branch: _has_other_type(branch, depth)):
                yield from self._iter_mistakes(inner_error, top)
        elif isinstance(kind, Kind.Pattern) and kind.pattern == r"\S":
            yield Mistake(path, "Should be more than white space")
        elif isinstance(kind, Kind.MaxItems):
            yield Mistake(path, f"Should have at most {kind.limit} items", is_size=True)
        else:
            yield Mistake(path, error.message)


def _has_other_type(branch: Sequence[jsonschema_rs.ValidationError], depth: int) -> bool:
    """Return whether the value at `depth` does not have the type of an alternative."""
    return any(
        isinstance(error.kind, Kind.Type) and len(error.instance_path) == depth for error in branch
    )


def _find_bad_texts(value: Any, path: Path) -> Iterator[Mistake]:
    if isinstance(value, str):
        try:
            check_text(value)
        except ValueError as error:
            yield Mistake(path, str(error), is_size=str(error) == TOO_LONG)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _find_bad_texts(name, (*path, name))
            yield from _find_bad_texts(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _find_bad_texts(inner, (*path, index))
