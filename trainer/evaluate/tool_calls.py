"""Calls of tools in what a model wrote: found in three notations, and held to the tools that its
prompt declared.

Chat templates: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. Harmony: a message to
`functions.NAME` in the commentary channel. OpenAI: what a server has put into `tool_calls`. No tool
is run, and nothing is put right: JSON with a key twice, with NaN, or nested without end is
malformed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from gradus.strict_json import parse_strict_json

MAX_CALLS = 64
"""Calls that are read of one completion; further ones are ignored."""
MAX_ARGUMENTS_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt to call a tool."""

    name: str | None
    """None where it cannot be told."""
    problem: str | None
    """In a word or two why it is malformed; None where it is well formed."""


Tools = Mapping[str, jsonschema_rs.Validator]
"""The JSON schema of the arguments of each tool, by its name."""


def extract_calls(
    text: str, reported: Sequence[Mapping[str, Any]] | None, tools: Tools
) -> list[Call]:
    """Return the calls in a completion, in their order; `reported` is what a server has taken out
    of it as `tool_calls`."""
    taken = [_parse_call(call.get("name"), call.get("arguments"), tools) for call in reported or ()]
    visible = text.rpartition("</think>")[2]
    return [*taken, *_extract_tagged(visible, tools), *_extract_harmony(text, tools)][:MAX_CALLS]


def _extract_tagged(text: str, tools: Tools) -> Iterator[Call]:
    for part in text.split("<tool_call>", MAX_CALLS + 1)[1 : MAX_CALLS + 1]:
        inner, end, _ = part.partition("</tool_call>")
        yield _parse_object(inner, tools) if end else Call(None, "no end")


def _parse_object(text: str, tools: Tools) -> Call:
    try:
        value = _parse_json(text)
    except ValueError as error:
        return Call(None, str(error))
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("name"), str)
        or {*value} - {"name", "arguments"}
    ):
        return Call(None, "no name and arguments")
    return _check_call(value["name"], value.get("arguments"), tools)


_HEADER = re.compile(r" to=([^\s<]{1,200})")
_END = re.compile(r"<\|(?:end|call|return|start)\|>")


def _extract_harmony(text: str, tools: Tools) -> Iterator[Call]:
    """Yield messages with a recipient; the first message begins where the prompt's
    `<|start|>assistant` ends."""
    for message in text.split("<|start|>", 4 * MAX_CALLS):
        header, mark, body = message.partition("<|message|>")
        recipient = _HEADER.search(header)
        if recipient is None or ("<|channel|>" not in header and not mark):
            continue
        namespace, _, name = recipient[1].partition(".")
        if namespace != "functions" or "<|channel|>commentary" not in header or not mark:
            yield Call(name or None, "header")
        else:
            yield _parse_call(name, _END.split(body, maxsplit=1)[0], tools)


def _parse_call(name: Any, arguments: Any, tools: Tools) -> Call:
    """Return a call whose arguments are the text of a JSON object."""
    if not isinstance(name, str):
        return Call(None, "no name and arguments")
    if not isinstance(arguments, str):
        return Call(name, "arguments")
    try:
        return _check_call(name, _parse_json(arguments), tools)
    except ValueError as error:
        return Call(name, str(error))


def _check_call(name: str, arguments: Any, tools: Tools) -> Call:
    if name not in tools:
        return Call(name, "unknown tool")
    return Call(
        name,
        None
        if isinstance(arguments, dict) and _is_conforming(arguments, tools[name])
        else "arguments",
    )


def _is_conforming(arguments: dict[str, Any], schema: jsonschema_rs.Validator) -> bool:
    try:
        return schema.is_valid(arguments)
    except UnicodeEncodeError:  # half a surrogate pair
        return schema.is_valid(
            json.loads(json.dumps(arguments, ensure_ascii=False).encode(errors="replace"))
        )


def _parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError, with the cause in a word or two, for what
    is none, and for keys that stand twice."""
    if len(text) > MAX_ARGUMENTS_CHARS:
        raise ValueError("too long")
    try:
        return parse_strict_json(text)
    except ValueError:
        raise ValueError("not JSON") from None


def build_schemas(tools: Any) -> dict[str, jsonschema_rs.Validator]:
    """Return the schemas in a list of tools as chat templates take it. Raises ValueError saying
    what is wrong with it."""
    if not isinstance(tools, list) or not tools:
        raise ValueError("is no list of tools")
    schemas: dict[str, jsonschema_rs.Validator] = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str) or name in schemas:
            raise ValueError("holds a tool without a name of its own")
        try:
            schemas[name] = jsonschema_rs.validator_for(
                function.get("parameters", {"type": "object"}), offline=True
            )
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise ValueError(
                f"{name}: is no JSON schema: {str(error).partition(chr(10))[0]}"
            ) from None
    return schemas
