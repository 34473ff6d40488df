"""YAML without its surprises: a key given twice and non-finite numbers are refused, `1e-6` is a
number, `no` a text."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml

from gradus.errors import Misuse


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        first_lines: dict[str, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str):
                if key in first_lines:
                    raise yaml.constructor.ConstructorError(
                        None,
                        None,
                        f"key {key!r} is given twice, first on line {first_lines[key]}",
                        key_node.start_mark,
                    )
                first_lines[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep)


# PyYAML reads YAML 1.1, in which `no` and `off` are false. In YAML 1.2 they are texts.
_BOOL = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {}
for _first, _resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items():
    _non_bool = [resolver for resolver in _resolvers if resolver[0] != _BOOL]
    _Loader.yaml_implicit_resolvers[_first] = _non_bool
_Loader.add_implicit_resolver(
    _BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
# In YAML 1.1 `5e-6`, a usual learning rate, is a text, because it has no dot.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping that a YAML file holds. Raises Misuse naming the file, and the line where
    there is one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Misuse(f"{path}: there is no such file") from None
    except OSError as error:
        raise Misuse(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Misuse(f"{path}: cannot be read: {error}") from None
    value = read_scalar(text, str(path))
    if not isinstance(value, dict):
        kind = "nothing" if value is None else type(value).__name__
        raise Misuse(f"{path}: holds {kind} where a mapping of settings was expected")
    return value


def read_scalar(text: str, source: str) -> Any:
    """Return what a value on the command line means, read as YAML: `true`, `1e-6`, `[a, b]`,
    `null`, or a plain text."""
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader, made stricter)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f":{mark.line + 1}" if mark is not None and "\n" in text.strip() else ""
        raise Misuse(f"{source}{at}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise Misuse(f"{source}: {error}") from None
    _refuse_non_finite(value, source, ())
    return value


def _refuse_non_finite(value: Any, source: str, path: tuple[str, ...]) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise Misuse(f"{source}: {'.'.join(path) or 'value'}: {value} is not a finite number")
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, source, (*path, str(key)))
