"""GRPO with tinker-cookbook on Gradus' OCaml tasks; the tests stay in the file. `python train.py
model_name=...`"""

import asyncio
import functools
import json
import math
import sys
from pathlib import Path

import chz
from tinker_cookbook import renderers
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
from tinker_cookbook.rl.types import RLDataset, RLDatasetBuilder

from gradus.integrations.tinker import GradusEnv

TASKS = Path(__file__).parents[2] / "configs" / "tasks" / "ocaml.jsonl"


class Tasks(RLDataset):
    """Groups of `group_size` answers to each task."""

    def __init__(self, renderer, batch_size, group_size):
        rows = [json.loads(line) for line in TASKS.read_text(encoding="utf-8").splitlines()]
        self._builders = [
            ProblemGroupBuilder(
                env_thunk=functools.partial(
                    GradusEnv, renderer, row["prompt"], row["id"], "ocaml", tasks=str(TASKS)
                ),
                num_envs=group_size,
            )
            for row in rows
        ]
        self._batch_size = batch_size

    def get_batch(self, index):
        return self._builders[index * self._batch_size : (index + 1) * self._batch_size]

    def __len__(self):
        return math.ceil(len(self._builders) / self._batch_size)


@chz.chz
class Builder(RLDatasetBuilder):
    model_name: str
    renderer_name: str = "role_colon"
    batch_size: int = 8
    group_size: int = 8

    async def __call__(self):
        from tinker_cookbook.tokenizer_utils import get_tokenizer

        renderer = renderers.get_renderer(self.renderer_name, get_tokenizer(self.model_name))
        return Tasks(renderer, self.batch_size, self.group_size), None


def main(arguments: list[str]) -> None:
    from tinker_cookbook.rl import train

    model_name = dict(one.split("=", 1) for one in arguments)["model_name"]
    config = train.Config(
        model_name=model_name,
        recipe_name="gradus",
        dataset_builder=Builder(model_name=model_name),
        log_path="runs/tinker",
        learning_rate=4e-5,
        max_tokens=512,
    )
    asyncio.run(train.main(config))


if __name__ == "__main__":
    main(sys.argv[1:])
