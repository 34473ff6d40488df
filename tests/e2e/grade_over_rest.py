"""Grades a batch over REST against a running service and checks each result; exit status 1 with the first that is off.

Usage: grade_over_rest.py URL [WORKERS]. Standard library only: a check of a deployment must not need the deployment's
own packages.
"""

import json
import random
import sys
import time
import urllib.error
import urllib.request
from typing import Any

TESTS = "assert (f 1 = 2);;\nassert (f 41 = 42);;"
BODIES = {"right": "x + {n} - {n} + 1", "wrong": "x + 2 + {n}", "ill-typed": "x ^ {n}"}
N_EACH = 20


def call(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def wait_for_workers(url: str, wanted: int, seconds: int = 90) -> dict[str, Any]:
    """The OCaml entry of /v1/graders once it counts that many workers: each has proved its sandbox by then."""
    said: Any = None
    for _ in range(seconds):
        try:
            said = call(f"{url}/v1/graders")
            for grader in said["graders"]:
                if grader["name"] == "ocaml" and grader["workers"] >= wanted:
                    return dict(grader)
        except (urllib.error.URLError, ConnectionError) as error:
            said = error
        time.sleep(1)
    sys.exit(f"no {wanted} OCaml workers after {seconds} s: {said}")


def submission(kind: str, n: int) -> dict[str, Any]:
    completion = f"```ocaml\nlet f x = {BODIES[kind].format(n=n)}\n```"
    task = {"tests": TESTS, "signature": "val f : int -> int"}
    return {"id": f"{kind}-{n}", "prompt": "Add one.", "completion": completion, "task": task}


def check(result: dict[str, Any]) -> None:
    kind = result["id"].rpartition("-")[0]
    assert result["status"] == "graded", result
    assert result["passed"] is (kind == "right"), result
    assert (result["stage"] == "types") is (kind == "ill-typed"), result
    assert (result["reward"] == 1.0) is (kind == "right"), result


def main(url: str, workers: int) -> None:
    started = time.monotonic()
    grader = wait_for_workers(url, workers)
    assert grader["sandbox"] == "bubblewrap", grader
    waited_s = time.monotonic() - started
    print(f"{grader['workers']} workers, {grader['slots']} slots, {grader['toolchain']}, {waited_s:.1f} s waited")
    first = random.randrange(10**6)  # nothing of an earlier run's is in the cache
    submissions = [submission(kind, first + n) for n in range(N_EACH) for kind in BODIES]
    started = time.monotonic()
    results = call(f"{url}/v1/grade/ocaml", {"submissions": submissions, "deadline_s": 100})["results"]
    wall_s = time.monotonic() - started
    assert [result["id"] for result in results] == [submission["id"] for submission in submissions]
    for result in results:
        check(result)
    print(f"{len(results)} submissions graded as expected in {wall_s:.2f} s")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
