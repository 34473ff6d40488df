"""verl's load_reward_manager and NaiveRewardManager with `pkg://gradus.integrations.verl`."""

import functools

import numpy as np
import torch
from common import TASK, Characters, run, told
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager

function = {
    "path": "pkg://gradus.integrations.verl",
    "name": "compute_score",
    "reward_kwargs": {"deadline_s": 20},
}
manager = {"source": "register", "name": "naive", "module": {"path": None}}
more = {"num_workers": 1, "sandbox_fusion": {"url": None}, "reward_model": {"enable": False}}
CONFIG = OmegaConf.create(
    {"reward": {"custom_reward_function": function, "reward_manager": manager, **more}}
)


def data_of(text):
    ids = Characters().encode(text)
    mask = torch.ones(1, len(ids) + 1, dtype=torch.long)
    row = {
        "data_source": "gradus/ocaml",
        "reward_model": {"style": "rule", "ground_truth": TASK},
        "extra_info": {},
    }
    columns = {name: np.array([value], dtype=object) for name, value in row.items()}
    return DataProto.from_dict(
        tensors={"responses": torch.tensor([ids]), "attention_mask": mask}, non_tensors=columns
    )


@functools.cache
def naive():
    return load_reward_manager(CONFIG, Characters())


async def reward(text):
    return (await naive().run_single(data_of(text)))["reward_score"]


if __name__ == "__main__":
    run(told(reward, lambda: reward("x")))
