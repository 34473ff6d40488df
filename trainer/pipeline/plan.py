"""What a pipeline's file says: `Pipeline`, read from YAML with overrides on top, everything
checked. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, model_validator

from gradus.contract import GraderName
from gradus.errors import Misuse
from gradus.validation import explain
from gradus.yaml_reader import read_mapping, read_scalar
from trainer.config.run import Section, describe_nearest
from trainer.pipeline.stages import (
    NAME,
    AnyStage,
    Stage,
    TrainStage,
    find_beside,
    find_references,
    map_texts,
    replace_references,
)

EMBEDDED = "embedded"
RESERVED = ("logs", "earlier")
SUFFIXES = (".jsonl", ".json", ".csv", ".yaml", ".yml", ".txt", ".npy")
"""A name with one of them is a file's and not one on a hub."""


def _check_service(value: str) -> str:
    if value != EMBEDDED and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", value):
        raise ValueError(f"write {EMBEDDED}, or the service's address as http://host:port")
    return value


class Pipeline(Section):
    """Stages in the order in which they run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")]
    folder: Path
    """Where everything is written. Starting again with the same one resumes where it was
    stopped."""
    service: Annotated[str, AfterValidator(_check_service)] | None = None
    """Where answers are graded: `embedded` starts a service here while it is needed. None:
    evaluations grade in their own process, and training asks where its config says."""
    graders: list[GraderName] = []
    """Graders of an embedded service; empty: all that start on this machine."""
    stages: Annotated[dict[str, AnyStage], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_references(self) -> Pipeline:
        earlier_outputs: dict[str, set[str]] = {}
        for name, stage in self.stages.items():
            if not NAME.fullmatch(name) or name in RESERVED:
                raise ValueError(
                    f"stages.{name}: is no name for a stage; write small letters, digits, - and _"
                )
            for other, output in find_references(stage.model_dump()):
                if output not in earlier_outputs.get(other, ()):
                    nearest = describe_nearest(other, list(earlier_outputs))
                    why = f"there is no earlier stage {other}{nearest}"
                    if other in earlier_outputs:
                        leaves = ", ".join(sorted(earlier_outputs[other]))
                        why = f"{other} leaves no {output}; it leaves {leaves}"
                    raise ValueError(f"stages.{name}: {{{other}.{output}}}: {why}")
            earlier_outputs[name] = {*stage.list_outputs(Path(name))}
        return self

    def map_outputs(self) -> dict[tuple[str, str], Path]:
        """Return where each output of each stage lies."""
        places = {}
        for name, stage in self.stages.items():
            for output, path in stage.list_outputs(self.folder / name).items():
                places[(name, output)] = path
        return places

    def ready(self) -> dict[str, Stage]:
        """Return the stages with paths in place of what they refer to."""
        places = self.map_outputs()
        stages: dict[str, Stage] = {}
        for name, stage in self.stages.items():
            stages[name] = type(stage).model_validate(
                map_texts(stage.model_dump(), lambda text: replace_references(text, places))
            )
        return stages


def load_pipeline(path: Path, overrides: Sequence[str] = ()) -> Pipeline:
    """Return the pipeline in a YAML file; `overrides` are `a.b=value`, such as
    `stages.sft.set.learning_rate=1e-6`.

    Raises Misuse with one line per mistake, naming the file or the override and the key.
    """
    tree = read_mapping(path)
    for override in overrides:
        _put(tree, override)
    try:
        tree["stages"] = map_texts(tree.get("stages"), lambda text: find_beside(text, path))
        pipeline = Pipeline.model_validate(tree)
    except ValidationError as error:
        raise Misuse(f"{path}: {explain(error)}") from None
    for name, stage in pipeline.stages.items():
        for text in stage.files():
            is_file = isinstance(stage, TrainStage) or text.endswith(SUFFIXES)
            if is_file and "{" not in text and not Path(text).is_file():
                raise Misuse(
                    f"{path}: stages.{name}: there is no {text}, neither there nor beside this file"
                )
    return pipeline


def _put(tree: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    option = f"--set {dotted}"
    if not equals or not all(dotted.split(".")):
        raise Misuse(f"--set {override}: write a.b=value")
    value = read_scalar(text, option)
    keys = dotted.split(".")
    if keys[0] == "stages" and len(keys) > 3 and keys[2] == "set":
        keys = [*keys[:3], ".".join(keys[3:])]  # settings of a training have dots in their names
    at: Any = tree
    for key in keys[:-1]:
        at = at.setdefault(key, {}) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            raise Misuse(f"{option}: {key} is no section")
    at[keys[-1]] = value
