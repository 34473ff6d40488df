"""slime's or miles' own path from rewards to advantages: `slime_advantages_peer.py NAME CHECKOUT`.

`masking_reward` and `post_process` of gradus.integrations.slime are named as its options name them;
one sample in ten is graded by a service without a grader. Prints the advantages, and those that the
trainer's own normalization gives a batch that never held the faults.
"""

import asyncio
import importlib
import json
import math
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import advantages_peer
import torch
from advantages_peer import FAULTED, GROUP_SIZE, GROUPS, LENGTH, N_GROUPS, keep
from common import ANSWERS, FAULTY, ROW, TASK

PEER, CHECKOUT = sys.argv[1:3]
NEIGHBOURS = ("backends.megatron_utils.cp_utils", "backends.sglang_utils", "observability")
NEIGHBOURS += ("backends.training_utils.cp_utils", "backends.training_utils.parallel")
NEIGHBOURS += ("backends.training_utils.loss_hub.losses", "ray.rollout_validation", "ray.utils")
NEIGHBOURS += ("backends.training_utils.loss_hub.logit_processors", "rollout.rm_hub.")
NEIGHBOURS += ("utils.audit_utils", "utils.distributed_utils", "utils.health_monitor")
NEIGHBOURS += ("utils.http_utils", "utils.timer", "utils.tracking_utils")
PACKAGES = ("backends.megatron_utils", "backends.training_utils", "backends", "ray.rollout", "ray")
PACKAGES += ("backends.training_utils.loss_hub",)
PLUG_IN = "gradus.integrations.slime"
ARGS = {
    "custom_rm_path": f"{PLUG_IN}.masking_reward",
    "rm_type": None,
    "reward_key": None,
    "advantage_estimator": "grpo",
    "rewards_normalization": True,
    "grpo_std_normalization": True,
    "kl_coef": 0,
    "use_rollout_logprobs": False,
    "custom_advantage_function_path": None,
    "use_opd": False,
    "normalize_advantages": False,
    "skip_actor_forward_only": False,
    "use_dynamic_global_batch_size": False,
    "multi_lora": False,
    "rollout_batch_size": N_GROUPS,
}


class Neighbours(advantages_peer.EmptyModules):
    def find_spec(self, name, path=None, target=None):
        if name.startswith(tuple(f"{PEER}.{one}" for one in NEIGHBOURS)) or name.startswith(
            "sglang"
        ):
            return ModuleSpec(name, self, is_package=True)
        return super().find_spec(name, path, target)


def build_sample(number, types):
    text = list(ANSWERS.values())[number % len(ANSWERS)]
    return types.Sample(
        group_index=number // GROUP_SIZE,
        index=number,
        prompt=ROW["prompt"],
        tokens=[1, *range(LENGTH)],
        response=text,
        response_length=LENGTH,
        label=TASK,
    )


async def grade(samples, hub):
    """Set the rewards of samples, those of faults last, by a service without a grader."""

    async def reward(sample):
        sample.reward = await hub.async_rm(SimpleNamespace(**ARGS), sample)

    await asyncio.gather(*map(reward, keep_samples(samples)))
    os.environ["GRADUS_URL"] = FAULTY
    await asyncio.gather(*(reward(samples[number]) for number in FAULTED))


def keep_samples(samples):
    return [sample for number, sample in enumerate(samples) if number not in FAULTED]


def convert(args, samples, post_process):
    """Return the training data that the trainer makes of samples."""
    if PEER == "miles":
        conversion = importlib.import_module("miles.ray.rollout.train_data_conversion")
        return conversion.convert_samples_to_train_data(args, samples, {}, None, post_process)
    rollout = importlib.import_module("slime.ray.rollout")
    manager = object.__new__(rollout.RolloutManager.__ray_metadata__.modified_class)
    manager.args = args
    manager.custom_convert_samples_to_train_data_func = None
    manager.custom_reward_post_process_func = post_process
    return manager._convert_samples_to_train_data(samples)


def compute(samples, group_size, post_process):
    """Return the advantages and loss masks of samples."""
    args = SimpleNamespace(**ARGS, n_samples_per_prompt=group_size)
    data = convert(args, samples, post_process)
    data["log_probs"] = [torch.zeros(LENGTH) for _ in samples]
    data["total_lengths"] = [LENGTH + 1 for _ in samples]
    data["loss_masks"] = torch.tensor(data["loss_masks"])
    folder = "training_utils" if PEER == "miles" else "megatron_utils"
    loss = importlib.import_module(f"{PEER}.backends.{folder}.loss")
    loss.mpu = SimpleNamespace(is_pipeline_last_stage=lambda: True)
    loss.compute_advantages_and_returns(args, data)
    return torch.stack(data["advantages"]), data["loss_masks"]


async def main():
    types = importlib.import_module(f"{PEER}.utils.types")
    hub = importlib.import_module(f"{PEER}.rollout.rm_hub")
    samples = [build_sample(number, types) for number in range(len(GROUPS))]
    await grade(samples, hub)
    post_process = importlib.import_module(PLUG_IN).post_process
    advantages, masks = compute(samples, GROUP_SIZE, post_process)
    clean = keep_samples(samples)
    expected, _ = compute(clean, GROUP_SIZE - 1, None)
    rewards = [sample.reward for sample in samples]
    assert sorted(FAULTED) == [n for n, reward in enumerate(rewards) if math.isnan(reward)]
    found = {
        "kept": keep(advantages).flatten().tolist(),
        "expected": expected.flatten().tolist(),
        "faulted": advantages[FAULTED].flatten().tolist(),
        "tokens_in_loss": masks[FAULTED].sum().item(),
        "tokens_of_others": keep(masks).sum().item(),
    }
    print("RESULT " + json.dumps([found]))


if __name__ == "__main__":
    sys.meta_path.insert(0, Neighbours())
    sys.path.insert(0, CHECKOUT)
    for name in PACKAGES:
        if Path(CHECKOUT, PEER, *name.split(".")).is_dir():
            advantages_peer.skip_init(f"{PEER}.{name}")
    asyncio.run(main())
