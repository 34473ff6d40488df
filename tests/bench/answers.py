"""200 distinct OCaml answers of 20 to 60 lines, as a policy writes them: 70 % right, 10 % wrong, 20
% that do not type.

25 of the shipped tasks, 8 answers each: the reference solution in the middle of helper functions
that differ.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from gradus.resources import configs

N_TASKS, N_EACH = 25, 8

_HELPERS = (
    "let rec helper_{n} l = match l with\n  | [] -> {k}\n  | x :: rest -> x + helper_{n} rest",
    (
        "let helper_{n} l =\n  l\n  |> List.filter (fun x -> x mod {k} <> 0)\n  |> List.map (fun x"
        " -> x * {k})\n  |> List.fold_left ( + ) 0"
    ),
    (
        "type shape_{n} = Circle_{n} of float | Square_{n} of float\n\nlet helper_{n} = function\n"
        "  | Circle_{n} r -> 3.14 *. r *. r\n  | Square_{n} s -> s *. s +. {k}.0"
    ),
    (
        "module Names_{n} = Map.Make (String)\n\nlet helper_{n} words =\n  List.fold_left\n    (fun"
        " m w -> Names_{n}.update w (function None -> Some {k} | Some c -> Some (c + 1)) m)\n   "
        " Names_{n}.empty words"
    ),
    (
        "let helper_{n} s =\n  let b = Buffer.create {k} in\n"
        "  String.iter (fun c -> Buffer.add_char b (Char.uppercase_ascii c)) s;"
        "\n  Buffer.contents b"
    ),
)


@dataclass(frozen=True, slots=True)
class Written:
    """One answer to one task."""

    id: str
    code: str
    signature: str
    tests: str
    right: bool


def answers() -> Iterator[Written]:
    tasks = [
        json.loads(line) for line in (configs() / "tasks" / "ocaml.jsonl").read_text().splitlines()
    ]
    fitting = [
        task
        for task in tasks
        if "module" not in task["signature"] and task["solution"].count("\n") < 40
    ]
    step = len(fitting) / N_TASKS
    for index in range(N_TASKS):
        task = fitting[int(index * step)]
        for version in range(N_EACH):
            yield _answer(task, index * N_EACH + version)


def _answer(task: dict[str, str], number: int) -> Written:
    rnd = random.Random(number)
    kind = ("right", "right", "right", "wrong", "right", "right", "type", "right", "type", "right")[
        number % 10
    ]
    base = task["stub"] if kind == "wrong" else task["solution"]
    parts = [base.strip()]
    target = rnd.randint(20, 55)
    while sum(part.count("\n") + 2 for part in parts) < target:
        parts.insert(
            0, rnd.choice(_HELPERS).format(n=f"{number}_{len(parts)}", k=rnd.randint(2, 99))
        )
    if kind == "type":
        parts.insert(rnd.randrange(len(parts)), f'let broken_{number} x = (x + 1) ^ "{number}"')
    code = "\n\n".join(parts) + "\n"
    return Written(
        f"{task['id']}-{number}", code, task["signature"], task["tests"], kind == "right"
    )
