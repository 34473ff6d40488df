"""Rubrics that a grader's configuration adds to the shipped ones: weights over its components, or a
Python function."""

from __future__ import annotations

import hashlib
import inspect
import math
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from gradus.errors import InternalFault, Misuse, wrap_exceptions
from services.graders.base.config_loader import GraderConfig
from services.graders.base.rubric import Components, FactsT, Rubric, Rubrics, weighted


def build_rubrics(
    shipped: Rubrics[FactsT], config: GraderConfig, file: Path
) -> tuple[Rubrics[FactsT], list[str]]:
    """`shipped` and the rubrics of `config`, its default first; and the hashes of the files of its
    functions.

    Raises Misuse naming `file` and the key.
    """
    grader = next(iter(shipped.rubrics)).partition("/")[0]
    rubrics = dict(shipped.rubrics)
    components = dict.fromkeys(shipped.components)
    sources = []
    for name, settings in config.rubrics.items():
        location = f"{file}: rubrics.{name}"
        if name in shipped.rubrics or not name.startswith(f"{grader}/"):
            raise Misuse(
                f"{location}: name it {grader}/..., and not as one that ships with the grader"
            )
        if settings.function is not None:
            rubrics[name], source = _load_function(name, settings.function, f"{location}.function")
            sources.append(source)
            continue
        weights = settings.weights or {}
        for part in weights:
            if part not in shipped.measures:
                names = ", ".join(shipped.measures)
                raise Misuse(
                    f"{location}.weights.{part}: the {grader} grader has no such component; it has:"
                    f" {names}"
                )
        rubrics[name] = weighted(
            shipped.measures, weights, shipped.shape if settings.shaping else None
        )
        components |= dict.fromkeys(weights)
    if config.rubric not in rubrics:
        raise Misuse(
            f"{file}: rubric: no rubric {config.rubric!r}; there are: {', '.join(rubrics)}"
        )
    ordered = {config.rubric: rubrics[config.rubric]} | rubrics
    return replace(shipped, rubrics=ordered, components=tuple(components)), sources


def _load_function(name: str, path: str, location: str) -> tuple[Rubric[Any], str]:
    """Return the function at `package.module:function`, and the hash of the file it is in. Raises
    Misuse naming `location`."""
    module, _, attribute = path.partition(":")
    try:
        function = getattr(import_module(module), attribute)
        source = Path(str(inspect.getsourcefile(function))).read_bytes()
    except (ImportError, AttributeError, TypeError, OSError) as error:
        raise Misuse(
            f"{location}: {path} cannot be loaded: {type(error).__name__}: {error}"
        ) from None

    def rubric(facts: Any) -> Components:
        with wrap_exceptions(InternalFault, f"the rubric {name}, {path}"):
            parts = {str(part): float(value) for part, value in function(facts).items()}
        total = sum(parts.values())
        if not (math.isfinite(total) and -1e-6 <= total <= 1 + 1e-6):
            message = (
                f"the rubric {name}, {path}, gave components that add up to {total:g}, not to 0"
                " to 1"
            )
            raise InternalFault(message, retryable=False)
        return parts

    return rubric, hashlib.sha256(source).hexdigest()
