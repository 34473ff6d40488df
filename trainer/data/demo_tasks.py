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
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter

from gradus.contract import Diagnostic, Graded, Stage, TestCount
from gradus.errors import Misuse
from gradus.feedback import next_turn
from trainer.config.run import Section
from trainer.data.demo_sprints import MAKERS

CONSTANTS = range(1, 26)
HELD_OUT_PER_KIND = 5
CASES_PER_TASK = 5
PUBLIC_CASES = 1
"""Public tests of a task that has them: cases that the hidden tests do not have, and that the
mistake fails."""
WARM_START_ROWS = 10_000
FIRST_BATCHES, ROWS_PER_BATCH, REPAIRS_AFTER = 200, 64, 2
"""Batches of first answers before training over several turns, and after how many of them one of
repairs comes."""
MISTAKEN_SHARE = 0.6
"""Share of a kind's rows with its mistake, if it has one."""
DAMAGED_SHARE = 0.35
FIRST_MISTAKEN_SHARE, SLIPPED_SHARE = 0.5, 0.1
"""Shares of first answers before training over several turns: with the kind's mistake, and with
another constant."""
REPAIRED_SHARE = 0.75
"""Share of second answers that are right. The others repeat the first one."""
SEED = 7

Function = Callable[[int, Any], Any]
Shape = Literal["number", "pair", "fold", "list"]
"""Types of the function that a task asks for: a number to a number or a pair, a list to a number or
a list."""
Case = tuple[Any, Any]
"""An argument and what the right function gives for it."""
Change = tuple[str, str]
"""A text and what it is replaced with."""


class Language(Section):
    """How a language writes the tasks; `{a}` stands for a task's constant."""

    comment: str
    """The prompt, with `{}` for the wording."""
    signatures: dict[Shape, str]
    answers: dict[str, str]
    """Right answers by the name of the kind."""
    mistakes: dict[str, str]
    swaps: tuple[Change, ...]
    """Operators and names that are taken for each other."""
    misnamed: Change
    hidden: Change
    """Makes the function one that the tests do not find."""
    misspelt: Change
    head: int
    """Characters at the start that no damage takes away."""
    between_items: str
    """Between the items of a list."""
    negative: str
    """A number below 0, with `{}` for it."""
    list_argument: str
    """A list that is an argument, with `{}` for it."""
    tests: str
    """A task's tests, with `{}` for the single ones."""
    test: str
    """One test: `{n}` is its number, from 1 on, `{x}` the argument, `{y}` what the right function
    gives."""
    between_tests: str

    def tests_of(self, cases: Sequence[Case]) -> str:
        """The cases as the tests of a task."""
        single = []
        for n, (x, y) in enumerate(cases, 1):
            argument = (
                self.list_argument.replace("{}", self.value(x))
                if isinstance(x, list)
                else self.value(x)
            )
            single.append(
                self.test.replace("{n}", str(n))
                .replace("{x}", argument)
                .replace("{y}", self.value(y))
            )
        return self.tests.replace("{}", self.between_tests.join(single))

    def value(self, value: Any) -> str:
        if isinstance(value, tuple):
            return f"({', '.join(map(self.value, value))})"
        if isinstance(value, list):
            return f"[{self.between_items.join(map(self.value, value))}]"
        return self.negative.replace("{}", str(value)) if value < 0 else str(value)

    def damaged(self, answer: str, a: int, constants: Sequence[int], draw: random.Random) -> str:
        """The answer with one random fault: a wrong constant, operator or name, a lost character, a
        misspelt sign."""
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


LANGUAGES = TypeAdapter(dict[str, Language]).validate_python(
    yaml.safe_load(Path(__file__).with_name("demo_languages.yaml").read_text(encoding="utf-8"))
)
"""Languages by the name of the grader that judges them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of task; `{a}` stands for the constant."""

    name: str
    wording: str
    shape: Shape
    computes: Function
    mistaken: Function | None = None
    """What the wrong answer computes that the warm start teaches."""
    vague: str | None = None
    """The wording of two tasks over several turns: of this kind, and of the one that its mistake
    would solve."""
    swapped: bool = False
    """This is the latter."""

    @property
    def takes_list(self) -> bool:
        return self.shape in ("fold", "list")

    @property
    def own_name(self) -> str:
        return f"{self.name}_swapped" if self.swapped else self.name

    def texts(self, language: Language) -> tuple[str, str | None]:
        """The right answer, and the wrong one of kinds that have a mistake."""
        right, wrong = language.answers[self.name], language.mistakes.get(self.name)
        return (wrong, right) if self.swapped and wrong is not None else (right, wrong)


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
        else:
            yield replace(kind, wording=kind.vague)
            yield replace(
                kind,
                wording=kind.vague,
                computes=kind.mistaken,
                mistaken=kind.computes,
                swapped=True,
            )


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
        makers[f"demo:{grader}"] = partial(_task_rows, language, held_out=False)
        makers[f"demo:{grader}/held-out"] = partial(_task_rows, language, held_out=True)
        makers[f"demo:{grader}/warm-start"] = partial(_warm_start_rows, language)
        makers[f"demo:{grader}/public"] = partial(
            _task_rows, language, held_out=False, public=PUBLIC_CASES
        )
        makers[f"demo:{grader}/public/held-out"] = partial(
            _task_rows, language, held_out=True, public=PUBLIC_CASES
        )
        makers[f"demo:{grader}/repairs"] = partial(_repair_rows, grader, language)
    if name not in makers:
        raise Misuse(f"there is no demo {name!r}; there are: {', '.join(makers)}")
    return makers[name]()


def held_out_constants(kind: Kind) -> frozenset[int]:
    """The constants of this kind that are never trained on; other kinds hold out others."""
    return frozenset(random.Random(f"{SEED}:{kind.name}").sample(CONSTANTS, HELD_OUT_PER_KIND))


def _task_rows(language: Language, *, held_out: bool, public: int = 0) -> Iterator[dict[str, Any]]:
    for kind in KINDS_OVER_TURNS if public else KINDS:
        for a in CONSTANTS:
            if (a in held_out_constants(kind)) is held_out:
                cases = _cases_over_turns(kind, a) if public else _cases(kind, a)
                shown = [language.tests_of([case]) for case in cases[:public]]
                yield {
                    "id": f"{kind.own_name}-{a}",
                    "kind": kind.own_name,
                    "prompt": _prompt(language, kind, a),
                    "signature": language.signatures[kind.shape],
                    "tests": language.tests_of(cases[public:]),
                    **({"public_tests": shown} if shown else {}),
                    "solution": _filled(kind.texts(language)[0], a),
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


def _repair_rows(grader: str, language: Language) -> Iterator[dict[str, Any]]:
    """Batches of first answers and, among them, of conversations: a wrong answer, feedback, a
    second answer.

    Rows of one length stand together, so that batches in this order have little padding.
    """
    draw = random.Random(SEED)
    pairs = [
        (kind, a)
        for kind in KINDS_OVER_TURNS
        for a in CONSTANTS
        if a not in held_out_constants(kind)
    ]
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
        b, computes = a, kind.mistaken
        if computes is None or wrong is None or draw.random() < SLIPPED_SHARE:
            b, wrong, computes = draw.choice([c for c in CONSTANTS if c != a]), right, kind.computes
        verdict, answer = (
            _verdict(language, _cases_over_turns(kind, a), partial(computes, b)),
            _filled(wrong, b),
        )
        if verdict is not None:
            said, end = next_turn(grader, verdict, answer), _filled(right, a)
            end = end if draw.random() < REPAIRED_SHARE else answer
            yield {
                "messages": [
                    *_conversation(_prompt(language, kind, a), answer),
                    *_conversation(said, end),
                ]
            }


def _conversation(asked: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]


def _verdict(
    language: Language, cases: Sequence[Case], computes: Callable[[Any], Any]
) -> Graded | None:
    """What the grader says of an answer that computes this; None where it passes."""
    passes = [computes(x) == y for x, y in cases]
    hidden, failing = passes[PUBLIC_CASES:], sum(not one for one in passes[PUBLIC_CASES:])
    if not failing:
        return None
    public = zip(cases[:PUBLIC_CASES], passes, strict=False)
    remarks = [f"{failing} of {len(hidden)} tests failed an assertion"]
    for case, right in public:
        if not right:
            gives = language.value(computes(case[0]))
            remarks.append(
                f"this public test fails:\n{language.tests_of([case]).strip()}\nthe answer gives"
                f" {gives}"
            )
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


def _prompt(language: Language, kind: Kind, a: int) -> str:
    return language.comment.format(_filled(kind.wording, a))


def _filled(text: str, a: int) -> str:
    return text.replace("{a}", str(a))


def _cases(kind: Kind, a: int) -> list[Case]:
    """Arguments on which the kind's mistake is seen in all but one case at most, so that it earns
    next to nothing."""
    draw = random.Random(f"{SEED}:{kind.name}:{a}")
    while True:
        cases = [
            (x, kind.computes(a, x)) for x in (_argument(kind, draw) for _ in range(CASES_PER_TASK))
        ]
        if kind.mistaken is None or sum(kind.mistaken(a, x) == y for x, y in cases) <= 1:
            return cases


def _cases_over_turns(kind: Kind, a: int) -> list[Case]:
    """Cases of the task, those first that the mistake fails."""
    cases = _cases(kind, a)
    return sorted(
        cases, key=lambda one: kind.mistaken is not None and kind.mistaken(a, one[0]) == one[1]
    )


def _argument(kind: Kind, draw: random.Random) -> Any:
    if kind.takes_list:
        return [draw.randint(-40, 40) for _ in range(draw.randint(2, 6))]
    return draw.randint(-40, 40)
