"""Names that do not exist: what compilers say of functions, methods, modules, fields, types and crates nobody wrote.

Read from a verdict's diagnostics, by their code and wording; no compiler is asked again. A name counts that the
compiler looked for and did not find, so a forgotten `use` counts too. A name that exists and is something else (E0423)
or private (E0603), a lifetime, a label, and a function that only lacks `rec` do not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainer.evaluate.figures import Part, Rate, by_task, ratio_over_tasks, share_over_tasks

Record = Mapping[str, Any]
MOST_NAMES = 20
NAME_CHARS = 80

_NAME = r"`(?P<name>[^`]+)`"
_NOT_FOUND = re.compile(rf"cannot find (?:[a-z ,]+ )?{_NAME} in (?:(?:[a-z ]+ )?`(?P<owner>[^`]+)`)?")
_NOT_A_MEMBER = re.compile(rf"[a-z ]+ {_NAME} is not a member of trait `(?P<owner>[^`]+)`")
_NO_FIELD = re.compile(rf"[a-z ]+ `[^`]+` (?:has no|does not have a) field named {_NAME}")
RUST: Mapping[str | None, re.Pattern[str]] = {
    "E0026": _NO_FIELD,
    "E0220": re.compile(rf"associated [a-z]+ {_NAME} not found"),
    "E0405": _NOT_FOUND,
    "E0407": _NOT_A_MEMBER,
    "E0412": _NOT_FOUND,
    "E0422": _NOT_FOUND,
    "E0425": _NOT_FOUND,
    "E0432": re.compile(rf"unresolved imports? {_NAME}"),
    "E0433": _NOT_FOUND,
    "E0437": _NOT_A_MEMBER,
    "E0438": _NOT_A_MEMBER,
    "E0463": re.compile(rf"can't find crate for {_NAME}"),
    "E0531": _NOT_FOUND,
    "E0559": _NO_FIELD,
    "E0560": _NO_FIELD,
    "E0576": _NOT_FOUND,
    "E0583": re.compile(rf"file not found for module {_NAME}"),
    "E0599": re.compile(rf"no [a-z ,]+ named {_NAME} found"),
    "E0609": re.compile(rf"no field {_NAME} on"),
    "E0635": re.compile(rf"unknown feature {_NAME}"),
    None: re.compile(rf"cannot find (?:macro|attribute|derive macro) {_NAME} in"),
}
"""By rustc's code; macros, attributes and derives have none. In the words of rustc 1.95."""

_KINDS = "value|module type|module|constructor|record field|type constructor|class type|class|instance variable"
OCAML = (
    re.compile(rf'Unbound (?:{_KINDS}) "?(?P<name>[^\s"]+)'),
    re.compile(r'There is no (?:field|constructor) "?(?P<name>[^\s"]+)"? within type'),
    re.compile(r'It has no method "?(?P<name>[^\s"]+)'),
)
_LACKS_REC = "If this is a recursive definition"


class Invented(Part):
    """Names that the compiler did not find."""

    answers: Rate | None
    """Share of judged answers with at least one; tasks weigh alike."""
    errors: Rate | None
    """Share of the compiler's errors that say so, of all in all judged answers; None where there were no errors."""
    names: dict[str, int]
    """The most frequent, each with the number of answers that have it."""


def invented_of(verdicts: Sequence[Record], grader: str, seed: int = 0) -> Invented | None:
    """The figures of judged answers; None for graders without a compiler."""
    if grader not in _STAGES:
        return None
    found = [(record, *_counts(record, grader)) for record in verdicts]
    names = Counter(name for _, _, invented in found for name in {*invented})
    tasks = by_task([{"prompt_id": record["prompt_id"], "all": n, "invented": names} for record, n, names in found])
    return Invented(
        answers=share_over_tasks([[bool(one["invented"]) for one in task] for task in tasks], seed),
        errors=ratio_over_tasks(
            [sum(len(one["invented"]) for one in task) for task in tasks],
            [sum(one["all"] for one in task) for task in tasks],
            seed,
        ),
        names=dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))[:MOST_NAMES]),
    )


_STAGES = {"ocaml": "types", "rust": "check"}
"""Of diagnostics that speak of names."""


def _counts(record: Record, grader: str) -> tuple[int, list[str]]:
    """How many errors the compiler found, and the name that each of those has which speak of one."""
    errors = list(_errors(record, _STAGES[grader]))
    return len(errors), [name for error in errors if (name := invented_name(error, grader)) is not None]


def _errors(record: Record, stage: str) -> Iterator[Record]:
    for remark in record.get("diagnostics") or ():
        if isinstance(remark, Mapping) and remark.get("severity") == "error" and remark.get("stage") == stage:
            yield remark


def invented_name(error: Record, grader: str) -> str | None:
    """The name that an error says does not exist, with what it was looked for in; None where it says no such thing."""
    message, code = str(error.get("message") or ""), error.get("code")
    if grader == "rust":
        pattern = RUST.get(code if isinstance(code, str) else None)
        match = pattern.match(message) if pattern else None
    else:
        match = next((found for pattern in OCAML if (found := pattern.search(message))), None)
        match = None if _LACKS_REC in message else match
    if match is None:
        return None
    owner = match.groupdict().get("owner")
    return (f"{owner}::{match['name']}" if owner else match["name"])[:NAME_CHARS]
