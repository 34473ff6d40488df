"""The preference grader's configuration: `configs/graders/preference.yaml`, and
`GRADUS_PREFERENCE_*` in its place.

What can change a score or a reward is part of the grader's revision; where and how fast it is
computed is not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from gradus.errors import Misuse
from gradus.validation import explain
from services.graders.base.config_loader import GraderConfig, Positive, read_settings

PREFIX = "GRADUS_PREFERENCE_"
Finite = Annotated[float, Field(allow_inf_nan=False)]


class PreferenceConfig(GraderConfig):
    model: str | None = None
    """The final folder of a run of `gradus train reward`, any such folder, or a name on the hub."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the weights. auto: as the trainer loads reward models, bfloat16 on CUDA if supported,
    else float32."""
    threads: Positive = 1
    """Threads of torch, on a CPU."""
    batch_tokens: Annotated[int, Field(gt=0, le=10_000_000)] = 8192
    """Most tokens of one pass, padding included; one text alone may be longer."""
    max_tokens: Annotated[int, Field(gt=0, le=10_000_000)] | None = None
    """That are read of a text, from its end; None: as many as the model has positions for."""
    hang_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """A pass that takes longer hangs."""
    centre: Finite = 0.0
    """The score that earns one half."""
    scale: Annotated[Finite, Field(gt=0)] = 1.0
    """1: a difference of scores means what it meant in training, the logarithm of the odds."""


WITHOUT_EFFECT = frozenset({"model", "device", "dtype", "threads", "batch_tokens", "hang_s"})
"""Settings that are in the revision in another way (the hash of the files, the numbers computed in)
or need not be."""


def load_config(
    path: Path | None = None, environ: Mapping[str, str] = os.environ
) -> PreferenceConfig:
    """Read `path`, or the shipped file, with what the environment says instead.

    Raises Misuse naming the file or the variable, and the key.
    """
    read = read_settings(PreferenceConfig, "preference", path)
    overrides: dict[str, str] = {}
    for name, text in environ.items():
        if name.startswith(PREFIX) and text:
            overrides[name.removeprefix(PREFIX).lower()] = text
    try:
        return PreferenceConfig.model_validate({**read.model_dump(), **overrides})
    except ValidationError as error:
        variables = ", ".join(PREFIX + key.upper() for key in sorted(overrides))
        raise Misuse(f"{variables}: {explain(error)}") from None
