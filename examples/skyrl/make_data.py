"""Writes SkyRL's Parquet file of Gradus' OCaml tasks; `ground_truth` holds ids, and the tests stay
in the file."""

import json
from pathlib import Path

from datasets import Dataset

TASKS = Path(__file__).parents[2] / "configs" / "tasks" / "ocaml.jsonl"

rows = [json.loads(line) for line in TASKS.read_text(encoding="utf-8").splitlines()]
Dataset.from_list(
    [
        {
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "env_class": "gradus",
            "reward_spec": {"method": "rule", "ground_truth": row["id"]},
            "extra_info": {"grader": "ocaml"},
        }
        for row in rows
    ]
).to_parquet("ocaml.parquet")
