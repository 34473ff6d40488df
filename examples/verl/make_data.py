"""Writes verl's Parquet file of Gradus' OCaml tasks; `ground_truth` holds ids, and the tests stay
in the file."""

import json
from pathlib import Path

from datasets import Dataset

TASKS = Path(__file__).parents[2] / "configs" / "tasks" / "ocaml.jsonl"

rows = [json.loads(line) for line in TASKS.read_text(encoding="utf-8").splitlines()]
Dataset.from_list(
    [
        {
            "data_source": "gradus/ocaml",
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "reward_model": {"style": "rule", "ground_truth": row["id"]},
            "extra_info": {"index": number},
        }
        for number, row in enumerate(rows)
    ]
).to_parquet("ocaml.parquet")
