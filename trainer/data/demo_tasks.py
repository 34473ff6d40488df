"""Tiny programming tasks that a 0.6 M parameter model learns on a CPU in minutes, and worked answers, many wrong.

Twelve kinds of task times the constants 1 to 25, such as `(* keep above 7 *)`, in each of `languages`. What overlaps,
so that nobody reads more into the numbers than there is:
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
from functools import partial
from typing import Any

from gradus.errors import Misuse
from trainer.data.demo_sprints import MAKERS
from trainer.data.demo_templates import LANGUAGES, Case, Language, Shape

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
class Kind:
    """One kind of task; `{a}` stands for the constant."""

    name: str
    wording: str
    shape: Shape
    computes: Function
    mistaken: Function | None = None
    """What the wrong answer computes that the warm start teaches."""

    @property
    def takes_list(self) -> bool:
        return self.shape in (Shape.FOLD, Shape.LIST)


KINDS = (
    Kind("add", "add {a}", Shape.NUMBER, lambda a, x: x + a),
    Kind("subtract", "subtract {a}", Shape.NUMBER, lambda a, x: x - a),
    Kind("multiply", "multiply by {a}", Shape.NUMBER, lambda a, x: x * a),
    Kind("pair", "pair with {a}", Shape.PAIR, lambda a, x: (x, a)),
    Kind("sum", "sum list plus {a}", Shape.FOLD, lambda a, xs: sum(xs) + a),
    Kind("map_add", "map add {a}", Shape.LIST, lambda a, xs: [x + a for x in xs]),
    Kind("minus_x", "{a} minus x", Shape.NUMBER, lambda a, x: a - x, lambda a, x: x - a),
    Kind("maximum", "max of list and {a}", Shape.FOLD, lambda a, xs: max([a, *xs]), lambda a, xs: min([a, *xs])),
    Kind("length", "length plus {a}", Shape.FOLD, lambda a, xs: len(xs) + a, lambda a, xs: len(xs) - a),
    Kind(
        "map_times", "map times {a}", Shape.LIST, lambda a, xs: [x * a for x in xs], lambda a, xs: [x + a for x in xs]
    ),
    Kind(
        "keep_above",
        "keep above {a}",
        Shape.LIST,
        lambda a, xs: [x for x in xs if x > a],
        lambda a, xs: [x for x in xs if x < a],
    ),
    Kind(
        "cons_reversed",
        "cons {a} on reversed",
        Shape.LIST,
        lambda a, xs: [a, *xs[::-1]],
        lambda a, xs: [*xs[::-1], a],
    ),
)


def demo_rows(name: str, split: str = "train") -> Iterator[dict[str, Any]]:
    """The rows of `demo:ocaml`, `demo:ocaml/held-out`, `demo:ocaml/warm-start`, Rust's or those of stories.

    They are always the same ones.
    """
    makers: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {**MAKERS}
    for grader, language in LANGUAGES.items():
        makers[f"demo:{grader}"] = partial(_task_rows, language, held_out=False)
        makers[f"demo:{grader}/held-out"] = partial(_task_rows, language, held_out=True)
        makers[f"demo:{grader}/warm-start"] = partial(_warm_start_rows, language)
    if name not in makers:
        raise Misuse(f"there is no demo {name!r}; there are: {', '.join(makers)}")
    return makers[name]()


def held_out_constants(kind: Kind) -> frozenset[int]:
    """The constants of this kind that are never trained on; other kinds hold out others."""
    return frozenset(random.Random(f"{SEED}:{kind.name}").sample(CONSTANTS, HELD_OUT_PER_KIND))


def _task_rows(language: Language, *, held_out: bool) -> Iterator[dict[str, Any]]:
    for kind in KINDS:
        for a in CONSTANTS:
            if (a in held_out_constants(kind)) is held_out:
                yield {
                    "id": f"{kind.name}-{a}",
                    "kind": kind.name,
                    "prompt": _prompt(language, kind, a),
                    "signature": language.signatures[kind.shape],
                    "tests": language.tests(_cases(kind, a)),
                    "solution": _filled(language.answers[kind.name], a),
                }


def _warm_start_rows(language: Language) -> Iterator[dict[str, Any]]:
    draw = random.Random(SEED)
    pairs = [(kind, a) for kind in KINDS for a in CONSTANTS if a not in held_out_constants(kind)]
    for _ in range(WARM_START_ROWS):
        kind, a = draw.choice(pairs)
        answer = language.answers[kind.name]
        if kind.mistaken is not None and draw.random() < MISTAKEN_SHARE:
            answer = language.mistakes[kind.name]
        completion = _filled(answer, a)
        if draw.random() < DAMAGED_SHARE:
            completion = language.damaged(completion, a, CONSTANTS, draw)
        yield {"prompt": _prompt(language, kind, a), "completion": completion}


def _prompt(language: Language, kind: Kind, a: int) -> str:
    return language.comment.format(_filled(kind.wording, a))


def _filled(text: str, a: int) -> str:
    return text.replace("{a}", str(a))


def _cases(kind: Kind, a: int) -> list[Case]:
    """Arguments on which the kind's mistake is seen in all but one case at most, so that it earns next to nothing."""
    draw = random.Random(f"{SEED}:{kind.name}:{a}")
    while True:
        cases = [(x, kind.computes(a, x)) for x in (_argument(kind, draw) for _ in range(CASES_PER_TASK))]
        if kind.mistaken is None or sum(kind.mistaken(a, x) == y for x, y in cases) <= 1:
            return cases


def _argument(kind: Kind, draw: random.Random) -> Any:
    if kind.takes_list:
        return [draw.randint(-40, 40) for _ in range(draw.randint(2, 6))]
    return draw.randint(-40, 40)
