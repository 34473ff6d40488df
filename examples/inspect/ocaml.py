"""An inspect_ai task over Gradus' OCaml tasks: `inspect eval examples/inspect/ocaml.py --model
...`."""

import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.solver import generate

from gradus.integrations.inspect import gradus

TASKS = Path(__file__).parents[2] / "configs" / "tasks" / "ocaml.jsonl"


@task
def ocaml() -> Task:
    rows = [json.loads(line) for line in TASKS.read_text(encoding="utf-8").splitlines()]
    samples = [
        Sample(input=row["prompt"], id=row["id"], metadata={"task": row["id"]}) for row in rows
    ]
    return Task(dataset=samples, solver=generate(), scorer=gradus("ocaml", tasks=str(TASKS)))
