"""GRPO with TRL on Gradus' OCaml tasks; the data set holds ids, and the tests stay in the file."""

import json
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from gradus.integrations.trl import reward

TASKS = Path(__file__).parents[2] / "configs" / "tasks" / "ocaml.jsonl"
ROWS = [json.loads(line) for line in TASKS.read_text(encoding="utf-8").splitlines()]
DATA = [{"prompt": [{"role": "user", "content": row["prompt"]}], "task": row["id"]} for row in ROWS]

if __name__ == "__main__":
    trainer = GRPOTrainer(
        model="Qwen/Qwen2.5-Coder-0.5B-Instruct",
        reward_funcs=reward("ocaml", tasks=str(TASKS)),
        train_dataset=Dataset.from_list(DATA),
        args=GRPOConfig(output_dir="runs/trl", max_completion_length=512, num_generations=8),
    )
    trainer.train()
