"""The JSON Schema that a grader announced for its tasks, compiled: tasks are refused before they are queued.

Messages name the field and what it should be, and never repeat a value: values are tests and prompts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, reduce
from typing import Any, NamedTuple, cast

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind

from gradus.contract import RawSubmission
from gradus.tasks.base import MAX_TEXT_CHARS, TOO_LONG, clean

log = logging.getLogger("gradus.api")

MAX_ESCAPED = 1000
"""Escaped quotes that are passed over in the search for the end of a text."""

Path = tuple[str | int, ...]


class Mistake(NamedTuple):
    at: Path
    message: str
    is_size: bool = False


class TaskSchema:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        """A schema that cannot be compiled refuses nothing: the worker that announced it judges its tasks anyway."""
        self._schema = schema
        self._validator: jsonschema_rs.Validator | None = None
        try:
            self._validator = jsonschema_rs.validator_for(dict(schema), mask="the value", offline=True)
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            log.warning("a grader announced a task schema that cannot be compiled: %s", error)

    def mistakes(self, submissions: Iterable[RawSubmission], body: bytes) -> Iterator[Mistake]:
        """What is wrong with the tasks of a request; `body`: its bytes."""
        suspicious = _may_hold_long_text(body) or b"\\u0000" in body  # JSON writes NUL in no other way
        for index, submission in enumerate(submissions):
            task = submission.task
            if self._validator is not None and not self._validator.is_valid(task):
                for error in self._validator.iter_errors(task):
                    yield from self._told(error, ("submissions", index, "task"))
            if suspicious:
                yield from _bad_texts(task, ("submissions", index, "task"))

    def _told(self, error: jsonschema_rs.ValidationError, top: Path) -> Iterator[Mistake]:
        at, kind = (*top, *error.instance_path), error.kind
        if isinstance(kind, Kind.Required):
            yield Mistake((*at, str(kind.property)), "Field required")
        elif isinstance(kind, Kind.AdditionalProperties):
            around: Any = reduce(lambda node, key: node[key], error.schema_path[:-1], cast(Any, self._schema))
            patterns = " or ".join(around.get("patternProperties", ()))
            message = f"Names here match {patterns}" if patterns else "Extra inputs are not permitted"
            yield from (Mistake((*at, name), message) for name in kind.unexpected)
        elif isinstance(kind, Kind.AnyOf | Kind.OneOfNotValid):
            yield from self._nearest(kind.context, error, top)
        elif isinstance(kind, Kind.MaxItems):
            yield Mistake(at, f"Should have at most {kind.limit} items", is_size=True)
        else:
            yield Mistake(at, error.message)

    def _nearest(
        self, branches: list[list[jsonschema_rs.ValidationError]], error: jsonschema_rs.ValidationError, top: Path
    ) -> Iterator[Mistake]:
        """The mistakes by the first alternative whose type fits, or by the first of all."""
        fitting = [
            branch
            for branch in branches
            if not any(
                isinstance(one.kind, Kind.Type) and len(one.instance_path) == len(error.instance_path) for one in branch
            )
        ]
        for one in [*fitting, *branches][0]:
            yield from self._told(one, top)


@lru_cache(maxsize=64)
def _compiled(text: str) -> TaskSchema:
    return TaskSchema(json.loads(text))


def compiled(schema: Mapping[str, Any]) -> TaskSchema:
    """The compiled schema; the same schema is compiled once."""
    return _compiled(json.dumps(schema, sort_keys=True))


def _may_hold_long_text(body: bytes) -> bool:
    """Whether some `MAX_TEXT_CHARS` bytes hold no quote that could end a text: looks at a few quotes per megabyte."""
    start = 0
    while start + MAX_TEXT_CHARS < len(body):
        at = body.rfind(b'"', start, start + MAX_TEXT_CHARS + 1)
        for _ in range(MAX_ESCAPED):
            if at <= start or body[at - 1 : at] != b"\\":
                break
            at = body.rfind(b'"', start, at)
        else:
            return True
        if at < start:
            return True
        start = at + 1
    return False


def _bad_texts(value: Any, at: Path) -> Iterator[Mistake]:
    if isinstance(value, str):
        try:
            clean(value)
        except ValueError as error:
            yield Mistake(at, str(error), is_size=str(error) == TOO_LONG)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _bad_texts(name, (*at, name))
            yield from _bad_texts(inner, (*at, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _bad_texts(inner, (*at, index))
