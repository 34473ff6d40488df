"""CPU that a megabyte of one repeated piece costs the worker itself, outside of boxes; `make
bench-full` runs it.

Completions that do not stop must not take a slot from the others: at most 0.3 s each.
`python -m tests.bench.repetition rust`.
"""

from __future__ import annotations

import argparse
import sys
import time

from gradus.contract import submission_class
from services.graders.base import Grader, load
from tests.bench.repeated_texts import NESTED, PIECES, repeated

MAX_CPU_S = 0.3
_SHOWN = 5


def cpu_s(grader: Grader, name: str, completion: str) -> float:
    """CPU seconds of this process for one submission to the grader's example task."""
    example = grader.description().example
    asked = {"id": "x", "prompt": "p", "completion": completion, "task": example["task"]}
    submission = submission_class(name).model_validate(asked)
    started = time.process_time()
    grader.grade(submission, grader.info().rubrics[0], 0)
    return time.process_time() - started


def measured(name: str) -> dict[str, float]:
    """CPU seconds by text, the most expensive first; the better of two runs each."""
    grader = load(name)
    texts = {f"1 MB of {piece!r}": repeated(piece) for piece in PIECES[name]} | (
        NESTED if name == "rust" else {}
    )
    cpu_s(grader, name, "")
    found = {}
    for what, text in texts.items():
        found[what] = min(cpu_s(grader, name, text), cpu_s(grader, name, text))
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graders", nargs="*", default=list(PIECES))
    too_much = 0
    for name in parser.parse_args().graders:
        found = measured(name)
        print(
            f"{name}: {len(found)} texts, the {_SHOWN} that cost the worker most (CPU s, at most"
            f" {MAX_CPU_S})"
        )
        for what, cost in list(found.items())[:_SHOWN]:
            print(f"  {cost:6.3f}  {what}")
        too_much += sum(cost > MAX_CPU_S for cost in found.values())
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
