"""Typed inputs for OCaml functions, and what code returns for them.

Types come from a signature. Values are drawn from the literals of the tests and the reference
answer and from their neighbours, so that they stay near what the task speaks of: a negative number
only where the tests have one, an empty list or text likewise.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.graders.ocaml.toolchain import OcamlToolchain
from services.sandbox import Command, Limits, Sandbox

_TOKEN = re.compile(r"\s*(->|[a-z_][\w']*|'[a-z]\w*|[()*,])")
_VALUE = re.compile(r"^val ([a-z_][\w']*)\s*:\s*", re.MULTILINE)
_ITEM = re.compile(r"^(?:val|type|exception|module|external|end|and)\b", re.MULTILINE)
_BASE = frozenset({"int", "bool", "string", "char", "float", "unit"})
_CONTAINERS = {"list": 1, "array": 1, "option": 1, "result": 2}
_MAX_LENGTH = 4
_SCRIPT = "/box/inputs.ml"
_LIMITS = Limits(cpu_s=2, wall_s=30.0, memory_mb=1024, processes=4, scratch_mb=0, report_kb=1024)
_PRELUDE = """
external gradus_open : int -> out_channel = "caml_ml_open_descriptor_out"
let gradus_report = gradus_open 3
let gradus_case number show =
  let text = try show () with gradus_raised -> "!" ^ Printexc.to_string gradus_raised in
  Printf.fprintf gradus_report "%d\\t%s\\n" number (String.escaped text);
  flush gradus_report
let gradus_int n = if n < 0 then Printf.sprintf "(%d)" n else string_of_int n
let gradus_bool = string_of_bool
let gradus_unit () = "()"
let gradus_char = Printf.sprintf "%C"
let gradus_string = Printf.sprintf "%S"
let gradus_list show items = "[" ^ String.concat "; " (List.map show items) ^ "]"
let gradus_array show items = "[|" ^ String.concat "; " (List.map show (Array.to_list items)) ^ "|]"
let gradus_option show = function None -> "None" | Some x -> "(Some " ^ show x ^ ")"
let gradus_result show_ok show_error = function
  | Ok x -> "(Ok " ^ show_ok x ^ ")"
  | Error x -> "(Error " ^ show_error x ^ ")"
"""


@dataclass(frozen=True, slots=True)
class Type:
    """A type that values can be made of: a base type, a container, or `*` for a tuple."""

    name: str
    arguments: tuple[Type, ...] = ()

    def render_printer(self) -> str:
        """Return OCaml code of a function that prints a value as a literal."""
        if self.name != "*":
            arguments = "".join(f" {inner.render_printer()}" for inner in self.arguments)
            return f"(gradus_{self.name}{arguments})"
        names = [f"x{number}" for number in range(len(self.arguments))]
        shown = []
        for name, inner in zip(names, self.arguments, strict=True):
            shown.append(f"{inner.render_printer()} {name}")
        parts = ' ^ ", " ^ '.join(shown)
        return f'(fun ({", ".join(names)}) -> "(" ^ {parts} ^ ")")'

    def holds_floats(self) -> bool:
        return self.name == "float" or any(inner.holds_floats() for inner in self.arguments)


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    parameters: tuple[Type, ...]
    returned: Type


class UnknownType(Exception):
    """A type that no value can be made of."""


def find_functions(signature: str) -> list[Function]:
    """Return the functions of a signature whose values can be made and compared exactly; those of
    modules, with labels, functional arguments, types of their own or floats as results are left
    out."""
    functions = []
    for match in _VALUE.finditer(signature):
        following = _ITEM.search(signature, match.end())
        text = signature[match.end() : following.start() if following else len(signature)]
        try:
            *parameters, returned = _parse_arrows(text)
        except UnknownType:
            continue
        if parameters and not returned.holds_floats():
            functions.append(Function(match[1], tuple(parameters), returned))
    return functions


def _parse_arrows(text: str) -> list[Type]:
    tokens = _tokenize(text)
    parsed = [_parse_tuple(tokens)]
    while tokens and tokens[0] == "->":
        tokens.pop(0)
        parsed.append(_parse_tuple(tokens))
    if tokens:
        raise UnknownType(tokens[0])
    return parsed


def _tokenize(text: str) -> list[str]:
    tokens = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnknownType(text[at:])
        tokens.append(match[1])
        at = match.end()
    return tokens


def _parse_tuple(tokens: list[str]) -> Type:
    items = [_parse_postfix(tokens)]
    while tokens and tokens[0] == "*":
        tokens.pop(0)
        items.append(_parse_postfix(tokens))
    return items[0] if len(items) == 1 else Type("*", tuple(items))


def _parse_postfix(tokens: list[str]) -> Type:
    if not tokens:
        raise UnknownType("nothing")
    word = tokens.pop(0)
    arguments: tuple[Type, ...]
    if word == "(":
        items = [_parse_tuple(tokens)]
        while tokens and tokens[0] == ",":
            tokens.pop(0)
            items.append(_parse_tuple(tokens))
        if not tokens or tokens.pop(0) != ")":
            raise UnknownType("a function")
        arguments = tuple(items)
    elif word.startswith("'"):
        arguments = (Type("int"),)
    elif word in _BASE:
        arguments = (Type(word),)
    else:
        raise UnknownType(word)
    while tokens and _CONTAINERS.get(tokens[0]) == len(arguments):
        arguments = (Type(tokens.pop(0), arguments),)
    if len(arguments) != 1:
        raise UnknownType(word)
    return arguments[0]


class Values:
    """Draws literals of a type."""

    def __init__(self, tests: str, solution: str, seed: str) -> None:
        self._draw = random.Random(seed)
        numbers = [int(text) for text in re.findall(r"(?<![\w.])\d{1,9}(?![\w.])", tests)]
        constants = [int(text) for text in re.findall(r"(?<![\w.])\d{1,6}(?![\w.])", solution)]
        bound = max(numbers, default=3) + 1
        near = {0, 1, 2, 3}
        for number in {*numbers, *constants}:
            near |= {number - 1, number, number + 1}
        if re.search(r"\(\s*-\s*\d", tests):
            near |= {-number for number in near}
        self._ints = sorted(number for number in near if -bound <= number <= bound)
        if not re.search(r"\(\s*-\s*\d", tests):
            self._ints = [number for number in self._ints if number >= 0]
        self._floats: list[str] = sorted(set(re.findall(r"(?<![\w.])\d+\.\d*", tests))) or [
            "1.",
            "2.5",
        ]
        texts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', tests)
        self._texts: list[str] = sorted({*texts, "a", "ab"} - {""})
        self._chars: list[str] = sorted({*re.findall(r"'([^'\\\n])'", tests), "a", "b"})
        self._has_empty_text = '""' in tests
        self._has_empty_list = re.search(r"\[\s*\]|\[\|\s*\|\]", tests) is not None

    def draw(self, drawn: Type) -> str:
        """Return a literal, in parentheses where it needs them."""
        draw = self._draw
        inner = drawn.arguments
        if drawn.name == "int":
            number = draw.choice(self._ints)
            return f"({number})" if number < 0 else str(number)
        if drawn.name == "bool":
            return draw.choice(("true", "false"))
        if drawn.name == "float":
            return draw.choice(self._floats)
        if drawn.name == "char":
            return f"'{draw.choice(self._chars)}'"
        if drawn.name == "string":
            return f'"{self._draw_text()}"'
        if drawn.name in ("list", "array"):
            length = draw.randint(0 if self._has_empty_list else 1, _MAX_LENGTH)
            items = "; ".join(self.draw(inner[0]) for _ in range(length))
            return f"[{items}]" if drawn.name == "list" else f"[|{items}|]"
        if drawn.name == "option":
            return "None" if draw.random() < 0.3 else f"(Some {self.draw(inner[0])})"
        if drawn.name == "result":
            is_ok = draw.random() < 0.6
            return f"(Ok {self.draw(inner[0])})" if is_ok else f"(Error {self.draw(inner[1])})"
        if drawn.name == "*":
            return f"({', '.join(self.draw(item) for item in inner)})"
        return "()"

    def _draw_text(self) -> str:
        """Return a text of the tests, a part of one, or two of them."""
        draw = self._draw
        text = draw.choice(self._texts)
        kind = draw.random()
        if "\\" not in text and kind < 0.3:
            at = draw.randrange(len(text))
            return text[at:] if self._has_empty_text or at else text
        if kind < 0.4 and self._has_empty_text:
            return ""
        return text + draw.choice(self._texts) if kind > 0.8 else text


def draw_calls(
    functions: Sequence[Function], values: Values, number: int
) -> list[tuple[str, Type]]:
    """Return up to `number` different calls of each function, each with the type of its result."""
    calls: dict[str, Type] = {}
    for function in functions:
        for _ in range(number):
            arguments = " ".join(values.draw(drawn) for drawn in function.parameters)
            calls[f"{function.name} {arguments}"] = function.returned
    return list(calls.items())


class OcamlRuns:
    """Runs code on calls in a box, by OCaml's toplevel."""

    def __init__(self, toolchain: OcamlToolchain, sandbox: Sandbox) -> None:
        self._toolchain = toolchain
        self._sandbox = sandbox

    def run(self, source: str, calls: Sequence[tuple[str, Type]]) -> list[str | None]:
        """Return what each call returns, as a literal: `!` and an exception where it raises one,
        None where it and those behind it did not end."""
        parts = [_PRELUDE, f"module Solution = struct\n{source}\nend\nopen Solution;;\n"]
        for number, (call, returned) in enumerate(calls):
            printer = returned.render_printer()
            parts.append(f"let () = gradus_case {number} (fun () -> {printer} ({call}));;\n")
        command = Command(
            argv=(
                str(Path(self._toolchain.ocamlc).with_name("ocaml")),
                *("-noinit", "-w", "-a", _SCRIPT),
            ),
            limits=_LIMITS,
            files={_SCRIPT: "".join(parts).encode()},
            binds=self._toolchain.compile_binds,
            environment=self._toolchain.environment,
        )
        results: list[str | None] = [None] * len(calls)
        for number, text in _iter_reports(self._sandbox.run(command).report):
            if number < len(results):
                results[number] = text
        return results


def _iter_reports(report: bytes) -> Iterator[tuple[int, str]]:
    for line in report.decode(errors="replace").splitlines():
        number, tab, text = line.partition("\t")
        if tab and number.isdecimal():
            yield int(number), _unescape(text)


def _unescape(text: str) -> str:
    """Undo `String.escaped`."""
    escapes = {"n": "\n", "t": "\t", "b": "\b", "r": "\r", "\\": "\\", '"': '"', "'": "'", " ": " "}

    def replace(match: re.Match[str]) -> str:
        return escapes.get(match[1]) or chr(int(match[1]))

    return re.sub(r"\\(\d{3}|.)", replace, text)
