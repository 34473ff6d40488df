"""GRPO with AReaL on Gradus' OCaml tasks; the data set holds ids. `python train.py --config
your_grpo.yaml`"""

import json
import sys
from pathlib import Path

TASKS = Path(__file__).parents[2] / "configs" / "tasks" / "ocaml.jsonl"
ROWS = [json.loads(line) for line in TASKS.read_text(encoding="utf-8").splitlines()]
DATA = [
    {"messages": [{"role": "user", "content": row["prompt"]}], "task": row["id"], "grader": "ocaml"}
    for row in ROWS
]
REWARD = "gradus.integrations.areal.reward_fn"


def main(arguments: list[str]) -> None:
    from areal import PPOTrainer
    from areal.api.cli_args import GRPOConfig, load_expr_config
    from datasets import Dataset

    config, _ = load_expr_config(arguments, GRPOConfig)
    options = {"reward_fn": REWARD, "gconfig": config.gconfig, "tokenizer": config.tokenizer_path}
    with PPOTrainer(config, train_dataset=Dataset.from_list(DATA)) as trainer:
        trainer.train(workflow="areal.workflow.rlvr.RLVRWorkflow", workflow_kwargs=options)


if __name__ == "__main__":
    main(sys.argv[1:])
