"""Calls of OCaml and Rust that `gradus tasks harden` proposes have what the tests' calls share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from corpus.hardening import ocaml, rust
from corpus.hardening.known_calls import read_curried, read_parenthesised
from corpus.hardening.typed_values import draw_calls


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("assert (f 1 (-2) = 3)", [1, -2]),
        ('assert (f [1; 2] "a\\"b" = [])', [[1, 2], 'a\\"b']),
        ("f [] (Some (3, 'x'))", [[], ["Some", [3, "x"]]]),
        ("f [|true|] None", [[True], ["None"]]),
        ("f 2.5 (Error 1_000)", [2.5, ["Error", 1000]]),
        ("f x 1", None),
        ("f 1", None),
        ("f' 1 2", None),
        ("f (g 1) 2", None),
    ],
)
def test_calls_of_ocaml_are_read(text: str, arguments: list[Any] | None) -> None:
    assert read_curried(text, "f", 2) == ([] if arguments is None else [arguments])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("assert_eq!(solution::f(1, -2), 3);", [1, -2]),
        ('f(&[1, 2], "a")', [[1, 2], "a"]),
        ("f(vec![], Some((3, 'x')))", [[], ["Some", [3, "x"]]]),
        ('f(&vec!["a".to_string()], None,)', [["a"], ["None"]]),
        ("f(x, 1)", None),
        ("f(1)", None),
        ("f (1, 2)", None),
        ("f(1u8, 2)", None),
        ("f(1 + 1, 2)", None),
    ],
)
def test_calls_of_rust_are_read(text: str, arguments: list[Any] | None) -> None:
    assert read_parenthesised(text, "f", 2) == ([] if arguments is None else [arguments])


def read_ocaml(tests: Sequence[str]) -> list[list[Any]]:
    text = "\n".join(f"let () = assert ({test} = 1)" for test in tests)
    functions = ocaml.find_functions("val f : int list -> int -> int")
    values = ocaml.read_values(text, "", "seed")
    drawn = draw_calls(functions, values, 60, ocaml._render_call, text, read_curried)
    return [call for each in drawn for call in read_curried(each, "f", 2)]


def test_new_calls_have_what_the_tests_share() -> None:
    calls = read_ocaml(["f [1; 3; 5] 3", "f [2; 4] 9", "f [1] 0", "f [3; 8; 9] 8"])
    assert len(calls) > 10
    assert all(items == sorted(set(items)) for items, _ in calls)
    assert any(items != sorted(items) for items, _ in read_ocaml(["f [1; 3; 5] 3", "f [2; 4] 9"]))


def test_new_calls_of_rust_have_what_the_tests_share() -> None:
    text = "f(1, 9, 5); f(2, 4, 0); f(0, 3, 12)"
    functions = rust.find_functions("pub fn f(low: i64, high: i64, x: i64) -> i64;")
    values = rust.read_values(text, "", "seed")
    drawn = draw_calls(functions, values, 60, rust._render_call, text, read_parenthesised)
    calls = [call for each in drawn for call in read_parenthesised(each, "f", 3)]
    assert len(calls) > 10
    assert all(low < high for low, high, _ in calls)
    assert any(x < low for low, _, x in calls)
    assert any(x > high for _, high, x in calls)
