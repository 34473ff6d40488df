"""Tiny programming tasks that a 0.6 M parameter model learns on a CPU in minutes, and worked
answers, many wrong.

Twelve kinds of task times the constants 1 to 25, such as `(* keep above 7 *)`, in each language of
demo_languages.yaml. What overlaps, so that the numbers are not taken for more than they are:
- a held-out (kind, constant) pair occurs in neither the GRPO tasks nor the warm start;
- every kind and every constant occurs in both, only not together. The demo shows that rewards teach
  the right program for each kind and that this carries over to pairs never rewarded; it shows
  nothing about new kinds of task.

Twelve other kinds with the constants 26 to 75 are `demo:ocaml/new-kinds`, and five constants of
each are held out. The warm start has none of these kinds and none of these constants: what a model
gains on them came from rewards, or from what it knew before.

The warm start is wrong on purpose. Six kinds carry one fixed wrong answer most of the time, so that
even the likeliest completion is wrong there, and every third row is damaged at random. Nothing here
grades or trains.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gradus.errors import Misuse
from trainer.data.demo_sprints import MAKERS

CONSTANTS = range(1, 26)
NEW_CONSTANTS = range(26, 76)
HELD_OUT_PER_KIND = 5
CASES_PER_TASK = 5
WARM_START_ROWS = 10_000
# Shares of rows with the kind's mistake, and with random damage.
MISTAKEN_SHARE = 0.6
DAMAGED_SHARE = 0.35
SEED = 7

Language = dict[str, Any]
"""How a language writes the tasks: an entry of demo_languages.yaml."""
Case = tuple[Any, Any]
"""An argument and what the right function gives for it."""

LANGUAGES: dict[str, Language] = yaml.safe_load(
    Path(__file__).with_name("demo_languages.yaml").read_text(encoding="utf-8")
)
"""Languages by the name of the grader that judges them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of task; `{a}` stands for the constant."""

    name: str
    wording: str
    shape: str
    """Type of the function: a `number` to a number or a `pair`, a list to a number (`fold`) or a
    `list`."""
    computes: Callable[[int, Any], Any]
    mistaken: Callable[[int, Any], Any] | None = None
    """What the wrong answer computes that the warm start teaches."""
    around: bool = False
    """Arguments lie around the constant and not around 0, so that both sides of it occur."""

    def get_answers(self, language: Language) -> tuple[str, str | None]:
        """Return the right answer, and the wrong one of kinds that have a mistake."""
        right = language["answers"][self.name]
        return right, language["mistakes"].get(self.name)

    def generate_cases(self, a: int) -> list[Case]:
        """Arguments on which the kind's mistake is seen in all but one case at most, so that it
        earns next to nothing."""
        draw = random.Random(f"{SEED}:{self.name}:{a}")
        while True:
            middle = a if self.around else 0
            arguments = [self._sample_argument(draw, middle) for _ in range(CASES_PER_TASK)]
            cases = [(x, self.computes(a, x)) for x in arguments]
            if self.mistaken is None or sum(self.mistaken(a, x) == y for x, y in cases) <= 1:
                return cases

    def _sample_argument(self, draw: random.Random, middle: int) -> Any:
        low = middle - 40
        high = middle + 40
        if self.shape in ("fold", "list"):
            return [draw.randint(low, high) for _ in range(draw.randint(2, 6))]
        return draw.randint(low, high)


Pair = tuple[Kind, int]
"""A kind and its constant: one task."""

KINDS = (
    Kind("add", "add {a}", "number", lambda a, x: x + a),
    Kind("subtract", "subtract {a}", "number", lambda a, x: x - a),
    Kind("multiply", "multiply by {a}", "number", lambda a, x: x * a),
    Kind("pair", "pair with {a}", "pair", lambda a, x: (x, a)),
    Kind("sum", "sum list plus {a}", "fold", lambda a, xs: sum(xs) + a),
    Kind("map_add", "map add {a}", "list", lambda a, xs: [x + a for x in xs]),
    Kind(
        "minus_x",
        "{a} minus x",
        "number",
        lambda a, x: a - x,
        lambda a, x: x - a,
    ),
    Kind(
        "maximum",
        "max of list and {a}",
        "fold",
        lambda a, xs: max([a, *xs]),
        lambda a, xs: min([a, *xs]),
    ),
    Kind("length", "length plus {a}", "fold", lambda a, xs: len(xs) + a, lambda a, xs: len(xs) - a),
    Kind(
        "map_times",
        "map times {a}",
        "list",
        lambda a, xs: [x * a for x in xs],
        lambda a, xs: [x + a for x in xs],
    ),
    Kind(
        "keep_above",
        "keep above {a}",
        "list",
        lambda a, xs: [x for x in xs if x > a],
        lambda a, xs: [x for x in xs if x < a],
    ),
    Kind(
        "cons_reversed",
        "cons {a} on reversed",
        "list",
        lambda a, xs: [a, *xs[::-1]],
        lambda a, xs: [*xs[::-1], a],
    ),
)
NEW_KINDS = (
    Kind("square_plus", "x times x plus {a}", "number", lambda a, x: x * x + a),
    Kind("twice_plus", "twice x plus {a}", "number", lambda a, x: 2 * x + a),
    Kind("larger", "max of x and {a}", "number", lambda a, x: max(a, x), around=True),
    Kind("pair_first", "pair {a} with x", "pair", lambda a, x: (a, x)),
    Kind("map_subtract", "map subtract {a}", "list", lambda a, xs: [x - a for x in xs]),
    Kind("map_minus_x", "map {a} minus x", "list", lambda a, xs: [a - x for x in xs]),
    Kind("length_minus", "length minus {a}", "fold", lambda a, xs: len(xs) - a),
    Kind("length_times", "length times {a}", "fold", lambda a, xs: len(xs) * a),
    Kind("sum_minus", "sum list minus {a}", "fold", lambda a, xs: sum(xs) - a),
    Kind("minimum", "min of list and {a}", "fold", lambda a, xs: min([a, *xs]), around=True),
    Kind("prepend", "cons {a} on list", "list", lambda a, xs: [a, *xs]),
    Kind(
        "keep_below",
        "keep below {a}",
        "list",
        lambda a, xs: [x for x in xs if x < a],
        around=True,
    ),
)
"""Kinds of which the warm start has no row."""


def generate_demo_rows(name: str) -> Iterator[dict[str, Any]]:
    """Return the rows of `demo:ocaml`, `demo:ocaml/held-out`, `demo:ocaml/warm-start`, Rust's or
    those of stories; `demo:ocaml/new-kinds` is OCaml's alone.

    They are always the same ones.
    """
    makers: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {**MAKERS}
    trained = _list_pairs(held_out=False)
    held_out = _list_pairs(held_out=True)
    for grader, language in LANGUAGES.items():
        makers |= {
            f"demo:{grader}": partial(_generate_task_rows, language, trained),
            f"demo:{grader}/held-out": partial(_generate_task_rows, language, held_out),
            f"demo:{grader}/warm-start": partial(_generate_warm_start_rows, language),
        }
    ocaml = LANGUAGES["ocaml"]
    for suffix, is_held_out in (("", False), ("-held-out", True)):
        pairs = _list_pairs(NEW_KINDS, NEW_CONSTANTS, held_out=is_held_out)
        makers[f"demo:ocaml/new-kinds{suffix}"] = partial(_generate_task_rows, ocaml, pairs)
    if name not in makers:
        raise Misuse(f"there is no demo {name!r}; there are: {', '.join(makers)}")
    return makers[name]()


def select_held_out_constants(kind: Kind, constants: range = CONSTANTS) -> frozenset[int]:
    """Return the constants of this kind that are never trained on; other kinds hold out others."""
    return frozenset(random.Random(f"{SEED}:{kind.name}").sample(constants, HELD_OUT_PER_KIND))


def _list_pairs(
    kinds: Sequence[Kind] = KINDS, constants: range = CONSTANTS, *, held_out: bool
) -> list[Pair]:
    """Return kinds and constants that are held out, or those that are trained on."""
    pairs = []
    for kind in kinds:
        chosen = select_held_out_constants(kind, constants)
        pairs += [(kind, a) for a in constants if (a in chosen) is held_out]
    return pairs


def _generate_task_rows(language: Language, pairs: Sequence[Pair]) -> Iterator[dict[str, Any]]:
    for kind, a in pairs:
        yield {
            "id": f"{kind.name}-{a}",
            "kind": kind.name,
            "prompt": _render_prompt(language, kind, a),
            "signature": language["signatures"][kind.shape],
            "tests": _render_tests(language, kind.generate_cases(a)),
            "solution": _render_template(kind.get_answers(language)[0], a),
        }


def _generate_warm_start_rows(language: Language) -> Iterator[dict[str, Any]]:
    draw = random.Random(SEED)
    pairs = _list_pairs(held_out=False)
    for _ in range(WARM_START_ROWS):
        kind, a = draw.choice(pairs)
        right, wrong = kind.get_answers(language)
        answer = wrong if wrong is not None and draw.random() < MISTAKEN_SHARE else right
        completion = _render_template(answer, a)
        if draw.random() < DAMAGED_SHARE:
            completion = _damage_answer(language, completion, a, draw)
        yield {"prompt": _render_prompt(language, kind, a), "completion": completion}


def _damage_answer(language: Language, answer: str, a: int, draw: random.Random) -> str:
    """Return the answer with one random fault: a wrong constant, operator or name, a lost
    character, a misspelt sign."""
    fate = draw.random()
    if fate < 0.35:
        return answer.replace(str(a), str(draw.choice(CONSTANTS)))
    if fate < 0.6:
        fitting = [swap for swap in language["swaps"] if swap[0] in answer]
        return answer.replace(*(draw.choice(fitting) if fitting else language["misnamed"]))
    if fate < 0.75:
        return answer.replace(*language["hidden"])
    if fate < 0.9:
        at = draw.randrange(language["head"], len(answer))
        return answer[:at] + answer[at + 1 :]
    right, misspelt = language["misspelt"]
    return answer.replace(right, misspelt, 1)


# ---------------------------------------------------------------------- texts


def _render_prompt(language: Language, kind: Kind, a: int) -> str:
    return str(language["comment"]).format(_render_template(kind.wording, a))


def _render_template(text: str, a: int) -> str:
    return text.replace("{a}", str(a))


def _render_tests(language: Language, cases: Sequence[Case]) -> str:
    """Return the cases as the tests of a task."""
    single = []
    for n, (x, y) in enumerate(cases, 1):
        argument = _render_value(language, x)
        if isinstance(x, list):
            argument = language["list_argument"].replace("{}", argument)
        test = language["test"].replace("{n}", str(n)).replace("{x}", argument)
        single.append(test.replace("{y}", _render_value(language, y)))
    return str(language["tests"].replace("{}", language["between_tests"].join(single)))


def _render_value(language: Language, value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_render_value(language, item) for item in value)})"
    if isinstance(value, list):
        return (
            f"[{language['between_items'].join(_render_value(language, item) for item in value)}]"
        )
    if value >= 0:
        return str(value)
    return str(language["negative"].replace("{}", str(value)))
