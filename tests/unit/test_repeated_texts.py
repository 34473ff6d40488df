"""Steps that the graders take over completions of one repeated piece: twice the text, twice the
steps.

Steps are lines of Python, which are the same on every machine; `tests.bench.repetition` measures
CPU, regular expressions included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from gradus.extract import extract
from gradus.tasks.ocaml import OcamlTask
from gradus.tasks.rust import RustTask
from services.degenerate import find_degenerate_flags
from services.graders.ocaml.syntax import SYNTAX, find_needed_names
from services.graders.rust.answer import read_answer
from services.graders.rust.lexer import TooManyTokens, remove_comments
from services.graders.rust.own_words import find_own_word
from services.graders.rust.signature import parse_signature
from tests.bench.repeated_texts import PIECES

SMALL, FACTOR, FIXED = 2_000, 2, 3_000
"""Characters of the smaller text, how much longer the other is, and steps that do not depend on the
text."""


def rust(completion: str) -> None:
    task = RustTask(tests="use solution::*; #[test] fn a() { f(1); }")
    answer = read_answer(completion, task, parse_signature("pub fn f(x: u8);", "solution"))
    try:
        uncommented = remove_comments(answer.form.text)
        _ = answer.forbidden, answer.items, find_own_word(task, answer)
        find_degenerate_flags(answer.form, uncommented=uncommented, tests_passed=0, passed=False)
    except TooManyTokens:
        pass


def ocaml(completion: str) -> None:
    task = OcamlTask(tests="let () = assert (f 1 = 2)")
    answer = extract(completion, task.FENCES, SYNTAX, lambda: find_needed_names(task))
    find_degenerate_flags(answer, uncommented=answer.text, tests_passed=0, passed=False)


def steps(function: Callable[[str], None], text: str) -> int:
    """Lines of Python that run in `function(text)`."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("function", [rust, ocaml])
def test_twice_a_text_takes_twice_the_steps(function: Callable[[str], None]) -> None:
    grown = {}
    for piece in PIECES[function.__name__]:
        number = max(1, SMALL // len(piece))
        short, long = steps(function, piece * number), steps(function, piece * number * FACTOR)
        if long > 1.2 * FACTOR * short + FIXED:
            grown[piece] = (short, long)
    assert grown == {}
