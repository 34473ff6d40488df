"""Tiny OCaml tasks that a 0.6 M parameter model learns on a CPU in minutes, and worked answers, many of them wrong.

Twelve kinds of task times the constants 1 to 25, such as `(* keep above 7 *)`. What overlaps, so that nobody reads more
into the numbers than there is:
- a held-out (kind, constant) pair occurs in neither the GRPO tasks nor the warm start;
- every kind and every constant occurs in both, only not together. The demo shows that rewards teach the right program
  for each kind and that this carries over to pairs never rewarded; it shows nothing about new kinds of task.

The warm start is wrong on purpose. Six kinds carry one fixed wrong answer most of the time, so that even the likeliest
completion is wrong there, and every third row is damaged at random. Nothing here grades or trains.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gradus.errors import Misuse

CONSTANTS = range(1, 26)
HELD_OUT_PER_KIND = 5
CASES_PER_TASK = 5
WARM_START_ROWS = 10_000
MISTAKEN_SHARE = 0.6
"""Of the rows of a kind that has a mistake."""
DAMAGED_SHARE = 0.35
SEED = 7

Function = Callable[[int, Any], Any]


@dataclass(frozen=True, slots=True)
class Mistake:
    """A wrong answer that the warm start teaches, and what it computes."""

    answer: str
    computes: Function


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of task; `{a}` stands for the constant."""

    name: str
    wording: str
    answer: str
    signature: str
    computes: Function
    mistake: Mistake | None = None

    @property
    def takes_list(self) -> bool:
        return self.signature.startswith("val f : int list")


INT = "val f : int -> int"
FOLD = "val f : int list -> int"
LIST = "val f : int list -> int list"

KINDS = (
    Kind("add", "add {a}", "let f x = x + {a}", INT, lambda a, x: x + a),
    Kind("subtract", "subtract {a}", "let f x = x - {a}", INT, lambda a, x: x - a),
    Kind("multiply", "multiply by {a}", "let f x = x * {a}", INT, lambda a, x: x * a),
    Kind("pair", "pair with {a}", "let f x = (x, {a})", "val f : int -> int * int", lambda a, x: (x, a)),
    Kind("sum", "sum list plus {a}", "let f l = List.fold_left (+) {a} l", FOLD, lambda a, xs: sum(xs) + a),
    Kind("map_add", "map add {a}", "let f l = List.map (fun x -> x + {a}) l", LIST, lambda a, xs: [x + a for x in xs]),
    Kind(
        "minus_x",
        "{a} minus x",
        "let f x = {a} - x",
        INT,
        lambda a, x: a - x,
        Mistake("let f x = x - {a}", lambda a, x: x - a),
    ),
    Kind(
        "maximum",
        "max of list and {a}",
        "let f l = List.fold_left max {a} l",
        FOLD,
        lambda a, xs: max([a, *xs]),
        Mistake("let f l = List.fold_left min {a} l", lambda a, xs: min([a, *xs])),
    ),
    Kind(
        "length",
        "length plus {a}",
        "let f l = List.length l + {a}",
        FOLD,
        lambda a, xs: len(xs) + a,
        Mistake("let f l = List.length l - {a}", lambda a, xs: len(xs) - a),
    ),
    Kind(
        "map_times",
        "map times {a}",
        "let f l = List.map (fun x -> x * {a}) l",
        LIST,
        lambda a, xs: [x * a for x in xs],
        Mistake("let f l = List.map (fun x -> x + {a}) l", lambda a, xs: [x + a for x in xs]),
    ),
    Kind(
        "keep_above",
        "keep above {a}",
        "let f l = List.filter (fun x -> x > {a}) l",
        LIST,
        lambda a, xs: [x for x in xs if x > a],
        Mistake("let f l = List.filter (fun x -> x < {a}) l", lambda a, xs: [x for x in xs if x < a]),
    ),
    Kind(
        "cons_reversed",
        "cons {a} on reversed",
        "let f l = {a} :: List.rev l",
        LIST,
        lambda a, xs: [a, *xs[::-1]],
        Mistake("let f l = List.rev ({a} :: l)", lambda a, xs: [*xs[::-1], a]),
    ),
)


def demo_rows(name: str, split: str = "train") -> Iterator[dict[str, Any]]:
    """The rows of `demo:ocaml`, `demo:ocaml/held-out` or `demo:ocaml/warm-start`; always the same ones."""
    makers: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "demo:ocaml": lambda: _task_rows(held_out=False),
        "demo:ocaml/held-out": lambda: _task_rows(held_out=True),
        "demo:ocaml/warm-start": _warm_start_rows,
    }
    if name not in makers:
        raise Misuse(f"there is no demo {name!r}; there are: {', '.join(makers)}")
    return makers[name]()


def held_out_constants(kind: Kind) -> frozenset[int]:
    """The constants of this kind that are never trained on; other kinds hold out others."""
    return frozenset(random.Random(f"{SEED}:{kind.name}").sample(CONSTANTS, HELD_OUT_PER_KIND))


def _task_rows(*, held_out: bool) -> Iterator[dict[str, Any]]:
    for kind in KINDS:
        for a in CONSTANTS:
            if (a in held_out_constants(kind)) is held_out:
                yield {
                    "id": f"{kind.name}-{a}",
                    "kind": kind.name,
                    "prompt": _prompt(kind, a),
                    "signature": kind.signature,
                    "tests": _tests(kind, a),
                    "solution": _filled(kind.answer, a),
                }


def _warm_start_rows() -> Iterator[dict[str, Any]]:
    draw = random.Random(SEED)
    pairs = [(kind, a) for kind in KINDS for a in CONSTANTS if a not in held_out_constants(kind)]
    for _ in range(WARM_START_ROWS):
        kind, a = draw.choice(pairs)
        answer = kind.answer
        if kind.mistake is not None and draw.random() < MISTAKEN_SHARE:
            answer = kind.mistake.answer
        completion = _filled(answer, a)
        if draw.random() < DAMAGED_SHARE:
            completion = _damaged(completion, a, draw)
        yield {"prompt": _prompt(kind, a), "completion": completion}


def _prompt(kind: Kind, a: int) -> str:
    return f"(* {_filled(kind.wording, a)} *)\n"


def _filled(text: str, a: int) -> str:
    return text.replace("{a}", str(a))


# ---------------------------------------------------------------------------------------------------------- tests


def _tests(kind: Kind, a: int) -> str:
    cases = _cases(kind, a)
    lines = [f"  assert (f {_ocaml(x)} = {_ocaml(kind.computes(a, x))})" for x in cases]
    return "let () =\n" + ";\n".join(lines) + "\n"


def _cases(kind: Kind, a: int) -> list[Any]:
    """Arguments on which the kind's mistake is seen in all but one case at most, so that it earns next to nothing."""
    draw = random.Random(f"{SEED}:{kind.name}:{a}")
    while True:
        cases = [_argument(kind, draw) for _ in range(CASES_PER_TASK)]
        if kind.mistake is None:
            return cases
        unseen = sum(kind.mistake.computes(a, x) == kind.computes(a, x) for x in cases)
        if unseen <= 1:
            return cases


def _argument(kind: Kind, draw: random.Random) -> Any:
    if kind.takes_list:
        return [draw.randint(-40, 40) for _ in range(draw.randint(2, 6))]
    return draw.randint(-40, 40)


def _ocaml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_ocaml, value))})"
    if isinstance(value, list):
        return f"[{'; '.join(map(_ocaml, value))}]"
    return f"({value})" if value < 0 else str(value)


# --------------------------------------------------------------------------------------------------------- damage

SWAPS = (
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " + "),
    (" > ", " < "),
    ("List.map", "List.filter"),
    ("fold_left", "fold_right"),
    ("List.rev", "List.length"),
    ("max", "min"),
    ("List.length", "List.rev"),
)


def _damaged(answer: str, a: int, draw: random.Random) -> str:
    """The answer with one random fault: a wrong constant, operator or name, a lost character, `==` for `=`."""
    fate = draw.random()
    if fate < 0.35:
        return answer.replace(str(a), str(draw.choice(CONSTANTS)))
    if fate < 0.6:
        fitting = [(old, new) for old, new in SWAPS if old in answer]
        return answer.replace(*draw.choice(fitting)) if fitting else answer.replace("let f", "let g")
    if fate < 0.75:
        return answer.replace("let f", "let rec g")
    if fate < 0.9:
        at = draw.randrange(4, len(answer))
        return answer[:at] + answer[at + 1 :]
    return answer.replace(" = ", " == ", 1)
