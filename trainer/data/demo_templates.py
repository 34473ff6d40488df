"""How the kinds of the demo's tasks are written in OCaml and in Rust: answers, usual mistakes, tests, random damage.

What a kind computes is in `corpus`; nothing here runs or grades.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

Case = tuple[Any, Any]
"""An argument and what the right function gives for it."""
Change = tuple[str, str]
"""A text and what it is replaced with."""


class Shape(Enum):
    """The type of the function that a task asks for."""

    NUMBER = auto()
    PAIR = auto()
    """From a number."""
    FOLD = auto()
    """From a list to a number."""
    LIST = auto()
    """From a list to a list."""


@dataclass(frozen=True, slots=True)
class Language:
    """`{a}` stands for a task's constant; answers and mistakes are by the name of the kind."""

    comment: str
    """With `{}` for the wording."""
    signatures: Mapping[Shape, str]
    answers: Mapping[str, str]
    mistakes: Mapping[str, str]
    tests: Callable[[Sequence[Case]], str]
    swaps: tuple[Change, ...]
    """Operators and names that are taken for each other."""
    misnamed: Change
    hidden: Change
    """Makes the function one that the tests do not find."""
    misspelt: Change
    head: int
    """Characters at the start that no damage takes away."""

    def damaged(self, answer: str, a: int, constants: Sequence[int], draw: random.Random) -> str:
        """The answer with one random fault: a wrong constant, operator or name, a lost character, a misspelt sign."""
        fate = draw.random()
        if fate < 0.35:
            return answer.replace(str(a), str(draw.choice(constants)))
        if fate < 0.6:
            fitting = [(old, new) for old, new in self.swaps if old in answer]
            return answer.replace(*(draw.choice(fitting) if fitting else self.misnamed))
        if fate < 0.75:
            return answer.replace(*self.hidden)
        if fate < 0.9:
            at = draw.randrange(self.head, len(answer))
            return answer[:at] + answer[at + 1 :]
        return answer.replace(*self.misspelt, 1)


# ---------------------------------------------------------------------------------------------------------- OCaml


def _ocaml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_ocaml, value))})"
    if isinstance(value, list):
        return f"[{'; '.join(map(_ocaml, value))}]"
    return f"({value})" if value < 0 else str(value)


def _ocaml_tests(cases: Sequence[Case]) -> str:
    lines = [f"  assert (f {_ocaml(x)} = {_ocaml(y)})" for x, y in cases]
    return "let () =\n" + ";\n".join(lines) + "\n"


OCAML = Language(
    comment="(* {} *)\n",
    signatures={
        Shape.NUMBER: "val f : int -> int",
        Shape.PAIR: "val f : int -> int * int",
        Shape.FOLD: "val f : int list -> int",
        Shape.LIST: "val f : int list -> int list",
    },
    answers={
        "add": "let f x = x + {a}",
        "subtract": "let f x = x - {a}",
        "multiply": "let f x = x * {a}",
        "pair": "let f x = (x, {a})",
        "sum": "let f l = List.fold_left (+) {a} l",
        "map_add": "let f l = List.map (fun x -> x + {a}) l",
        "minus_x": "let f x = {a} - x",
        "maximum": "let f l = List.fold_left max {a} l",
        "length": "let f l = List.length l + {a}",
        "map_times": "let f l = List.map (fun x -> x * {a}) l",
        "keep_above": "let f l = List.filter (fun x -> x > {a}) l",
        "cons_reversed": "let f l = {a} :: List.rev l",
    },
    mistakes={
        "minus_x": "let f x = x - {a}",
        "maximum": "let f l = List.fold_left min {a} l",
        "length": "let f l = List.length l - {a}",
        "map_times": "let f l = List.map (fun x -> x + {a}) l",
        "keep_above": "let f l = List.filter (fun x -> x < {a}) l",
        "cons_reversed": "let f l = List.rev ({a} :: l)",
    },
    tests=_ocaml_tests,
    swaps=(
        (" + ", " - "),
        (" - ", " + "),
        (" * ", " + "),
        (" > ", " < "),
        ("List.map", "List.filter"),
        ("fold_left", "fold_right"),
        ("List.rev", "List.length"),
        ("max", "min"),
        ("List.length", "List.rev"),
    ),
    misnamed=("let f", "let g"),
    hidden=("let f", "let rec g"),
    misspelt=(" = ", " == "),
    head=len("let "),
)


# ----------------------------------------------------------------------------------------------------------- Rust


def _rust(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_rust, value))})"
    return f"[{', '.join(map(_rust, value))}]" if isinstance(value, list) else str(value)


def _rust_tests(cases: Sequence[Case]) -> str:
    written = ["use solution::f;\n"]
    for number, (x, y) in enumerate(cases, 1):
        argument = f"&{_rust(x)}" if isinstance(x, list) else _rust(x)
        written.append(f"#[test]\nfn case_{number}() {{\n    assert_eq!(f({argument}), {_rust(y)});\n}}\n")
    return "\n".join(written)


RUST = Language(
    comment="// {}\n",
    signatures={
        Shape.NUMBER: "pub fn f(x: i64) -> i64;",
        Shape.PAIR: "pub fn f(x: i64) -> (i64, i64);",
        Shape.FOLD: "pub fn f(l: &[i64]) -> i64;",
        Shape.LIST: "pub fn f(l: &[i64]) -> Vec<i64>;",
    },
    answers={
        "add": "pub fn f(x: i64) -> i64 { x + {a} }",
        "subtract": "pub fn f(x: i64) -> i64 { x - {a} }",
        "multiply": "pub fn f(x: i64) -> i64 { x * {a} }",
        "pair": "pub fn f(x: i64) -> (i64, i64) { (x, {a}) }",
        "sum": "pub fn f(l: &[i64]) -> i64 { l.iter().sum::<i64>() + {a} }",
        "map_add": "pub fn f(l: &[i64]) -> Vec<i64> { l.iter().map(|x| x + {a}).collect() }",
        "minus_x": "pub fn f(x: i64) -> i64 { {a} - x }",
        "maximum": "pub fn f(l: &[i64]) -> i64 { l.iter().fold({a}, |m, x| m.max(*x)) }",
        "length": "pub fn f(l: &[i64]) -> i64 { l.len() as i64 + {a} }",
        "map_times": "pub fn f(l: &[i64]) -> Vec<i64> { l.iter().map(|x| x * {a}).collect() }",
        "keep_above": "pub fn f(l: &[i64]) -> Vec<i64> { l.iter().copied().filter(|x| *x > {a}).collect() }",
        "cons_reversed": "pub fn f(l: &[i64]) -> Vec<i64> { let mut v = l.to_vec(); v.push({a}); v.reverse(); v }",
    },
    mistakes={
        "minus_x": "pub fn f(x: i64) -> i64 { x - {a} }",
        "maximum": "pub fn f(l: &[i64]) -> i64 { l.iter().fold({a}, |m, x| m.min(*x)) }",
        "length": "pub fn f(l: &[i64]) -> i64 { l.len() as i64 - {a} }",
        "map_times": "pub fn f(l: &[i64]) -> Vec<i64> { l.iter().map(|x| x + {a}).collect() }",
        "keep_above": "pub fn f(l: &[i64]) -> Vec<i64> { l.iter().copied().filter(|x| *x < {a}).collect() }",
        "cons_reversed": "pub fn f(l: &[i64]) -> Vec<i64> { let mut v = l.to_vec(); v.reverse(); v.push({a}); v }",
    },
    tests=_rust_tests,
    swaps=(
        (" + ", " - "),
        (" - ", " + "),
        (" * ", " + "),
        ("*x > ", "*x < "),
        ("map(", "filter("),
        ("fold(", "map("),
        ("reverse()", "sort()"),
        ("max(", "min("),
        ("len()", "count()"),
    ),
    misnamed=("fn f", "fn g"),
    hidden=("pub fn f", "fn f"),
    misspelt=("pub fn ", "fn pub "),
    head=len("pub fn "),
)

LANGUAGES: Mapping[str, Language] = {"ocaml": OCAML, "rust": RUST}
"""By the name of the grader that judges them."""
