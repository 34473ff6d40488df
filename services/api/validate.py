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
from pydantic import ValidationError

from gradus.contract import MAX_BATCH, GradeRequest, RawSubmission
from gradus.descriptions import GraderDescription
from gradus.errors import Misuse, TooLarge
from gradus.tasks.base import TOO_LONG, check_text
from gradus.validation import convert_validation_error
from services.api.parse import parse_json, parse_model, refuse_many_fields, refuse_nan
from services.api.problems import MAX_ERRORS, list_mistakes, make_field_refusal

log = logging.getLogger("gradus.api")

# Values of a task up to which all of its mistakes are listed: each takes some 10 us.
MAX_VALUES = 1000
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
        document = parse_json(data) if isinstance(data, bytes) else data
        if isinstance(document, dict) and isinstance(document.get("submissions"), list):
            document = document | {"submissions": _parse_submissions(document["submissions"])}
        request = parse_model(GradeRequest, document)
        self.validate_tasks([submission.task for submission in request.submissions])
        # After the tasks: the schema's mistake names the field of an infinite number.
        if isinstance(data, bytes):
            refuse_nan(data)
        return request

    def validate_tasks(self, tasks: Sequence[dict[str, Any]]) -> None:
        """Raise Refused for tasks that do not fit the schema, and for texts that are too long, hold
        NUL or are not Unicode, which the schema does not limit.

        The status is 413 when only sizes are wrong, else 422.
        """
        mistakes: list[Mistake] = []
        for index, task in enumerate(tasks):
            top: Path = ("submissions", index, "task")
            n_found = len(mistakes)
            _collect_bad_texts(task, top, mistakes)
            # The validator raises UnicodeEncodeError for texts that are not Unicode.
            if len(mistakes) == n_found and not self._validator.is_valid(task):
                mistakes += self._list_mistakes(task, top)
            if len(mistakes) > MAX_ERRORS:
                break
        _refuse(mistakes)

    def _list_mistakes(self, task: dict[str, Any], top: Path) -> list[Mistake]:
        """Return what does not fit the schema; of a large task the first mistake only, for the
        validator makes all of them before it returns one."""
        if _count_values(task) > MAX_VALUES:
            try:
                self._validator.validate(task)
            except jsonschema_rs.ValidationError as first:
                return list(self._iter_mistakes(first, top))
        mistakes: list[Mistake] = []
        for error in self._validator.iter_errors(task):
            mistakes += self._iter_mistakes(error, top)
        return mistakes

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


def _parse_submissions(items: list[Any]) -> tuple[RawSubmission, ...]:
    """Return the submissions of a request. Raises Refused (413, 422) with the first mistakes."""
    if len(items) > MAX_BATCH:
        message = f"Should have at most {MAX_BATCH} items, not {len(items)}"
        _refuse([Mistake(("submissions",), message, is_size=True)])
    submissions = []
    mistakes: list[Mistake] = []
    for index, item in enumerate(items):
        path: Path = ("submissions", index)
        refuse_many_fields(item, path)
        try:
            submissions.append(RawSubmission.model_validate(item))
        except ValidationError as error:
            is_size = convert_validation_error(error).status == TooLarge.status
            for inner, message in list_mistakes(error):
                mistakes.append(Mistake((*path, *inner), message, is_size))
        if len(mistakes) > MAX_ERRORS:
            break
    _refuse(mistakes)
    return tuple(submissions)


def _refuse(mistakes: Sequence[Mistake]) -> None:
    """Raise Refused if there are mistakes: 413 when only sizes are wrong, else 422."""
    if mistakes:
        only_sizes = all(mistake.is_size for mistake in mistakes)
        status = TooLarge.status if only_sizes else Misuse.status
        raise make_field_refusal(status, [(mistake.path, mistake.message) for mistake in mistakes])


def _collect_bad_texts(value: Any, path: Path, mistakes: list[Mistake]) -> None:
    """Add the texts that the contract refuses, until there are more than an answer lists."""
    if isinstance(value, str):
        try:
            check_text(value)
        except ValueError as error:
            mistakes.append(Mistake(path, str(error), is_size=str(error) == TOO_LONG))
        return
    if not isinstance(value, dict | list):
        return
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(name, str):
            _collect_bad_texts(name, (*path, name), mistakes)
        if inner and isinstance(inner, str | dict | list):
            _collect_bad_texts(inner, (*path, name), mistakes)
        if len(mistakes) > MAX_ERRORS:
            return


def _count_values(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + sum(map(_count_values, value)) if isinstance(value, list) else 1
