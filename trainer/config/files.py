"""Reads a run's config: a YAML file, overrides from the command line on top, everything checked.
Knows no stage.

The trees of settings and their keys are in `trainer.config.run` and `trainer.config.stages`.
Options of TRL and transformers are checked against their configuration classes.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from gradus.errors import Misuse
from gradus.yaml_reader import read_mapping, read_scalar
from trainer.config.run import RunConfig, Section, TrainConfig, describe_nearest, wrap_model_name

C = TypeVar("C", bound=RunConfig)
S = TypeVar("S", bound=Section)
Place = tuple[int | str, ...]
PLACES = (
    ("model", "name"),
    ("data", "dataset"),
    ("data", "eval_dataset"),
    ("warm_start", "dataset"),
)
"""Where names of files may stand."""


def load(path: Path, overrides: Sequence[str], kind: type[C]) -> C:
    """Return the config in a YAML file with command-line overrides on top, checked down to TRL's
    option names and types.

    Files that it names are looked for from the working directory, then from the config's own
    folder. Raises Misuse with one line per mistake, naming the file or the option and the key.
    """
    path = Path(path)
    tree = read_mapping(path)
    override_tree = parse_overrides(overrides, kind, str(tree.get("stage", "")))
    if "model" in tree:
        tree["model"] = wrap_model_name(tree["model"])
    merged = _merge_trees(tree, override_tree)
    mistakes = []
    for section, class_name in kind.TRL_CLASSES.items():
        options = _get_value(merged, section)
        for name, value in options.items() if isinstance(options, dict) else ():
            advice = kind.SET_ELSEWHERE.get(name)
            problem, options[name] = check_option(class_name, name, value, advice)
            if problem:
                place = (*section, name)
                mistakes.append(
                    f"{_find_source(place, override_tree, path)}: {'.'.join(place)}: {problem}"
                )
    for parent, key in PLACES:
        inner = merged.get(parent)
        if not isinstance(inner, dict):
            continue
        names = inner.get(key)
        if isinstance(names, str):
            inner[key] = resolve_file_name(names, path)
        elif isinstance(names, list):
            inner[key] = [resolve_file_name(str(name), path) for name in names]
    try:
        config = kind.model_validate(merged)
    except ValidationError as error:
        schema_mistakes = _list_mistakes(
            error, kind, lambda place: _find_source(place, override_tree, path)
        )
        mistakes = [*schema_mistakes, *mistakes]
    if mistakes:
        raise Misuse("\n".join(dict.fromkeys(mistakes)))
    return config


def read_section(kind: type[S], path: Path) -> S:
    """Return the settings in a YAML file that takes no overrides, checked. Raises Misuse with one
    line per mistake."""
    try:
        return kind.model_validate(read_mapping(path))
    except ValidationError as error:
        raise Misuse("\n".join(_list_mistakes(error, kind, lambda place: str(path)))) from None


def resolve_file_name(name: str, path: Path) -> str:
    """Return the name of a file as it is, or in the folder of `path` if it is only there."""
    candidate = path.parent / name
    return str(candidate) if not Path(name).exists() and candidate.exists() else name


def _list_mistakes(
    error: ValidationError, kind: type[BaseModel], source: Callable[[Place], str]
) -> Iterator[str]:
    """Yield one line per mistake: where it was written, its key, and what is wrong."""
    for item in error.errors(include_url=False, include_context=False):
        key = [".".join(map(str, item["loc"]))] if item["loc"] else []
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            *parents, name = item["loc"]
            field_names = list(_find_section(kind, parents).model_fields)
            message = "unknown key" + (
                describe_nearest(str(name), field_names) or f"; known: {', '.join(field_names)}"
            )
        yield ": ".join([source(item["loc"]), *key, message])


def _find_section(kind: type[BaseModel], place: Sequence[int | str]) -> type[BaseModel]:
    for part in place:
        if isinstance(part, str):
            annotation = kind.model_fields[part].annotation
            choices = (annotation, *get_args(annotation))
            kind = next(
                choice
                for choice in choices
                if isinstance(choice, type) and issubclass(choice, Section)
            )
    return kind


def _merge_trees(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = _merge_trees(below, value)
        else:
            merged[key] = value
    return merged


def _find_source(place: Place, override_tree: Mapping[str, Any], path: Path) -> str:
    """Return where a value was written: the command line, if it stands there, else the file."""
    at: Any = override_tree
    for part in place:
        if not isinstance(at, Mapping) or part not in at:
            return str(path)
        at = at[part]
    return "command line" if place else str(path)


def _get_value(tree: Any, place: Sequence[str]) -> Any:
    """Return the value in this place; None where there is no such place."""
    for part in place:
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


# ---------------------------------------------------------------------- command line


def parse_overrides(
    arguments: Sequence[str], kind: type[RunConfig] = TrainConfig, stage: str = ""
) -> dict[str, Any]:
    """`--learning_rate 1e-6 --reward.deadline_s=30 --use_vllm` as a tree; a flag without a value
    means true.

    Bare names belong to the section that holds the options of TRL, of `stage` where there are
    several.
    """
    pairs = list(iter_overrides(arguments))
    stage = next((text for name, text in pairs if name == "stage"), stage)
    sections = [section for section, *inner in kind.TRL_CLASSES if not inner]
    tree: dict[str, Any] = {}
    for flag, text in pairs:
        path = flag.replace("-", "_").split(".")
        if len(path) == 1 and path[0] not in kind.model_fields:
            # as TRL's own command line has it
            path.insert(0, stage if stage in sections else sections[0])
        if path == ["model"]:
            path.append("name")
        at = tree
        for part in path[:-1]:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                raise Misuse(f"command line: --{flag}: {part} was already given a plain value")
        if path[-1] in at:
            raise Misuse(f"command line: --{flag} is given twice")
        at[path[-1]] = read_scalar(text, f"command line: --{flag}")
    return tree


def iter_overrides(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names and values of `--name value`, `--name=value` and `--name`, which is true. Raises
    Misuse."""
    waiting = list(arguments)
    while waiting:
        flag = waiting.pop(0)
        if not flag.startswith("--") or flag == "--":
            raise Misuse(
                f"command line: {flag!r} is not an option; write --name value or --section.name"
                " value"
            )
        name, equals, text = flag[2:].partition("=")
        if not equals:
            text = waiting.pop(0) if waiting and not waiting[0].startswith("--") else "true"
        yield name, text


# ---------------------------------------------------------------------- options of TRL's classes


def check_option(
    class_name: str, name: str, value: Any, advice: str | None
) -> tuple[str | None, Any]:
    """Return what is wrong with an option, and its value in the type that TRL or transformers
    declare.

    `advice` says what to do instead of giving the option here; None: it may be given.
    """
    hints = _read_hints(class_name)
    if name not in hints:
        library = "TRL" if class_name != "TrainingArguments" else "transformers"
        return (
            (
                f"unknown key{describe_nearest(name, list(hints))} ({class_name} of {library} has"
                " no such option)"
            ),
            value,
        )
    if advice is not None:
        return f"not set here: {advice}", value
    if isinstance(value, bool) and hints[name] in (int, float):
        return f"{str(value).lower()} is not a number", value
    if get_origin(hints[name]) is list and isinstance(value, str):
        value = [value]  # one name where several may stand
    kinds = list(filter(dataclasses.is_dataclass, get_args(hints[name])))
    if kinds and isinstance(
        value, Mapping
    ):  # pydantic would drop unknown keys of `parallelism_config` in silence
        field_names = {field.name for kind in kinds for field in dataclasses.fields(kind)}
        if unknown := sorted(str(key) for key in value if key not in field_names):
            return f"{', '.join(unknown)}: unknown key in it", value
    try:
        return None, _build_adapter(class_name, name).validate_python(value)
    except ValidationError as error:
        messages = dict.fromkeys(
            item["msg"] for item in error.errors(include_url=False, include_context=False)
        )
        return f"{value!r}: {' or '.join(messages)}", value


@functools.cache
def _read_hints(class_name: str) -> dict[str, Any]:
    import transformers
    import trl  # takes seconds

    cls = getattr(trl if hasattr(trl, class_name) else transformers, class_name)
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


@functools.cache
def _build_adapter(class_name: str, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(
        _read_hints(class_name)[name],
        config=ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False),
    )
