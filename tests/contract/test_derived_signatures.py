"""Signatures follow the prompt first and leave open what it leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from corpus.rust_signature import derive_signatures
from corpus.signing import sign
from gradus.row_reader import Row
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.grader import RustGrader

CLAMP = "let clamp lo hi x = if x < lo then lo else if x > hi then hi else x"
CLAMP_TESTS = "let () = assert (clamp 1 3 5 = 3); assert (clamp 1 3 0 = 1)"
STACK = (
    "module Stack_list = struct\n  type 'a t = 'a list\n  let empty = []\n"
    "  let push x s = x :: s\n  let top = function [] -> None | x :: _ -> Some x\nend"
)
STACK_TESTS = "let () = assert (Stack_list.(top (push 1 empty)) = Some 1)"


def sign_row(grader: OcamlGrader | RustGrader, **values: Any) -> tuple[str, list[str]]:
    [finding] = sign([Row("tasks.jsonl:1", {"id": "a", **values})], grader.name, grader, 1)
    return str(finding.row.values.get("signature") or ""), finding.problems


@pytest.mark.parametrize(
    "prompt",
    [
        "Write `clamp (lo : int) (hi : int) (x : int) : int`.",
        "val clamp : int -> int -> int -> int",
        "Write `clamp : int -> int -> int -> int`, which limits x.",
        "let clamp (lo : int) (hi : int) (x : int) : int =",
        "```ocaml\nval clamp :\n  int ->\n  int -> int -> int\n(** Limits. *)\n```",
        "Write clamp, which limits a number.",
    ],
)
def test_a_value_has_the_type_of_the_prompt_or_of_its_use(
    prompt: str, ocaml_grader: OcamlGrader
) -> None:
    signature, problems = sign_row(ocaml_grader, prompt=prompt, solution=CLAMP, tests=CLAMP_TESTS)
    assert (signature, problems) == ("val clamp : int -> int -> int -> int\n", [])


def test_what_the_prompt_or_the_tests_need_general_stays_general(
    ocaml_grader: OcamlGrader,
) -> None:
    general = "val same : 'a -> 'a\n"
    for prompt, tests in (
        ("val same : 'a -> 'a", "let () = assert (same 1 = 1)"),
        ("Write same.", "let () = assert (same 1 = 1); assert (same 'a' = 'a')"),
    ):
        signature, problems = sign_row(
            ocaml_grader, prompt=prompt, solution="let same x = x", tests=tests
        )
        assert (signature, problems) == (general, [])


def test_a_type_is_open_unless_the_prompt_or_the_tests_define_it(
    ocaml_grader: OcamlGrader,
) -> None:
    row = {"solution": STACK, "tests": STACK_TESTS}
    signature, problems = sign_row(ocaml_grader, prompt="Write Stack_list.", **row)
    assert not problems
    for line in ("type 'a t", "val push : 'a -> 'a t -> 'a t", "val top : 'a t -> 'a option"):
        assert f"    {line}\n" in signature
    told = "Write Stack_list with `type 'a t = 'a list`."
    assert "type 'a t = 'a list" in sign_row(ocaml_grader, prompt=told, **row)[0]
    uses = "let () = assert (Stack_list.push 1 [2] = [1; 2])"
    signature, problems = sign_row(
        ocaml_grader, prompt="Write Stack_list.", solution=STACK, tests=uses
    )
    assert not problems
    assert "val push : 'a -> 'a list -> 'a list" in signature


def test_every_value_of_an_interface_has_the_type_of_the_prompt(
    ocaml_grader: OcamlGrader,
) -> None:
    names = ("first", "second", "third", "fourth")
    types = [f"val {name} : 'a list -> 'a list\n" for name in names]
    solution = "\n".join(f"let {name} l = List.rev l" for name in names)
    tests = "\n".join(f"let () = assert ({name} [1; 2] = [2; 1])" for name in names)
    prompt = f"Write\n\n{''.join(types)}"
    signature, problems = sign_row(ocaml_grader, prompt=prompt, solution=solution, tests=tests)
    assert (signature, problems) == ("".join(types), [])


def test_what_only_the_reference_uses_is_not_declared(ocaml_grader: OcamlGrader) -> None:
    solution = (
        "module Ints = Set.Make (Int)\nexception Found\ntype side = Left_side | Right_side\n"
        "type answer = Yes | No\nlet f x = if x > 0 then Yes else No"
    )
    signature, problems = sign_row(
        ocaml_grader, prompt="Write f.", solution=solution, tests="let () = assert (f 1 = Yes)"
    )
    assert (signature, problems) == ("type answer = Yes | No\nval f : int -> answer\n", [])


def test_a_prompt_that_the_reference_contradicts_is_not_followed(
    ocaml_grader: OcamlGrader,
) -> None:
    signature, problems = sign_row(
        ocaml_grader,
        prompt="val f : string -> string",
        solution="let f x = x + 1",
        tests="let () = assert (f 1 = 2)",
    )
    assert (signature, problems) == ("val f : int -> int\n", [])


@pytest.mark.parametrize(
    ("prompt", "head"),
    [
        ("Write `fn largest(list: &[i32]) -> i32`.", "largest(list: &[i32]) -> i32"),
        ("```rust\npub fn largest(xs: &[i32]) -> i32 {\n    todo!()\n}\n```",
         "largest(xs: &[i32]) -> i32"),
        ("pub fn largest(xs: &[i32]) -> i32\n\nIt returns the largest.",
         "largest(xs: &[i32]) -> i32"),
        ("Write largest.", "largest<T: Ord + Copy>(list: &[T]) -> T"),
    ],
)  # fmt: skip
def test_a_rust_function_has_the_head_of_the_prompt(prompt: str, head: str) -> None:
    solution = "pub fn largest<T: Ord + Copy>(list: &[T]) -> T { *list.iter().max().unwrap() }"
    tests = "use solution::largest; #[test] fn a() { assert_eq!(largest(&[1, 2]), 2); }"
    first, *_ = derive_signatures(solution, tests, prompt)
    assert first.signature == f"pub fn {head};\n"


def test_what_the_rust_prompt_does_not_ask_is_not_declared(rust_grader: RustGrader) -> None:
    signature, problems = sign_row(
        rust_grader,
        prompt="Write `pub fn twice(x: i64) -> i64`.",
        solution="pub const fn twice(n: i64) -> i64 { 2 * n }",
        tests="use solution::twice; #[test] fn a() { assert_eq!(twice(2), 4); }",
    )
    assert (signature, problems) == ("pub fn twice(x: i64) -> i64;\n", [])
