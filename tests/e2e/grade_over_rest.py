"""Grades a batch per grader over REST against a running service and checks each result; exit status
1 with the first that is off.

Usage: grade_over_rest.py URL GRADER[=WORKERS[xNUMBER]]..., NUMBER of right, of wrong and of
ill-typed answers, 1000 at most. Standard library only: a check of a deployment must not need the
deployment's own packages.
"""

import json
import random
import sys
import time
import urllib.error
import urllib.request
from typing import Any

N_EACH = {"ocaml": 20, "rust": 8, "story": 20}
ANSWERS = {
    "ocaml": {
        "right": "let f x = x + {n} - {n} + 1",
        "wrong": "let f x = x + 2 + {n}",
        "ill-typed": "let f x = x ^ {n}",
    },
    "rust": {
        "right": "pub fn f(x: i64) -> i64 {{\n    x + {n} - {n} + 1\n}}",
        "wrong": "pub fn f(x: i64) -> i64 {{\n    x + 2 + {n}\n}}",
        "ill-typed": 'pub fn f(x: i64) -> i64 {{\n    x + "{n}"\n}}',
    },
    "story": {
        "right": (
            "{n} ways were thought of.</think>\nAs a tenant, I want to report a broken boiler"
            " online, so that I need not phone.\nAs a plumber, I want to see my visits of the day,"
            " so that I can plan my route."
        ),
        "wrong": "As a gardener, I want to order {n} roses, so that my beds are full in spring.",
        "ill-typed": "There are {n} stories to be written here.",
    },
}
TASKS = {
    "ocaml": {
        "tests": "assert (f 1 = 2);;\nassert (f 41 = 42);;",
        "signature": "val f : int -> int",
    },
    "rust": {
        "tests": (
            "use solution::f;\n#[test]\nfn one() {\n    assert_eq!(f(1), 2);\n}\n#[test]\nfn more()"
            " {\n    assert_eq!(f(41), 42);\n}"
        ),
        "signature": "pub fn f(x: i64) -> i64;",
    },
    "story": {
        "sprint_goal": "Repairs without the telephone",
        "references": [
            "As a tenant, I want to report a broken boiler online, so that I can do it at night.",
            "As a plumber, I want to see my visits of the day, so that I do not drive twice.",
        ],
    },
}
TYPED = {"ocaml": "types", "rust": "check", "story": "extract"}
"""The stage at which an answer ends that is none: types, or the form of a story."""
LEAST = {"ocaml": 1.0, "rust": 1.0, "story": 0.8}
"""Reward from which an answer is right."""


def call(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def wait_for_workers(url: str, name: str, wanted: int, seconds: int = 90) -> dict[str, Any]:
    """The grader's entry of /v1/graders once it counts that many workers: each has proved its
    sandbox by then."""
    said: Any = None
    for _ in range(seconds):
        try:
            said = call(f"{url}/v1/graders")
            for grader in said["graders"]:
                if grader["name"] == name and grader["workers"] >= wanted:
                    return dict(grader)
        except (urllib.error.URLError, ConnectionError) as error:
            said = error
        time.sleep(1)
    sys.exit(f"no {wanted} {name} workers after {seconds} s: {said}")


def submission(grader: str, kind: str, n: int) -> dict[str, Any]:
    answer = ANSWERS[grader][kind].format(n=n)
    completion = answer if grader == "story" else f"```{grader}\n{answer}\n```"
    return {
        "id": f"{kind}-{n}",
        "prompt": "Add one.",
        "completion": completion,
        "task": TASKS[grader],
    }


def check(grader: str, result: dict[str, Any]) -> None:
    kind = result["id"].rpartition("-")[0]
    assert result["status"] == "graded", result
    assert result["passed"] is (kind == "right"), result
    assert (result["stage"] == TYPED[grader]) is (kind == "ill-typed"), result
    assert (result["reward"] >= LEAST[grader]) is (kind == "right"), result


def main(url: str, name: str, workers: int, n_each: int) -> None:
    started = time.monotonic()
    grader = wait_for_workers(url, name, workers)
    assert grader["sandbox"] == ("none" if name == "story" else "bubblewrap"), grader
    waited_s = time.monotonic() - started
    print(
        f"{name}: {grader['workers']} workers, {grader['slots']} slots, {grader['toolchain']},"
        f" {waited_s:.1f} s waited"
    )
    first = random.randrange(10**6)  # nothing of an earlier run's is in the cache
    submissions = [
        submission(name, kind, first + n) for n in range(n_each) for kind in ANSWERS[name]
    ]
    started = time.monotonic()
    results = call(f"{url}/v1/grade/{name}", {"submissions": submissions, "deadline_s": 100})[
        "results"
    ]
    wall_s = time.monotonic() - started
    assert [result["id"] for result in results] == [submission["id"] for submission in submissions]
    for result in results:
        check(name, result)
    print(f"{name}: {len(results)} submissions graded as expected in {wall_s:.2f} s")


if __name__ == "__main__":
    for argument in sys.argv[2:] or list(TASKS):
        grader, _, wanted = argument.partition("=")
        workers, _, number = wanted.partition("x")
        main(sys.argv[1].rstrip("/"), grader, int(workers or 1), int(number or N_EACH[grader]))
