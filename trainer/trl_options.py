"""Checks options against the configuration classes of TRL and transformers: names, types, finite numbers. Sets none."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from trainer.config import nearest


def checked_options(
    class_name: str,
    options: Mapping[str, Any],
    section: tuple[str, ...],
    mistakes: list[str],
    set_elsewhere: Mapping[str, str],
) -> dict[str, Any]:
    """The options with their values in the types that TRL or transformers declare; mistakes are added to `mistakes`.

    `set_elsewhere` are options that may not be given here, and what to do instead.
    """
    checked = {}
    for name, value in options.items():
        where = set_elsewhere.get(name)
        problem, checked[name] = _checked(class_name, name, value, where)
        if problem:
            mistakes.append(f"{'.'.join((*section, name))}: {problem}")
    return checked


def _checked(class_name: str, name: str, value: Any, where: str | None) -> tuple[str | None, Any]:
    hints = _hints(class_name)
    if name not in hints:
        library = "TRL" if class_name != "TrainingArguments" else "transformers"
        return f"unknown key{nearest(name, list(hints))} ({class_name} of {library} has no such option)", value
    if where is not None:
        return f"not set here: {where}", value
    if isinstance(value, bool) and hints[name] in (int, float):
        return f"{str(value).lower()} is not a number", value
    if typing.get_origin(hints[name]) is list and isinstance(value, str):
        value = [value]  # one name where several may stand
    if unknown := _unknown_inside(hints[name], value):
        return f"{', '.join(unknown)}: unknown key in it", value
    try:
        return None, _adapter(class_name, name).validate_python(value)
    except ValidationError as error:
        messages = dict.fromkeys(item["msg"] for item in error.errors(include_url=False, include_context=False))
        return f"{value!r}: {' or '.join(messages)}", value


def _unknown_inside(hint: Any, value: Any) -> list[str]:
    """Keys of a mapping for an option that is an object, `parallelism_config`; pydantic would drop them in silence."""
    kinds = [kind for kind in typing.get_args(hint) if dataclasses.is_dataclass(kind)]
    if not kinds or not isinstance(value, Mapping):
        return []
    known = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    return sorted(str(key) for key in value if key not in known)


@functools.cache
def _hints(class_name: str) -> dict[str, Any]:
    import transformers
    import trl

    cls = getattr(trl if hasattr(trl, class_name) else transformers, class_name)
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


@functools.cache
def _adapter(class_name: str, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_hints(class_name)[name], config=ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False))
