"""200 distinct Rust answers of 30 to 80 lines, as a policy writes them: 70 % right, 10 % wrong, 20
% that do not type.

25 of the shipped tasks, 8 answers each: the reference solution in the middle of helper functions
that differ, some of which the linter has remarks about. `with_crates` gives the same answer one
helper more, that uses serde and itertools.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

from gradus.resources import configs
from tests.bench.answers import Written

N_TASKS, N_EACH = 25, 8
TASKS = configs() / "tasks" / "rust.jsonl"

_HELPERS = (
    (
        "/// Adds the numbers up, starting at {k}.\npub fn helper_{n}(numbers: &[i64]) -> i64 {{\n "
        "   let mut sum = {k};\n    for number in numbers {{\n        sum += number;\n    }}\n   "
        " sum\n}}"
    ),
    (
        "pub fn helper_{n}(numbers: Vec<u32>) -> u32 {{\n    return numbers\n        .into_iter()\n"
        "        .filter(|number| number % {k} != 0)\n        .map(|number| number * {k})\n       "
        " .sum();\n}}"
    ),
    (
        "#[derive(Debug, Clone, PartialEq)]\npub enum Shape{n} {{\n    Circle(f64),\n   "
        " Square(f64),\n}}\n\nimpl Shape{n} {{\n    pub fn area(&self) -> f64 {{\n        match"
        " self {{\n            Shape{n}::Circle(radius) => 3.0 * radius * radius,\n           "
        " Shape{n}::Square(side) => side * side + {k}.0,\n        }}\n    }}\n}}"
    ),
    (
        "pub fn helper_{n}(words: &[&str]) -> std::collections::HashMap<String, usize> {{\n    let"
        " mut counts = std::collections::HashMap::new();\n    for word in words {{\n        if"
        " word.len() < {k} {{\n            *counts.entry(word.to_string()).or_insert(0) += 1;\n    "
        "    }}\n    }}\n    counts\n}}"
    ),
    (
        "pub fn helper_{n}(text: &str) -> Result<i64, std::num::ParseIntError> {{\n    let mut"
        " total = {k};\n    for part in text.split(',') {{\n        total +="
        " part.trim().parse::<i64>()?;\n    }}\n    Ok(total)\n}}"
    ),
)
_CRATES_HELPER = (
    "#[derive(Debug, serde::Serialize, serde::Deserialize)]\npub struct Record{n} {{\n    pub name:"
    " String,\n    pub size: u32,\n}}\n\npub fn joined_{n}(records: &[Record{n}]) -> String {{\n   "
    ' use itertools::Itertools;\n    records.iter().map(|record| &record.name).sorted().join(",'
    ' ")\n}}'
)
_STD_HELPER = (
    "#[derive(Debug)]\npub struct Record{n} {{\n    pub name: String,\n    pub size: u32,\n}}\n\n"
    "pub fn joined_{n}(records: &[Record{n}]) -> String {{\n"
    "    let mut names: Vec<&str> = records.iter().map(|record| record.name.as_str()).collect();\n"
    '    names.sort();\n    names.join(", ")\n}}'
)


def answers() -> Iterator[Written]:
    """In an order of which every beginning is a spread of tasks and of right and wrong."""
    tasks = list(filter(_fits, map(json.loads, TASKS.read_text().splitlines())))
    step = len(tasks) / N_TASKS
    for version in range(N_EACH):
        for index in range(N_TASKS):
            yield _answer(tasks[int(index * step)], version * N_TASKS + index)


def _fits(task: dict[str, str]) -> bool:
    """It has a signature and tests, and is one file without crates."""
    plain = not (task.get("files") or task.get("dependencies") or task.get("cases"))
    return plain and bool(task.get("signature")) and task["solution"].count("\n") < 60


def _answer(task: dict[str, str], number: int) -> Written:
    rnd = random.Random(number)
    kind = ("right", "right", "right", "wrong", "right", "right", "type", "right", "type", "right")[
        number % 10
    ]
    parts = [(task["stub"] if kind == "wrong" else task["solution"]).strip()]
    target = rnd.randint(30, 75)
    while len(parts) == 1 or sum(part.count("\n") + 2 for part in parts) < target:
        parts.append(rnd.choice(_HELPERS).format(n=f"{number}N{len(parts)}", k=rnd.randint(2, 99)))
    if kind == "type":
        parts.append(f'pub fn broken_{number}(x: i32) -> i32 {{\n    x + "{number}"\n}}')
    code = "\n\n".join(parts) + "\n"
    return Written(
        f"{task['id']}-{number}", code, task["signature"], task["tests"], kind == "right"
    )


def with_crates(written: Written) -> Written:
    """The same with a helper that uses serde's derive and itertools."""
    return _with(written, _CRATES_HELPER)


def without_crates(written: Written) -> Written:
    """The same with that helper as one writes it without crates."""
    return _with(written, _STD_HELPER)


def _with(written: Written, helper: str) -> Written:
    number = written.id.rpartition("-")[2]
    return replace(written, code=f"{written.code}\n{helper.format(n=number)}\n")
