"""Tables of Markdown for classes of settings and of the wire: each field's type and default in
words, and the string below it."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "map",
    "array": "list",
}
"""Types of JSON Schema in words."""


def join_lines(text: str) -> str:
    """Return a text as one cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")


def quote_value(value: Any) -> str:
    """Return a value as code, in the spelling of JSON and YAML."""
    if value is None:
        return "none"
    if value == "":
        return "empty"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"`{text}`".replace("|", r"\|")


def describe_bounds(schema: Mapping[str, Any]) -> str:
    """Return the bounds of a number, or of a list's length, in words; nothing without them."""
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    most, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    bounds = [
        f"from {least:,}" if least is not None else "",
        f"above {above:,}" if above is not None else "",
        f"up to {most:,}" if most is not None else "",
        f"below {below:,}" if below is not None else "",
    ]
    items = [schema.get("minItems"), schema.get("maxItems")]
    if items[1] is not None:
        bounds.append(f"{items[0] or 0} to {items[1]} items")
    elif items[0]:
        bounds.append(f"at least {items[0]}")
    return " ".join(filter(None, bounds))


def describe_type(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], links: Mapping[str, str]
) -> str:
    """Return the type of a JSON Schema in words, with links to the classes that the page has."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        inner = definitions.get(name, {})
        short = inner.get("title", name.rpartition(".")[2])
        if short in links:
            return f"[{short}](#{links[short]})"
        return describe_type(inner, definitions, links) if inner else "any value"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(quote_value(value) for value in values)
    choices = schema.get("anyOf", schema.get("oneOf", ()))
    if choices:
        known = [choice for choice in choices if choice.get("type") != "null"]
        words = [describe_type(choice, definitions, links) for choice in known]
        return " or ".join(dict.fromkeys(words))
    kind = schema.get("type", "")
    words = WORDS.get(kind, "any value")
    if schema.get("format") == "path":
        words = "path"
    if "prefixItems" in schema:
        return "pair"
    if kind == "array" and "items" in schema:
        words = f"list of {describe_type(schema['items'], definitions, links)}"
    values = schema.get("additionalProperties") or {}
    for pattern in schema.get("patternProperties", {}).values():
        values = pattern
    if kind == "object" and isinstance(values, dict) and values:
        words = f"map to {describe_type(values, definitions, links)}"
    bounds = describe_bounds(schema)
    return f"{words}, {bounds}" if bounds else words


def read_strings_below(cls: type) -> dict[str, str]:
    """Return the string below each attribute of a class and of its bases."""
    strings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith(("gradus.", "services.", "trainer.")):
            continue
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        body = getattr(definition, "body", [])
        for field, below in zip(body, body[1:], strict=False):
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if is_text and isinstance(field, ast.AnnAssign):
                strings[ast.unparse(field.target)] = str(below.value.value)
    return strings


def describe_default(field: Any) -> str:
    """Return the default of a field as code; nothing for a section, whose fields have their own."""
    if field.is_required():
        return "required"
    default = field.default
    if default is PydanticUndefined:
        default = field.default_factory()
    if isinstance(default, BaseModel):
        return ""
    return quote_value(default)


def list_fields(cls: type[BaseModel], links: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a class: its docstring, and a table of its fields."""
    if cls.__doc__ and cls.__doc__ is not BaseModel.__doc__:
        yield join_lines(inspect.cleandoc(cls.__doc__)) + "\n"
    schema = cls.model_json_schema(by_alias=False)
    strings = read_strings_below(cls)
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in cls.model_fields.items():
        words = describe_type(schema["properties"][name], schema.get("$defs", {}), links)
        meaning = join_lines(field.description or strings.get(name, ""))
        yield f"| `{name}` | {words} | {describe_default(field)} | {meaning} |"
