"""Third step of a request: its tasks, by the JSON Schema that their grader announced.

Messages name the field and what it should be, and never repeat a value: values are tests and
prompts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind
from pydantic import ValidationError

from gradus.contract import MAX_BATCH, GradeRequest, RawSubmission
from gradus.descriptions import GraderDescription
from gradus.errors import Misuse, TooLarge
from gradus.tasks.base import TOO_LONG, check_text
from gradus.validation import convert_validation_error
from services.api.json_cursor import JsonCursor
from services.api.packed import PackedRequest, PackedSubmission, pack_submission
from services.api.parse import (
    MAX_FIELDS,
    bound_value,
    iter_fields,
    parse_json,
    parse_model,
    refuse_many_fields,
    refuse_nan,
)
from services.api.problems import MAX_ERRORS, Refused, list_mistakes, make_field_refusal

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

    def __reduce__(self) -> tuple[Any, ...]:
        """The process that reads large bodies compiles a schema once."""
        return _know_grader, (self.description.model_dump_json(),)

    def parse_request(self, data: bytes) -> PackedRequest:
        """Return a request of JSON, with valid tasks. Raises a Misuse: 400, 413, 422."""
        packer = _Packer(self)
        request = parse_model(GradeRequest, _read_document(data, packer))
        _refuse(packer.mistakes)
        return PackedRequest(request.rubric, request.deadline_s, packer.packed)

    def pack_request(
        self, submissions: Iterable[dict[str, Any]], deadline_s: float
    ) -> PackedRequest:
        """Return a request of submissions, each made into texts before the next is asked for.
        Raises a Misuse: 413, 422."""
        packer = _Packer(self)
        for submission in submissions:
            packer.add(submission)
        _refuse(packer.mistakes)
        return PackedRequest(None, deadline_s, packer.packed)

    def find_mistakes(self, task: dict[str, Any], top: Path) -> list[Mistake]:
        """Return what in a task, whose path is `top`, does not fit the schema, and texts that are
        too long, hold NUL or are not Unicode, which the schema does not limit."""
        mistakes: list[Mistake] = []
        _collect_bad_texts(task, top, mistakes)
        # The validator raises UnicodeEncodeError for texts that are not Unicode.
        if not mistakes and not self._validator.is_valid(task):
            mistakes += self._list_mistakes(task, top)
        return mistakes

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


@lru_cache
def _know_grader(description: str) -> KnownGrader:
    return KnownGrader(GraderDescription.model_validate_json(description))


def _has_other_type(branch: Sequence[jsonschema_rs.ValidationError], depth: int) -> bool:
    """Return whether the value at `depth` does not have the type of an alternative."""
    return any(
        isinstance(error.kind, Kind.Type) and len(error.instance_path) == depth for error in branch
    )


class _Packer:
    """The submissions of one request, each validated and made into texts before the next is read,
    and their mistakes."""

    def __init__(self, grader: KnownGrader) -> None:
        self._grader = grader
        self._ids: set[str] = set()
        self._n_read = 0
        self.packed: list[PackedSubmission] = []
        self.mistakes: list[Mistake] = []

    def add(self, item: Any, text: bytes = b"") -> None:
        """Take the next submission. `text`: its JSON, if it was one. Raises Refused (413, 422) past
        the bounds of a batch and of mistakes, and (400, 422) for numbers that are none."""
        path: Path = ("submissions", self._n_read)
        self._n_read += 1
        if self._n_read > MAX_BATCH:
            message = f"Should have at most {MAX_BATCH} items"
            _refuse([Mistake(path[:1], message, is_size=True)])
        refuse_many_fields(item, path)
        try:
            submission = RawSubmission.model_validate(item)
        except ValidationError as error:
            is_size = convert_validation_error(error).status == TooLarge.status
            for inner, message in list_mistakes(error):
                self.mistakes.append(Mistake((*path, *inner), message, is_size))
        else:
            self._add_valid(submission, path, text)
        if len(self.mistakes) > MAX_ERRORS:
            _refuse(self.mistakes)

    def _add_valid(self, submission: RawSubmission, path: Path, text: bytes) -> None:
        name = submission.id
        if name in self._ids:
            message = f"submission id {name!r} occurs twice; ids must be unique in a request"
            self.mistakes.append(Mistake((), message))
        self._ids.add(name)
        mistakes = self._grader.find_mistakes(submission.task, (*path, "task"))
        self.mistakes += mistakes
        if mistakes:
            return
        # After the task: the schema's mistake names the field of an infinite number.
        refuse_nan(text)
        try:
            self.packed.append(pack_submission(submission))
        except ValueError:
            raise Refused(422, f"submission {name!r}: a number is out of range") from None


def _read_document(data: bytes, packer: _Packer) -> Any:
    """Return the value of a request's JSON, with its submissions in `packer`. Raises a Misuse."""
    cursor = JsonCursor(data)
    if cursor.peek() != b"{":
        return _parse_value(data)
    document: dict[str, Any] = {}
    try:
        for name in iter_fields(cursor, parse_json, MAX_FIELDS):
            if name == "submissions" and cursor.peek() == b"[":
                document[name] = ()
                for text in cursor.iter_items():
                    packer.add(_parse_value(text), text)
            else:
                document[name] = _parse_value(cursor.read_value())
    except ValueError as error:
        raise make_field_refusal(400, [((), f"Invalid JSON: {error}")]) from None
    return document


def _parse_value(text: bytes) -> Any:
    """Return the value of one submission, or of a field beside them. Raises a Misuse: 400, 413."""
    bound_value(text)
    return parse_json(text)


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
