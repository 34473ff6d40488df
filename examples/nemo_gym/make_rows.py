"""Writes NeMo Gym's rows of Gradus' OCaml tasks; they hold ids, and the tests stay in the service's
file."""

import json
import sys
from pathlib import Path

TASKS = Path(__file__).parents[2] / "configs" / "tasks" / "ocaml.jsonl"

for line in TASKS.read_text(encoding="utf-8").splitlines():
    row = json.loads(line)
    prompt = {"input": [{"role": "user", "content": row["prompt"]}]}
    sys.stdout.write(
        json.dumps({"responses_create_params": prompt, "verifier_metadata": {"task": row["id"]}})
        + "\n"
    )
