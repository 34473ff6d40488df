"""For each option of TRL's and transformers' configuration classes, a value that a YAML file may
have."""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any

EXAMPLES = {
    bool: True,
    int: 3,
    float: 0.25,
    str: "some text",
    dict: {"some": "value"},
    list: ["some text"],
}
SPECIAL: dict[str, Any] = {
    "loss_type": "cispo",
    "pad_to_multiple_of": 8,
    "liger_kernel_config": {"rope": True},
    "parallelism_config": {"tp_size": 2},
    "transformers_continuous_batching_config": {"max_batch_tokens": 512},
}


def example_of(hint: Any) -> Any:
    """A value of this type."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint)).value
    origin = typing.get_origin(hint) or hint
    if origin is typing.Literal:
        return typing.get_args(hint)[0]
    if origin is tuple:
        return [example_of(kind) for kind in typing.get_args(hint)]
    if origin is list and typing.get_args(hint):
        return [example_of(typing.get_args(hint)[0])]
    if origin in (typing.Union, types.UnionType):
        return example_of(next(kind for kind in typing.get_args(hint) if kind is not type(None)))
    return EXAMPLES[origin]


def example_for(name: str, hint: Any) -> Any:
    """A value for the option of this name, whose kind a type alone does not always tell."""
    if name == "loss_type" and hint is not str:
        return example_of(hint)
    return SPECIAL[name] if name in SPECIAL else example_of(hint)
