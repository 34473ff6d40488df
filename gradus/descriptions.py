"""Descriptions of graders for programs that have neither the grader nor a service to get them from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradus.contract import TASKS, GraderDescription, GraderName, Stage


def _described(name: GraderName, completion: str, task: dict[str, Any], **facts: Any) -> GraderDescription:
    example = {"id": "a1", "prompt": "", "completion": completion, "task": task}
    given = {"task_schema": TASKS[name].model_json_schema(), "example": example, "fences": (), "reads_prompt": False}
    return GraderDescription(name=name.value, **{**given, **facts})


DESCRIPTIONS: Mapping[str, GraderDescription] = {
    "ocaml": _described(
        GraderName.OCAML,
        "```ocaml\nlet f x = x + 1\n```",
        {"tests": "let () = assert (f 1 = 2)", "signature": "val f : int -> int"},
        stages=(Stage.EXTRACT, Stage.TYPES, Stage.COMPILE, Stage.TESTS),
        rates={"types": "past:types", "compile": "past:compile", "tests": "passed"},
        components=("types", "compile", "tests", "degenerate", "style"),
        fences=("ocaml", "ml"),
    ),
    "rust": _described(
        GraderName.RUST,
        "```rust\npub fn f(x: i64) -> i64 {\n    x + 1\n}\n```",
        {"tests": "use solution::*;\n\n#[test]\nfn adds() {\n    assert_eq!(f(1), 2);\n}\n"},
        stages=(Stage.EXTRACT, Stage.CHECK, Stage.CLIPPY, Stage.TESTS),
        rates={"check": "past:check", "clippy": "clean:clippy", "tests": "passed"},
        components=("check", "clippy", "tests", "degenerate", "style", "tier"),
        fences=("rust", "rs"),
    ),
    "story": _described(
        GraderName.STORY,
        "As a visitor, I want to search the shop, so that I find things.",
        {"references": ["As a visitor, I want to search the shop, so that I find things."]},
        stages=(Stage.EXTRACT, Stage.SCORE),
        rates={"stories": "past:extract", "complete": "passed"},
        components=(
            *("coverage", "format", "clauses", "count", "length", "redundancy", "extraneous", "benefits"),
            *("boilerplate", "fluency", "focus", "coherence", "role", "tampering", "regex", "clause", "clipped"),
        ),
    ),
    "preference": _described(
        GraderName.PREFERENCE,
        "Paris.",
        {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
        stages=(Stage.EXTRACT, Stage.SCORE),
        rates={"tests": "passed"},
        components=("score", "squashed"),
        reads_prompt=True,
    ),
}


_UNDESCRIBED = GraderDescription(
    name="undescribed",
    task_schema={},
    example={},
    stages=(),
    rates={"tests": "passed"},
    components=(),
    fences=(),
    reads_prompt=False,
)


def description_of(name: str) -> GraderDescription:
    """The description of the grader `name`.

    One that is not known here has no stages, fences or components, and only the rate `tests`. Readers then order its
    stages as `Stage` does.
    """
    return DESCRIPTIONS.get(name) or _UNDESCRIBED.model_copy(update={"name": name})
