"""Tiny programming tasks that a 0.6 M parameter model learns on a CPU in minutes, and worked
answers, many wrong.

Twelve kinds of task times the constants 1 to 25, such as `(* keep above 7 *)`, in each language of
demo_languages.yaml. What overlaps, so that the numbers are not taken for more than they are:
- a held-out (kind, constant) pair occurs in neither the GRPO tasks nor the warm start;
- every kind and every constant occurs in both, only not together. The demo shows that rewards teach
  the right program for each kind and that this carries over to pairs never rewarded; it shows
  nothing about new kinds of task.

The warm start is wrong on purpose. Six kinds carry one fixed wrong answer most of the time, so that
even the likeliest completion is wrong there, and every third row is damaged at random. Nothing here
grades or trains.

Training over several turns has tasks of its own. Three kinds have a vague wording, such as `(* keep
beyond 7 *)`: above and below are both asked for, by tasks with the same prompt, and only the tests
tell them apart. A first answer can pass half of these. One case of each task is a public test, so
that the second answer can pass all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from gradus.contract import Diagnostic, Graded, Stage, TestCount
from gradus.errors import Misuse
from gradus.feedback import next_turn
from trainer.data.demo_sprints import MAKERS

CONSTANTS = range(1, 26)
HELD_OUT_PER_KIND = 5
CASES_PER_TASK = 5
WARM_START_ROWS = 10_000
# Before training over several turns: batches of first answers, and after how many of them one of
# repairs comes.
FIRST_BATCHES = 200
ROWS_PER_BATCH = 64
REPAIRS_AFTER = 2
# Shares of rows with the kind's mistake, with random damage, and of first answers over several
# turns with the mistake and with another constant.
MISTAKEN_SHARE = 0.6
DAMAGED_SHARE = 0.35
FIRST_MISTAKEN_SHARE = 0.5
SLIPPED_SHARE = 0.1
REPAIRED_SHARE = 0.75
"""Share of second answers that are right. The others repeat the first one."""
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
    vague: str | None = None
    """The wording of two tasks over several turns: of this kind, and of the one that its mistake
    would solve."""
    swapped: bool = False
    """This is the latter."""

    @property
    def own_name(self) -> str:
        return f"{self.name}_swapped" if self.swapped else self.name

    def texts(self, language: Language) -> tuple[str, str | None]:
        """The right answer, and the wrong one of kinds that have a mistake."""
        right = language["answers"][self.name]
        wrong = language["mistakes"].get(self.name)
        return (wrong, right) if self.swapped else (right, wrong)

    def cases(self, a: int) -> list[Case]:
        """Arguments on which the kind's mistake is seen in all but one case at most, so that it
        earns next to nothing."""
        draw = random.Random(f"{SEED}:{self.name}:{a}")
        while True:
            arguments = [self._argument(draw) for _ in range(CASES_PER_TASK)]
            cases = [(x, self.computes(a, x)) for x in arguments]
            if sum(self._passes_mistake(a, case) for case in cases) <= 1:
                return cases

    def cases_over_turns(self, a: int) -> list[Case]:
        """Cases of the task, those first that the mistake fails; the first of all is public."""
        return sorted(self.cases(a), key=lambda case: self._passes_mistake(a, case))

    def _passes_mistake(self, a: int, case: Case) -> bool:
        return self.mistaken is not None and self.mistaken(a, case[0]) == case[1]

    def _argument(self, draw: random.Random) -> Any:
        if self.shape in ("fold", "list"):
            return [draw.randint(-40, 40) for _ in range(draw.randint(2, 6))]
        return draw.randint(-40, 40)


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
        vague="difference to {a}",
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
        vague="keep beyond {a}",
    ),
    Kind(
        "cons_reversed",
        "cons {a} on reversed",
        "list",
        lambda a, xs: [a, *xs[::-1]],
        lambda a, xs: [*xs[::-1], a],
        vague="{a} and list reversed",
    ),
)


def _kinds_over_turns() -> Iterator[Kind]:
    for kind in KINDS:
        if kind.vague is None or kind.mistaken is None:
            yield kind
            continue
        vague = replace(kind, wording=kind.vague)
        yield vague
        yield replace(vague, computes=kind.mistaken, mistaken=kind.computes, swapped=True)


KINDS_OVER_TURNS = tuple(_kinds_over_turns())


def demo_rows(name: str) -> Iterator[dict[str, Any]]:
    """The rows of `demo:ocaml`, `demo:ocaml/held-out`, `demo:ocaml/warm-start`, Rust's or those of
    stories.

    For training over several turns: `demo:ocaml/public` and `demo:ocaml/public/held-out` are tasks
    with a public test each, and `demo:ocaml/repairs` are conversations with wrong first answers.

    They are always the same ones.
    """
    makers: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {**MAKERS}
    for grader, language in LANGUAGES.items():
        makers |= {
            f"demo:{grader}": partial(_task_rows, language, held_out=False),
            f"demo:{grader}/held-out": partial(_task_rows, language, held_out=True),
            f"demo:{grader}/warm-start": partial(_warm_start_rows, language),
            f"demo:{grader}/public": partial(_public_rows, language, held_out=False),
            f"demo:{grader}/public/held-out": partial(_public_rows, language, held_out=True),
            f"demo:{grader}/repairs": partial(_repair_rows, grader, language),
        }
    if name not in makers:
        raise Misuse(f"there is no demo {name!r}; there are: {', '.join(makers)}")
    return makers[name]()


def held_out_constants(kind: Kind) -> frozenset[int]:
    """The constants of this kind that are never trained on; other kinds hold out others."""
    return frozenset(random.Random(f"{SEED}:{kind.name}").sample(CONSTANTS, HELD_OUT_PER_KIND))


def _pairs(kinds: Sequence[Kind], *, held_out: bool = False) -> list[tuple[Kind, int]]:
    """Kinds and constants that are held out, or those that are trained on."""
    return [
        (kind, a)
        for kind in kinds
        for a in CONSTANTS
        if (a in held_out_constants(kind)) is held_out
    ]


def _task_rows(language: Language, *, held_out: bool) -> Iterator[dict[str, Any]]:
    for kind, a in _pairs(KINDS, held_out=held_out):
        yield _task_row(language, kind, a, kind.cases(a))


def _public_rows(language: Language, *, held_out: bool) -> Iterator[dict[str, Any]]:
    for kind, a in _pairs(KINDS_OVER_TURNS, held_out=held_out):
        public, *hidden = kind.cases_over_turns(a)
        shown = _tests(language, [public])
        yield {**_task_row(language, kind, a, hidden), "public_tests": [shown]}


def _task_row(language: Language, kind: Kind, a: int, cases: Sequence[Case]) -> dict[str, Any]:
    return {
        "id": f"{kind.own_name}-{a}",
        "kind": kind.own_name,
        "prompt": _prompt(language, kind, a),
        "signature": language["signatures"][kind.shape],
        "tests": _tests(language, cases),
        "solution": _filled(kind.texts(language)[0], a),
    }


def _warm_start_rows(language: Language) -> Iterator[dict[str, Any]]:
    draw = random.Random(SEED)
    pairs = _pairs(KINDS)
    for _ in range(WARM_START_ROWS):
        kind, a = draw.choice(pairs)
        right, wrong = kind.texts(language)
        answer = wrong if wrong is not None and draw.random() < MISTAKEN_SHARE else right
        completion = _filled(answer, a)
        if draw.random() < DAMAGED_SHARE:
            completion = _damaged(language, completion, a, draw)
        yield {"prompt": _prompt(language, kind, a), "completion": completion}


def _damaged(language: Language, answer: str, a: int, draw: random.Random) -> str:
    """The answer with one random fault: a wrong constant, operator or name, a lost character, a
    misspelt sign."""
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


# ---------------------------------------------------------------------- repairs


def _repair_rows(grader: str, language: Language) -> Iterator[dict[str, Any]]:
    """Batches of first answers and, among them, of conversations: a wrong answer, feedback, a
    second answer.

    Rows of one length stand together, so that batches in this order have little padding.
    """
    draw = random.Random(SEED)
    pairs = _pairs(KINDS_OVER_TURNS)
    repairs = _repairs(grader, language, pairs, draw)
    for number in range(1, FIRST_BATCHES + 1):
        for _ in range(ROWS_PER_BATCH):
            kind, a = draw.choice(pairs)
            right, wrong = kind.texts(language)
            first = wrong if wrong is not None and draw.random() < FIRST_MISTAKEN_SHARE else right
            b = draw.choice(CONSTANTS) if draw.random() < SLIPPED_SHARE else a
            yield {"messages": _conversation(_prompt(language, kind, a), _filled(first, b))}
        if number % REPAIRS_AFTER == 0:
            yield from islice(repairs, ROWS_PER_BATCH)


def _repairs(
    grader: str, language: Language, pairs: Sequence[tuple[Kind, int]], draw: random.Random
) -> Iterator[dict[str, Any]]:
    while True:
        kind, a = draw.choice(pairs)
        right, wrong = kind.texts(language)
        if kind.mistaken is None or wrong is None or draw.random() < SLIPPED_SHARE:
            b = draw.choice([c for c in CONSTANTS if c != a])
            answer = _filled(right, b)
            computes = partial(kind.computes, b)
        else:
            answer = _filled(wrong, a)
            computes = partial(kind.mistaken, a)
        verdict = _verdict(language, kind.cases_over_turns(a), computes)
        if verdict is not None:
            asked = _conversation(_prompt(language, kind, a), answer)
            second = _filled(right, a) if draw.random() < REPAIRED_SHARE else answer
            again = _conversation(next_turn(grader, verdict, answer), second)
            yield {"messages": [*asked, *again]}


def _conversation(asked: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]


def _verdict(
    language: Language, cases: Sequence[Case], computes: Callable[[Any], Any]
) -> Graded | None:
    """What the grader says of an answer that computes this; None where it passes."""
    (x, y), *hidden = cases
    failing = sum(computes(x) != y for x, y in hidden)
    if not failing:
        return None
    remarks = [f"{failing} of {len(hidden)} tests failed an assertion"]
    if computes(x) != y:
        test = _tests(language, [(x, y)]).strip()
        gives = _written(language, computes(x))
        remarks.append(f"this public test fails:\n{test}\nthe answer gives {gives}")
    return Graded(
        id="demo",
        reward=0,
        passed=False,
        stage=Stage.TESTS,
        components={},
        tests=TestCount(passed=len(hidden) - failing, total=len(hidden)),
        diagnostics=tuple(Diagnostic(stage=Stage.TESTS, message=remark) for remark in remarks),
        rubric="demo/strict@1",
        grader="demo@1",
        toolchain="none",
        cpu_ms=0,
        wall_ms=0,
    )


# ---------------------------------------------------------------------- texts


def _prompt(language: Language, kind: Kind, a: int) -> str:
    return str(language["comment"]).format(_filled(kind.wording, a))


def _filled(text: str, a: int) -> str:
    return text.replace("{a}", str(a))


def _tests(language: Language, cases: Sequence[Case]) -> str:
    """The cases as the tests of a task."""
    single = []
    for n, (x, y) in enumerate(cases, 1):
        argument = _written(language, x)
        if isinstance(x, list):
            argument = language["list_argument"].replace("{}", argument)
        test = language["test"].replace("{n}", str(n)).replace("{x}", argument)
        single.append(test.replace("{y}", _written(language, y)))
    return str(language["tests"].replace("{}", language["between_tests"].join(single)))


def _written(language: Language, value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_written(language, one) for one in value)})"
    if isinstance(value, list):
        return f"[{language['between_items'].join(_written(language, one) for one in value)}]"
    return str(value) if value >= 0 else str(language["negative"].replace("{}", str(value)))
