"""Calls of tools in what a model wrote: found in three notations, and held to the tools that its prompt declared.

Chat templates: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. Harmony: a message to `functions.NAME` in
the commentary channel. OpenAI: what a server has put into `tool_calls`. No tool is run, and nothing is put right: JSON
with a key twice, with NaN, or nested without end is malformed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_CALLS = 64
"""Of one completion; what comes after them is not read."""
MAX_ARGUMENTS_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt to call a tool."""

    name: str | None
    """None where it cannot be told."""
    problem: str | None
    """In a word or two why it is malformed; None where it is well formed."""


Tools = Mapping[str, Mapping[str, Any]]
"""The JSON schema of the arguments of each tool, by its name."""


class _Malformed(Exception):
    """The message says why, in a word or two."""


def calls_in(text: str, given: Sequence[Mapping[str, Any]] | None, tools: Tools) -> list[Call]:
    """The calls in a completion, in their order; `given` is what a server has taken out of it as `tool_calls`."""
    taken = [_call(one.get("name"), one.get("arguments"), tools) for one in given or ()]
    visible = text.rpartition("</think>")[2]
    return [*taken, *_tagged(visible, tools), *_harmony(text, tools)][:MAX_CALLS]


def _tagged(text: str, tools: Tools) -> Iterator[Call]:
    for part in text.split("<tool_call>", MAX_CALLS + 1)[1 : MAX_CALLS + 1]:
        inner, end, _ = part.partition("</tool_call>")
        yield _of_object(inner, tools) if end else Call(None, "no end")


def _of_object(text: str, tools: Tools) -> Call:
    try:
        value = _strict(text)
    except _Malformed as error:
        return Call(None, str(error))
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or {*value} - {"name", "arguments"}:
        return Call(None, "no name and arguments")
    return _checked(value["name"], value.get("arguments"), tools)


_HEADER = re.compile(r" to=([^\s<]{1,200})")
_END = re.compile(r"<\|(?:end|call|return|start)\|>")


def _harmony(text: str, tools: Tools) -> Iterator[Call]:
    """Messages with a recipient; the first message begins where the prompt's `<|start|>assistant` ends."""
    for message in text.split("<|start|>", 4 * MAX_CALLS):
        header, mark, rest = message.partition("<|message|>")
        recipient = _HEADER.search(header)
        if recipient is None or ("<|channel|>" not in header and not mark):
            continue
        namespace, _, name = recipient[1].partition(".")
        if namespace != "functions" or "<|channel|>commentary" not in header or not mark:
            yield Call(name or None, "header")
        else:
            yield _call(name, _END.split(rest, maxsplit=1)[0], tools)


def _call(name: Any, arguments: Any, tools: Tools) -> Call:
    """A call whose arguments are the text of a JSON object."""
    if not isinstance(name, str):
        return Call(None, "no name and arguments")
    if not isinstance(arguments, str):
        return Call(name, "arguments")
    try:
        return _checked(name, _strict(arguments), tools)
    except _Malformed as error:
        return Call(name, str(error))


def _checked(name: str, arguments: Any, tools: Tools) -> Call:
    if name not in tools:
        return Call(name, "unknown tool")
    if not isinstance(arguments, dict) or not fits(arguments, tools[name]):
        return Call(name, "arguments")
    return Call(name, None)


# --------------------------------------------------------------------------------------------------------------- JSON


def _strict(text: str) -> Any:
    """The value of a JSON text. Raises _Malformed for what is none, and for keys that stand twice."""
    if len(text) > MAX_ARGUMENTS_CHARS:
        raise _Malformed("too long")
    try:
        return json.loads(
            text, object_pairs_hook=_once_each, parse_constant=_refuse_constant, parse_float=_finite_number
        )
    except (ValueError, RecursionError):
        raise _Malformed("not JSON") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse_constant(word: str) -> Any:
    raise ValueError(word)


def _finite_number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


# ------------------------------------------------------------------------------------------------------------- schema

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_READ = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "const"})
_SAYS_NOTHING = frozenset({"description", "title", "default", "examples", "$schema", "strict", "deprecated", "format"})
_DEEPEST = 32


def refuse_unread(schema: Any, depth: int = 0) -> None:
    """Raises ValueError for a schema that `fits` would not wholly hold a value to, naming what it cannot read."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        raise ValueError("is no JSON schema, or too deep")
    if unread := sorted({*schema} - _READ - _SAYS_NOTHING):
        raise ValueError(f"uses {', '.join(unread)}, which is not read here")
    types = _types_of(schema)
    if unknown := [one for one in types if not isinstance(one, str) or one not in _TYPES]:
        raise ValueError(f"has a type {unknown[0]!r}")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if (
        not isinstance(properties, Mapping)
        or not isinstance(required, list)
        or not all(isinstance(name, str) for name in required)
        or not isinstance(schema.get("enum", []), list)
    ):
        raise ValueError("has properties, required or enum of another form")
    others = schema.get("additionalProperties", True)
    inner = [*properties.values(), *([schema["items"]] if "items" in schema else [])]
    for one in [*inner, *([] if isinstance(others, bool) else [others])]:
        refuse_unread(one, depth + 1)


def _types_of(schema: Mapping[str, Any]) -> list[Any]:
    given = schema.get("type", [])
    return given if isinstance(given, list) else [given]


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is what a schema wants that `refuse_unread` let through."""
    types = _types_of(schema)
    if types and not any(_is_of(value, one) for one in types):
        return False
    if ("enum" in schema and value not in schema["enum"]) or ("const" in schema and value != schema["const"]):
        return False
    if isinstance(value, dict):
        return _object_fits(value, schema)
    return not isinstance(value, list) or "items" not in schema or all(fits(one, schema["items"]) for one in value)


def _is_of(value: Any, type_: str) -> bool:
    if isinstance(value, bool):
        return type_ == "boolean"
    if type_ == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[type_])


def _object_fits(value: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not all(name in value for name in schema.get("required", [])):
        return False
    for name, inner in value.items():
        wanted = properties.get(name, others)
        if wanted is False or (isinstance(wanted, Mapping) and not fits(inner, wanted)):
            return False
    return True


# -------------------------------------------------------------------------------------------------- what is declared


def declared(tools: Any) -> dict[str, Mapping[str, Any]]:
    """The schemas in a list of tools as chat templates take it. Raises ValueError saying what is wrong with it."""
    if not isinstance(tools, list) or not tools:
        raise ValueError("is no list of tools")
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str) or name in found:
            raise ValueError("holds a tool without a name of its own")
        schema = function.get("parameters", {"type": "object"})
        refuse_unread(schema)
        found[name] = schema
    return found


_NAMESPACE = re.compile(r"namespace functions \{(.*?)\n\} // namespace functions", re.DOTALL)
_FUNCTION = re.compile(r"^type (\w{1,100}) = \((?:_: \{\n(.*?)^\})?\) => any;", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^(\w{1,100})(\??): (string|number|boolean)(\[\])?,", re.MULTILINE)


def declared_in_harmony(prompt: str) -> dict[str, Mapping[str, Any]]:
    """The schemas in the developer's message of a Harmony prompt. Raises ValueError where it declares none.

    Fields are strings, numbers, booleans and lists of them; a field of another type refuses the prompt.
    """
    space = _NAMESPACE.search(prompt)
    functions = _FUNCTION.finditer(space[1]) if space else ()
    found: dict[str, Mapping[str, Any]] = {match[1]: _of_fields(match[2] or "") for match in functions}
    if not found:
        raise ValueError("declares no functions in Harmony's form")
    return found


def _of_fields(text: str) -> dict[str, Any]:
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("//")]
    fields = [_FIELD.match(line) for line in lines]
    if not all(fields):
        raise ValueError("declares a field whose type is not read here")
    known = [match for match in fields if match]
    return {
        "type": "object",
        "properties": {
            match[1]: {"type": "array", "items": {"type": match[3]}} if match[4] else {"type": match[3]}
            for match in known
        },
        "required": [match[1] for match in known if not match[2]],
        "additionalProperties": False,
    }
