"""Repairs of Rust rows: files and tests where other data sets keep them, broken code, and what a
program writes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from pydantic import ValidationError

from corpus.drafts import Unusable
from corpus.rust_text import (
    build_integration_tests,
    extract_imports,
    make_public,
    remove_items,
    remove_test_modules,
)
from corpus.task_repairs import Repair, Values
from corpus.task_rows import wrap_in_fence
from gradus.tasks.rust import RustTask
from services.graders.rust.grader import RustGrader

BROKEN_COLUMNS = ("broken", "buggy_solution", "broken_code")
_MISSING_CRATE = re.compile(r"unlinked crate `(\w+)`")
_EDITION = re.compile(r"--edition[ =](20\d\d|2015)\b")


def flatten_files(values: Values) -> Repair | None:
    """Take texts out of maps of one file each, as crates have them, with the crate's name and
    edition."""
    changed = dict(values)
    flat = []
    for column in ("tests", "solution", "stub"):
        files = values.get(column)
        if isinstance(files, Mapping) and len(files) == 1:
            changed[column] = str(*files.values())
            flat.append(column)
    if not flat:
        return None
    manifest = str(values.get("cargo_toml") or "")
    for field, column in (("name", "crate"), ("edition", "edition")):
        entry = re.search(rf'^{field}\s*=\s*"([^"]+)"', manifest, re.MULTILINE)
        if entry and not values.get(column):
            changed[column] = entry[1].replace("-", "_")
    return Repair(changed, f"take {', '.join(flat)} out of their files")


def read_edition(values: Values) -> Repair | None:
    """Take the edition from the command that runs the row."""
    edition = _EDITION.search(str(values.get("run") or ""))
    if edition is None or values.get("edition"):
        return None
    return Repair({**values, "edition": edition[1]}, f"take the edition {edition[1]} from `run`")


def split_tests(values: Values) -> Repair | None:
    """Take the tests out of the solution's file: what they name becomes public, in the broken code
    too."""
    solution = values.get("solution")
    if values.get("tests") or values.get("cases") or not isinstance(solution, str):
        return None
    try:
        tests = build_integration_tests(solution, only_module=True)
    except Unusable:
        return None
    if not remove_test_modules(solution).strip():
        return None  # the tests are what the row asks to mend
    changed = {**values, "tests": extract_imports(solution, tests) + tests}
    for column in ("solution", "stub", *BROKEN_COLUMNS):
        code = values.get(column)
        if isinstance(code, str) and code.strip():
            library = remove_items(remove_test_modules(code), empty_main=True)
            changed[column] = make_public(library, members=True)
    return Repair(changed, "take the tests out of the solution's file, and make its items public")


def show_broken_code(values: Values) -> Repair | None:
    """Make the code that a prompt asks to mend the stub, and show it in the prompt."""
    column = next((name for name in BROKEN_COLUMNS if values.get(name)), None)
    prompt = values.get("prompt")
    if column is None or values.get("stub") or not isinstance(prompt, str):
        return None
    changed = dict(values)
    broken = changed["stub"] = str(changed.pop(column))
    if broken.strip() in prompt:
        return Repair(changed, f"rename columns: {column} -> stub")
    changed["prompt"] = f"{prompt.rstrip()}\n\n{wrap_in_fence('rust', broken)}"
    return Repair(changed, f"make `{column}` the stub, and show it in the prompt")


def record_output(values: Values, grader: RustGrader) -> Repair | None:
    """Make what a program without tests writes its one case."""
    solution = values.get("solution")
    has_main = isinstance(solution, str) and re.search(r"^fn main\s*\(", solution, re.MULTILINE)
    if values.get("tests") or values.get("cases") or not has_main:
        return None
    case = {"stdin": "", "stdout": ""}
    try:
        edition = values.get("edition") or "2021"
        task = RustTask.model_validate({"cases": [case], "edition": edition})
    except ValidationError:
        return None
    output = grader.read_output(task, str(solution))
    if not output.strip():
        return None
    message = "make what the solution writes the case of a program"
    return Repair({**values, "cases": [{**case, "stdout": output}]}, message)


def add_dependencies(values: Values, problem: str, listed: Collection[str]) -> Repair | None:
    """Name the crates that a solution lacks and the grader has."""
    present = list(values.get("dependencies") or ())
    lacking = dict.fromkeys(_MISSING_CRATE.findall(problem))
    addable = [name for name in lacking if name in listed and name not in present]
    if not addable:
        return None
    message = f"name the crates {', '.join(addable)} under `dependencies`"
    return Repair({**values, "dependencies": [*present, *addable]}, message)


def advise_on_crates(problem: str, listed: Collection[str], manifest: str = "") -> str:
    """Return what to do about crates that the grader does not have; empty where it has all.

    `manifest`: the row's Cargo.toml, which has names as registries do, and versions.
    """
    lacking = [
        name for name in dict.fromkeys(_MISSING_CRATE.findall(problem)) if name not in listed
    ]
    if not lacking:
        return ""
    named = []
    for name in lacking:
        pattern = rf'^({name.replace("_", "[-_]")})\s*=\s*"([^"]+)"'
        entry = re.search(pattern, manifest, re.MULTILINE)
        named.append(f"{entry[1]} {entry[2]}" if entry else name)
    return (
        f"list {', '.join(named)} in a copy of configs/graders/rust_crates.yaml, then run this"
        " command again with `--config COPY`"
    )
