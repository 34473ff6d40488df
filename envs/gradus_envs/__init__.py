"""The tasks of Gradus as environments. verifiers finds `ShippedTaskset` by the name of this module;
NeMo Gym reads rows that `gradus-envs rows GRADER` prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.integrations.core import extract_task
from gradus.row_reader import read_non_empty_rows

__all__ = ["ShippedTaskset"]
GRADERS = ("ocaml", "rust", "story")


def find_tasks(grader: str) -> Path:
    """Return the file of a grader's tasks. Raises Misuse where there is none."""
    if grader not in GRADERS:
        raise Misuse(f"there are no tasks for {grader!r}: use {', '.join(GRADERS)}")
    return Path(__file__).with_name("tasks") / f"{grader}.jsonl"


def iter_nemo_gym_rows(grader: str, *, with_ids: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the tasks as NeMo Gym's rows, which hold the tests, or ids in their place."""
    for row in read_non_empty_rows(find_tasks(grader)):
        name = row.text("id")
        prompt = {"input": [{"role": "user", "content": row.text("prompt")}]}
        task: Any = name if with_ids else extract_task(row.values, grader)
        yield {"id": name, "responses_create_params": prompt, "verifier_metadata": {"task": task}}


def __getattr__(name: str) -> Any:
    """Import verifiers only where its task set is asked for."""
    if name == "ShippedTaskset":
        from gradus_envs.taskset import ShippedTaskset

        return ShippedTaskset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
