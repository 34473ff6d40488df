"""Reads a run's config: a YAML file, overrides from the command line on top, everything checked. Knows no stage.

Which tree of settings a file is, and what its keys mean, is `trainer.config`'s and `trainer.stages.settings`'.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from gradus.errors import Misuse
from trainer.config import RunConfig, Section, TrainConfig, nearest
from trainer.strict_yaml import read_mapping, read_scalar

C = TypeVar("C", bound=RunConfig)
STAGE = "stage"


def load_config(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """The config of a run on rewards, GRPO or RLOO. Raises Misuse as `load` does."""
    return load(path, overrides, TrainConfig)


def load(path: Path, overrides: Sequence[str], kind: type[C]) -> C:
    """The config in a YAML file with command-line overrides on top, checked down to TRL's option names and types.

    Raises Misuse with one line per mistake, naming the file or the option and the key.
    """
    path = Path(path)
    tree = read_mapping(path)
    given = parse_overrides(overrides, kind, str(tree.get(STAGE, "")))
    if isinstance(tree.get("model"), str):
        tree["model"] = {"name": tree["model"]}
    mistakes = [*_unknown_keys(tree, str(path), kind), *_unknown_keys(given, "command line", kind)]
    if mistakes:
        raise Misuse("\n".join(mistakes))
    config = _validated(_merged(tree, given), given, path, kind)
    return _with_paths_beside(_with_checked_trl_options(config, given, path), path)


def stage_of(path: Path, overrides: Sequence[str] = ()) -> str | None:
    """The `stage` that the file or the command line names; None when neither does. Raises Misuse."""
    given = [text for name, text in _pairs(overrides) if name == STAGE]
    stage = given[-1] if given else read_mapping(Path(path)).get(STAGE)
    if stage is not None and not isinstance(stage, str):
        raise Misuse(f"{path}: stage: {stage!r} is no name of a stage")
    return stage


def parse_overrides(arguments: Sequence[str], kind: type[RunConfig] = TrainConfig, stage: str = "") -> dict[str, Any]:
    """`--learning_rate 1e-6 --reward.deadline_s=30 --use_vllm` as a tree; a flag without a value means true.

    Bare names belong to the section that holds the options of TRL, of `stage` where there are several.
    """
    pairs = list(_pairs(arguments))
    stage = next((text for name, text in pairs if name == STAGE), stage)
    tree: dict[str, Any] = {}
    for flag, text in pairs:
        path = _path_of(flag, kind, stage)
        at = tree
        for part in path[:-1]:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                raise Misuse(f"command line: --{flag}: {part} was already given a plain value")
        if path[-1] in at:
            raise Misuse(f"command line: --{flag} is given twice")
        at[path[-1]] = read_scalar(text, f"command line: --{flag}")
    return tree


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    waiting = list(arguments)
    while waiting:
        flag = waiting.pop(0)
        if not flag.startswith("--") or flag == "--":
            raise Misuse(f"command line: {flag!r} is not an option; write --name value or --section.name value")
        name, equals, text = flag[2:].partition("=")
        if not equals:
            text = waiting.pop(0) if waiting and not waiting[0].startswith("--") else "true"
        yield name, text


def _path_of(flag: str, kind: type[RunConfig], stage: str) -> list[str]:
    path = flag.replace("-", "_").split(".")
    if len(path) == 1 and path[0] not in kind.model_fields:
        sections = [section for section, *inner in kind.TRL_CLASSES if not inner]
        # a bare name is TRL's, as its own command line has it
        return [stage if stage in sections else sections[0], path[0]]
    if path == ["model"]:
        return ["model", "name"]
    return path


def _unknown_keys(
    tree: Mapping[str, Any], where: str, section: type[BaseModel], path: tuple[str, ...] = ()
) -> Iterator[str]:
    for key, value in tree.items():
        here = ".".join((*path, str(key)))
        field = section.model_fields.get(str(key))
        if field is None:
            hint = nearest(str(key), list(section.model_fields)) or f"; known: {', '.join(section.model_fields)}"
            yield f"{where}: {here}: unknown key{hint}"
        elif isinstance(value, Mapping) and (inner := _section_in(field.annotation)) is not None:
            yield from _unknown_keys(value, where, inner, (*path, str(key)))


def _section_in(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next((found for arg in get_args(annotation) if (found := _section_in(arg))), None)
    return None


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _validated(tree: dict[str, Any], given: Mapping[str, Any], path: Path, kind: type[C]) -> C:
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        lines = [
            ": ".join(
                [_source(item["loc"], given, path), *_key(item["loc"]), item["msg"].removeprefix("Value error, ")]
            )
            for item in error.errors(include_url=False, include_context=False)
        ]
        raise Misuse("\n".join(dict.fromkeys(lines))) from None


def _key(loc: Sequence[int | str]) -> list[str]:
    """The key that a mistake is about; none when it is about several."""
    return [".".join(map(str, loc))] if loc else []


def _source(loc: Sequence[int | str], given: Mapping[str, Any], path: Path) -> str:
    at: Any = given
    for part in loc:
        if not isinstance(at, Mapping) or part not in at:
            return str(path)
        at = at[part]
    return "command line" if loc else str(path)


def _with_checked_trl_options(config: C, given: Mapping[str, Any], path: Path) -> C:
    from trainer.trl_options import checked_options  # imports TRL, which takes seconds

    mistakes: list[str] = []
    checked: C = config
    for section, class_name in config.TRL_CLASSES.items():
        options = _inside(config, section)
        if options:
            clean = checked_options(class_name, options, section, mistakes, config.SET_ELSEWHERE)
            checked = _with_inside(checked, section, clean)
    if mistakes:
        raise Misuse("\n".join(f"{_source(line.split(':')[0].split('.'), given, path)}: {line}" for line in mistakes))
    return checked


def _inside(config: BaseModel, path: tuple[str, ...]) -> Any:
    value: Any = config
    for part in path:
        value = None if value is None else getattr(value, part)
    return value


def _with_inside(config: C, path: tuple[str, ...], value: Any) -> C:
    """A copy with another value in this place."""
    first, *rest = path
    inner = _with_inside(getattr(config, first), tuple(rest), value) if rest else value
    return config.model_copy(update={first: inner})


PLACES = (("model", "name"), ("data", "dataset"), ("data", "eval_dataset"), ("warm_start", "dataset"))
"""Where names of files may stand."""


def _with_paths_beside(config: C, path: Path) -> C:
    """Files named in the config are looked for from the working directory, then from the config's own folder."""
    for place in PLACES:
        if not hasattr(config, place[0]):
            continue
        named = _inside(config, place)
        if isinstance(named, str):
            config = _with_inside(config, place, beside(named, path))
        elif isinstance(named, list):
            config = _with_inside(config, place, [beside(name, path) for name in named])
    return config


def beside(name: str, path: Path) -> str:
    """The name of a file as it is, or in the folder of `path` if it is only there."""
    found = path.parent / name
    return str(found) if not Path(name).exists() and found.exists() else name
