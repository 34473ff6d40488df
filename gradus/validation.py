"""Errors of pydantic's validation as messages and as misuse; JSON files of our own, read with
them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gradus.errors import Misuse, TooLarge
from gradus.tasks.base import TOO_LONG

M = TypeVar("M", bound=BaseModel)


def explain(error: ValidationError) -> str:
    """Return one line per mistake: its place and what is wrong there, without the input."""
    lines = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(str(part) for part in item["loc"]) or "input"
        lines.append(f"{place}: {item['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)


def convert_validation_error(error: ValidationError) -> Misuse:
    """Return the misuse that a validation error is: TooLarge when only sizes are wrong, else
    Misuse."""
    sizes = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        sizes.append(item["type"] == "too_long" or TOO_LONG in item["msg"])
    return (TooLarge if sizes and all(sizes) else Misuse)(explain(error))


def read_as(kind: type[M], path: Path, label: str, hint: str = "") -> M:
    """Return the `label` that a JSON file holds. Raises Misuse, with the hint, where this version
    cannot read it."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise Misuse(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise Misuse(
            f"{path}: is no {label} that this version can read: {explain(error)}{hint}"
        ) from None
