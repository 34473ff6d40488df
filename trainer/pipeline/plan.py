"""What a pipeline's file says: `Pipeline`, read from YAML with overrides on top, everything checked. Runs nothing.

Files that it names are looked for from the working directory, then from the pipeline file's own folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, Field, ValidationError, model_validator

from gradus.contract import GraderName
from gradus.errors import Misuse
from trainer.config import Count, Section, TrainConfig, nearest
from trainer.config_file import PLACES, beside
from trainer.pipeline.stages import NAME, AnyStage, CommandStage, Stage, TrainStage, references, resolved
from trainer.stages.settings import STAGES
from trainer.strict_yaml import read_mapping, read_scalar

EMBEDDED = "embedded"
RESERVED = ("logs", "earlier")
SUFFIXES = (".jsonl", ".json", ".csv", ".yaml", ".yml", ".txt", ".npy")
"""A name with one of them is a file's and not one on a hub."""
DATASETS = tuple(".".join(place) for place in PLACES)


def _service(value: str) -> str:
    if value != EMBEDDED and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", value):
        raise ValueError(f"write {EMBEDDED}, or the service's address as http://host:port")
    return value


class Pipeline(Section):
    """Stages in the order in which they run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")]
    folder: Path
    """Where everything is written. Starting again with the same one goes on where it was stopped."""
    service: Annotated[str, AfterValidator(_service)] | None = None
    """Where answers are graded: `embedded` starts a service here while it is needed. None: evaluations grade in their
    own process, and training asks where its config says."""
    graders: list[GraderName] = []
    """Of an embedded service; empty: all that start here."""
    slots: Count | None = None
    """Of each grader of an embedded service."""
    stages: Annotated[dict[str, AnyStage], Field(min_length=1)]

    @model_validator(mode="after")
    def _stages_use_earlier_ones(self) -> Pipeline:
        left: dict[str, set[str]] = {}
        for name, stage in self.stages.items():
            if not NAME.fullmatch(name) or name in RESERVED:
                raise ValueError(f"stages.{name}: is no name for a stage; write small letters, digits, - and _")
            for other, output in references(stage.model_dump()):
                if output not in left.get(other, ()):
                    raise ValueError(
                        f"stages.{name}: {{{other}.{output}}}: {_why_unknown(other, output, left, self.stages)}"
                    )
            left[name] = {*stage.outputs(Path(name))}
        return self

    def places(self) -> dict[tuple[str, str], Path]:
        """Where each output of each stage lies."""
        return {
            (name, output): path
            for name, stage in self.stages.items()
            for output, path in stage.outputs(self.folder / name).items()
        }

    def ready(self) -> dict[str, Stage]:
        """The stages with paths in place of what they refer to."""
        places = self.places()
        return {
            name: type(stage).model_validate(resolved(stage.model_dump(), places))
            for name, stage in self.stages.items()
        }


def _why_unknown(other: str, output: str, left: Mapping[str, set[str]], stages: Mapping[str, Any]) -> str:
    if other in left:
        return f"{other} leaves no {output}; it leaves {', '.join(sorted(left[other]))}"
    if other in stages:
        return f"{other} comes later"
    return f"there is no stage {other}{nearest(other, list(stages))}"


# ----------------------------------------------------------------------------------------------------------- reading


def load_pipeline(path: Path, overrides: Sequence[str] = ()) -> Pipeline:
    """The pipeline in a YAML file; `overrides` are `a.b=value`, such as `stages.sft.set.learning_rate=1e-6`.

    Raises Misuse with one line per mistake, naming the file or the override and the key.
    """
    tree = read_mapping(path)
    for stage in _stages_in(tree).values():
        if isinstance(stage.get("set"), dict):
            stage["set"] = dict(_flat(stage["set"], str(path)))
    for override in overrides:
        _put(tree, override)
    try:
        pipeline = Pipeline.model_validate(tree)
    except ValidationError as error:
        raise Misuse("\n".join(dict.fromkeys(_mistakes(error, path)))) from None
    found = pipeline.model_copy(
        update={"stages": {name: _with_files_beside(stage, path) for name, stage in pipeline.stages.items()}}
    )
    _refuse_missing_files(found, path)
    return found


def _stages_in(tree: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    stages = tree.get("stages")
    return (
        {name: stage for name, stage in stages.items() if isinstance(stage, dict)} if isinstance(stages, dict) else {}
    )


def _flat(tree: Mapping[str, Any], where: str, before: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """`{grpo: {max_steps: 5}}` as `grpo.max_steps: 5`, the way the command line has it."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        parts = (*before, str(key))
        inner = _flat(value, where, parts) if isinstance(value, dict) and value else [(".".join(parts), value)]
        for name, item in inner:
            if name in found:
                raise Misuse(f"{where}: set: {name} is given twice")
            found[name] = item
    yield from found.items()


def _put(tree: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    where = f"--set {dotted}"
    if not equals or not all(dotted.split(".")):
        raise Misuse(f"--set {override}: write a.b=value")
    value = read_scalar(text, where)
    keys = dotted.split(".")
    if keys[0] == "stages" and len(keys) > 3 and keys[2] == "set":
        keys = [*keys[:3], ".".join(keys[3:])]  # the settings of a training have dots in their names
    at: Any = tree
    for key in keys[:-1]:
        at = at.setdefault(key, {}) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            raise Misuse(f"{where}: {key} is no section")
    at[keys[-1]] = value


KINDS = tuple(get_args(kind.model_fields["kind"].annotation)[0] for kind in get_args(get_args(AnyStage)[0]))


def _mistakes(error: ValidationError, path: Path) -> Iterator[str]:
    for item in error.errors(include_url=False, include_context=False):
        loc = [str(part) for part in item["loc"]]
        if len(loc) > 2 and loc[0] == "stages" and loc[2] in KINDS:
            del loc[2]  # the kind stands there as pydantic's name of the case
        said = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            said = "unknown key"
        elif item["type"] in ("union_tag_invalid", "union_tag_not_found"):
            said = f"kind: is none of {', '.join(KINDS)}"
        yield ": ".join([str(path), *([".".join(loc)] if loc else []), said])


# ------------------------------------------------------------------------------------------------------------- files


def named_files(stage: Stage) -> list[str]:
    """What the stage's own fields name."""
    values = [getattr(stage, name) for name in stage.FILES]
    return [text for value in values for text in (value if isinstance(value, list) else [value]) if text is not None]


def _with_files_beside(stage: Stage, path: Path) -> Stage:
    """The stage with names of files that are found beside the pipeline's."""
    changes: dict[str, Any] = {}
    for name in stage.FILES:
        value = getattr(stage, name)
        changes[name] = [_beside(text, path) for text in value] if isinstance(value, list) else _beside(value, path)
    if isinstance(stage, CommandStage):
        found = dict(zip(stage.inputs, changes["inputs"], strict=True))
        changes["run"] = [found.get(word, word) for word in stage.run]
    if isinstance(stage, TrainStage):
        changes["set"] = {
            name: _beside(value, path) if name in DATASETS and isinstance(value, str) else value
            for name, value in stage.set.items()
        }
    return stage.model_copy(update=changes)


def _beside(name: str | None, path: Path) -> str | None:
    return beside(name, path) if name and "{" not in name and len(name) <= 1000 else name


def _refuse_missing_files(pipeline: Pipeline, path: Path) -> None:
    for name, stage in pipeline.stages.items():
        for text in named_files(stage):
            is_file = isinstance(stage, TrainStage) or text.endswith(SUFFIXES)
            if is_file and "{" not in text and not Path(text).is_file():
                raise Misuse(f"{path}: stages.{name}: there is no {text}, neither there nor beside this file")


# ------------------------------------------------------------------------------------------------------ of a training


def training_settings(stage: TrainStage) -> dict[str, Any]:
    """The config of a training with the stage's changes, as it is written: flat, by dotted names."""
    found = dict(_flat(read_mapping(Path(stage.config)), stage.config))
    if "model" in found:
        found["model.name"] = found.pop("model")
    for name, value in stage.set.items():
        known = "model.name" if name == "model" else name
        # what is set as a whole replaces what stood below it, a section that is switched off for one
        found = {key: item for key, item in found.items() if not key.startswith(known + ".")}
        found[known] = value
    return found


def is_graded(stage: TrainStage) -> bool:
    """A grading service is asked for its rewards."""
    settings = training_settings(stage)
    asks = settings.get("reward.grader") is not None or bool(settings.get("reward.services"))
    return STAGES.get(settings.get("stage", "grpo")) is TrainConfig and asks


def training_data(stage: TrainStage) -> list[str]:
    """What a training reads: files, folders, and names on a hub."""
    settings, config = training_settings(stage), Path(stage.config)
    values = [settings[name] for name in DATASETS if settings.get(name) is not None]
    named = [text for value in values for text in (value if isinstance(value, list) else [value])]
    models = settings.get("reward.models")
    named += [model.get("path") for model in models if isinstance(model, dict)] if isinstance(models, list) else []
    return [str(_beside(text, config)) for text in named if isinstance(text, str)]


def wants_service(stage: Stage) -> bool:
    """It has answers graded."""
    return is_graded(stage) if isinstance(stage, TrainStage) else stage.wants_service
