"""Harder tests of OCaml tasks: calls of the functions that the signature declares, with typed
literals, run by OCaml's toplevel in a box."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from corpus.drafts import Unusable
from corpus.hardening.engine import ProposedTest, iter_failed
from corpus.hardening.known_calls import read_curried
from corpus.hardening.typed_values import Function, Kind, Type, UnknownType, Values, draw_calls
from corpus.ocaml_mutations import OcamlMutations
from services.graders.ocaml.toolchain import OcamlToolchain
from services.sandbox import Command, Limits, Sandbox

HEADING = "(* proposed by `gradus tasks harden` *)"
_CALLS = 60
"""Calls of each function that are tried."""
_TOKEN = re.compile(r"\s*(->|[a-z_][\w']*|'[a-z]\w*|[()*,])")
_VALUE = re.compile(r"^val ([a-z_][\w']*)\s*:\s*", re.MULTILINE)
_ITEM = re.compile(r"^(?:val|type|exception|module|external|end|and)\b", re.MULTILINE)
_BASE = {
    "int": Kind.INTEGER,
    "bool": Kind.BOOLEAN,
    "string": Kind.TEXT,
    "char": Kind.CHARACTER,
    "float": Kind.FLOAT,
    "unit": Kind.UNIT,
}
_CONTAINERS = {"list": Kind.LIST, "array": Kind.LIST, "option": Kind.OPTION, "result": Kind.RESULT}
_ARITIES = {"list": 1, "array": 1, "option": 1, "result": 2}
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


class OcamlHook:
    """Hardening of OCaml tasks; an `engine.Hook`."""

    def __init__(self, toolchain: OcamlToolchain, sandbox: Sandbox) -> None:
        self.mutations = OcamlMutations(toolchain, sandbox)
        self._runs = OcamlRuns(toolchain, sandbox)

    def propose(self, task: Mapping[str, Any], solution: str, seed: str) -> list[ProposedTest]:
        """Return a test for each call for which the reference returns a value. Calls for which it
        raises are no tests: they may break what the prompt promises."""
        functions = find_functions(str(task.get("signature") or ""))
        tests = str(task.get("tests"))
        if task.get("framework") == "ounit2" or "OUnit" in tests:
            raise Unusable("tests of OUnit are not extended")
        if task.get("packages") or task.get("files"):
            raise Unusable("tasks with packages or files are not run on inputs")
        if not functions:
            raise Unusable(
                "its signature has no function of base types, lists, options and the like"
            )
        values = read_values(tests, solution, seed)
        calls = draw_calls(functions, values, _CALLS, _render_call, tests, read_curried)
        proposed = []
        returned = self._runs.run(solution, list(calls.items()))
        for (call, result), text in zip(calls.items(), returned, strict=True):
            if text is not None and not text.startswith("!"):
                test = f"let () = assert ({call} = {text})"
                proposed.append(ProposedTest(test, (call, result), text))
        return proposed

    def find_failures(
        self, task: Mapping[str, Any], code: str, tests: Sequence[ProposedTest]
    ) -> Iterator[ProposedTest]:
        """Yield tests up to the one at which the code does not end."""
        return iter_failed(tests, self._runs.run(code, [test.call for test in tests]))

    def add_tests(self, task: Mapping[str, Any], tests: Sequence[ProposedTest]) -> dict[str, Any]:
        texts = [test.text for test in tests]
        return {"tests": "\n".join([str(task["tests"]).rstrip(), HEADING, *texts, ""])}


def read_values(tests: str, solution: str, seed: str) -> Values:
    """Return literals near those of the tests."""
    return Values(
        tests,
        solution,
        seed,
        _render_literal,
        negative=r"\(\s*-\s*\d",
        empty_list=r"\[\s*\]|\[\|\s*\|\]",
    )


def _render_call(function: str, arguments: Sequence[str]) -> str:
    return f"{function} {' '.join(arguments)}"


def _render_literal(drawn: Type, word: str, parts: Sequence[str]) -> str:
    match drawn.kind:
        case Kind.INTEGER:
            return f"({word})" if word.startswith("-") else word
        case Kind.CHARACTER:
            return f"'{word}'"
        case Kind.TEXT:
            return f'"{word}"'
        case Kind.LIST:
            items = "; ".join(parts)
            return f"[|{items}|]" if drawn.name == "array" else f"[{items}]"
        case Kind.OPTION | Kind.RESULT:
            return f"({word} {parts[0]})" if parts else word
        case Kind.TUPLE:
            return f"({', '.join(parts)})"
        case Kind.UNIT:
            return "()"
    return word


def render_printer(printed: Type) -> str:
    """Return OCaml code of a function that prints a value as a literal."""
    inner_printers = [render_printer(inner) for inner in printed.arguments]
    if printed.kind is not Kind.TUPLE:
        return f"({' '.join([f'gradus_{printed.name}', *inner_printers])})"
    names = [f"x{number}" for number in range(len(inner_printers))]
    shown = []
    for name, printer in zip(names, inner_printers, strict=True):
        shown.append(f"{printer} {name}")
    parts = ' ^ ", " ^ '.join(shown)
    return f'(fun ({", ".join(names)}) -> "(" ^ {parts} ^ ")")'


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
    return items[0] if len(items) == 1 else Type(Kind.TUPLE, "*", tuple(items))


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
        arguments = (Type(Kind.INTEGER, "int"),)
    elif word in _BASE:
        arguments = (Type(_BASE[word], word),)
    else:
        raise UnknownType(word)
    while tokens and _ARITIES.get(tokens[0]) == len(arguments):
        container = tokens.pop(0)
        arguments = (Type(_CONTAINERS[container], container, arguments),)
    if len(arguments) != 1:
        raise UnknownType(word)
    return arguments[0]


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
            printer = render_printer(returned)
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
