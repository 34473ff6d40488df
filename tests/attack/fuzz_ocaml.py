"""Mutated sources against the OCaml grader: valid ones cut, spliced and bit-flipped, and random
bytes.

Whatever is written must end as a verdict: no fault, no crash of the compile server, no credit for
tests without a compiled answer. `python -m tests.attack.fuzz_ocaml --number 20000`; the same seed
gives the same sources.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gradus.contract import Faulted, Graded, OcamlSubmission
from gradus.resources import configs
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order

TOKENS = (
    *(
        "let",
        "rec",
        "in",
        "fun",
        "function",
        "match",
        "with",
        "->",
        "|",
        ";;",
        ";",
        "(",
        ")",
        "[",
        "]",
        "[|",
        "|]",
    ),
    *(
        "begin",
        "end",
        "module",
        "struct",
        "sig",
        "type",
        "of",
        "and",
        "open",
        "include",
        "exception",
        "raise",
        "try",
    ),
    *(
        "lazy",
        "assert",
        "object",
        "method",
        "class",
        "new",
        "virtual",
        "external",
        '"',
        "'",
        "(*",
        "*)",
        "#",
        "`A",
    ),
    *(
        "~x",
        "?x",
        "::",
        ":=",
        "!",
        "@@",
        "[@@a]",
        "[%x]",
        "{|",
        "|}",
        "0x",
        "1e",
        "_",
        "'a",
        "mutable",
        "private",
    ),
)


def sources(seed: int, number: int) -> Iterator[tuple[dict[str, str], str]]:
    """(task, source) pairs."""
    rnd = random.Random(seed)
    tasks = [
        json.loads(line) for line in (configs() / "tasks" / "ocaml.jsonl").read_text().splitlines()
    ]
    ways = (_cut, _splice, _flip, _tokens, _repeat, _noise, _slip, _slip, _slip)
    for _ in range(number):
        task, other = rnd.choice(tasks), rnd.choice(tasks)
        yield task, rnd.choice(ways)(rnd, task["solution"], other["solution"])


def _cut(rnd: random.Random, text: str, _: str) -> str:
    a, b = sorted(rnd.randrange(len(text) + 1) for _ in range(2))
    return text[:a] + text[b:]


def _splice(rnd: random.Random, text: str, other: str) -> str:
    return text[: rnd.randrange(len(text) + 1)] + other[rnd.randrange(len(other)) :]


def _flip(rnd: random.Random, text: str, _: str) -> str:
    data = bytearray(text.encode())
    for _ in range(rnd.randint(1, 6)):
        data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)
    return data.decode(errors="replace").replace("\0", " ")


def _tokens(rnd: random.Random, text: str, _: str) -> str:
    words = text.split(" ")
    for _ in range(rnd.randint(1, 8)):
        words.insert(rnd.randrange(len(words) + 1), rnd.choice(TOKENS))
    return " ".join(words)


def _slip(rnd: random.Random, text: str, _: str) -> str:
    """What still compiles, most of the time, and often does not end."""
    pairs = [
        *(
            ("+", "-"),
            ("-", "+"),
            ("<", ">"),
            ("=", "<>"),
            ("&&", "||"),
            ("::", "@"),
            ("true", "false"),
        )
    ]
    pairs += [
        ("0", "1"),
        ("1", "0"),
        ("2", "-2"),
        ("rec ", ""),
        ("fst", "snd"),
        ("[]", "[0]"),
        ("None", "Some 0"),
    ]
    for old, new in rnd.sample(pairs, rnd.randint(1, 3)):
        parts = text.split(old)
        at = rnd.randrange(len(parts))
        text = (
            old.join(parts[: at + 1])
            + (new if at + 1 < len(parts) else "")
            + old.join(parts[at + 1 :])
        )
    return text


def _repeat(rnd: random.Random, text: str, _: str) -> str:
    a, b = sorted(rnd.randrange(len(text) + 1) for _ in range(2))
    return text[:a] + text[a:b] * rnd.choice((2, 3, 50)) + text[b:]


def _noise(rnd: random.Random, text: str, _: str) -> str:
    return rnd.randbytes(rnd.randint(1, 2000)).decode(errors="replace").replace("\0", " ")


def fuzz(
    grader: OcamlGrader, seed: int, number: int, slots: int | None = None
) -> Iterator[tuple[str, str | None, str]]:
    """(outcome, what is wrong with it, source) of each."""
    pairs = list(sources(seed, number))
    tasks = [
        (source, {"tests": task["tests"], "signature": task["signature"]}) for task, source in pairs
    ]
    for (source, _), result in zip(tasks, graded(grader, tasks, slots), strict=True):
        yield *_verdict(result), source


def graded(
    grader: OcamlGrader, answers: Iterable[tuple[str, dict[str, Any]]], slots: int | None
) -> Iterator[Graded | Faulted]:
    """The results of (completion, task) pairs, in their order."""
    rows = (
        {"id": str(n), "completion": completion, "task": task}
        for n, (completion, task) in enumerate(answers)
    )
    return grade_in_order(
        grader, [OcamlSubmission.model_validate(row) for row in rows], "ocaml/graduated@1", slots
    )


def _verdict(result: Graded | Faulted) -> tuple[str, str | None]:
    if isinstance(result, Faulted):
        return "fault", f"{result.fault.kind}: {result.fault.message}"
    if result.tests is not None and result.components["compile"] == 0:
        return "credit", "tests counted although the answer did not compile"
    return f"{result.stage}{' passed' if result.passed else ''}", None


def command(
    fuzz: Callable[[OcamlGrader, int, int], Iterator[tuple[str, str | None, str]]],
    number: int,
    description: str,
) -> int:
    """Runs a fuzzer as a program: prints each source that is not graded as it must be. The exit
    status."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=number)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    outcomes: Counter[str] = Counter()
    wrong = 0
    for outcome, problem, source in fuzz(OcamlGrader(), arguments.seed, arguments.number):
        outcomes[outcome] += 1
        if problem is not None:
            wrong += 1
            print(f"--- {problem}\n{source}\n---", flush=True)
        if outcomes.total() % 1000 == 0:
            print(dict(outcomes), file=sys.stderr, flush=True)
    print(f"{outcomes.total()} sources: {dict(outcomes)}; {wrong} not as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(command(fuzz, 20_000, __doc__))
