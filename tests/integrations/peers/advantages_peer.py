"""A trainer's own advantage code on rewards of which one in ten is a fault.

`advantages_peer.py TRAINER` prints the advantages of the samples without a fault, what they are in
a batch that never held the others, and those of the faults. Packages that need a GPU or serve HTTP
are replaced by empty modules.
"""

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import math
import sys
import types
from pathlib import Path

import numpy as np
import torch

N_GROUPS, GROUP_SIZE, LENGTH = 4, 10, 3
ABSENT = ("vllm", "flash_attn", "deepspeed", "cachetools", "torchdata", "flask", "colorlog")
ABSENT += ("loguru", "jaxtyping", "transfer_queue", "swanlab", "openai_harmony", "setproctitle")
ABSENT += ("einops", "torch_memory_saver", "mbridge", "megatron")
FAULTED = [group * GROUP_SIZE + 3 * group % GROUP_SIZE for group in range(N_GROUPS)]
"""One sample of each group, in four places."""


class Empty(types.ModuleType):
    """A module whose every name is a class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__class_getitem__": classmethod(lambda cls, item: cls)})


class EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of empty modules for packages of `ABSENT` that are not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


def skip_init(*names):
    """Register packages without running their `__init__`, which imports engines."""
    root = importlib.util.find_spec(names[0].partition(".")[0]).submodule_search_locations[0]
    for name in names:
        module = types.ModuleType(name)
        module.__path__ = [str(Path(root).joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module


def build_rewards(faults):
    """Return one reward per sample; NaN for the faulted ones if `faults`."""
    values = [math.sin(5 * number) for number in range(N_GROUPS * GROUP_SIZE)]
    if faults:
        for number in FAULTED:
            values[number] = math.nan
    return torch.tensor(values, dtype=torch.float32)


def keep(values):
    kept = [number for number in range(len(values)) if number not in FAULTED]
    return values[kept]


def build_token_rewards(rewards):
    tokens = torch.zeros(len(rewards), LENGTH)
    tokens[:, -1] = rewards
    return tokens


GROUPS = np.array([f"group {n // GROUP_SIZE}" for n in range(N_GROUPS * GROUP_SIZE)], dtype=object)


def compare_estimators(get_estimator, name, **options):
    """Return the advantages of `gradus_NAME` with faults, and of `NAME` without those samples."""
    mask = torch.ones(len(GROUPS), LENGTH)
    advantages, _ = get_estimator(f"gradus_{name}")(
        token_level_rewards=build_token_rewards(build_rewards(faults=True)),
        response_mask=mask,
        index=GROUPS,
        **options,
    )
    expected, _ = get_estimator(name)(
        token_level_rewards=build_token_rewards(keep(build_rewards(faults=False))),
        response_mask=keep(torch.ones_like(mask)),
        index=keep(GROUPS),
        **options,
    )
    return {
        "kept": keep(advantages).flatten().tolist(),
        "expected": expected.flatten().tolist(),
        "faulted": advantages[FAULTED].flatten().tolist(),
        "tokens_in_loss": mask[FAULTED].sum().item(),
    }


def run_verl():
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    return [
        compare_estimators(get_adv_estimator_fn, name, config=AlgoConfig())
        for name in ("grpo", "grpo_vectorized", "rloo", "opo", "gpg")
    ]


def run_skyrl():
    skip_init("skyrl", "skyrl.backends", "skyrl.backends.skyrl_train", "skyrl.train")
    sys.modules["skyrl.train.config"] = Empty("skyrl.train.config")
    from gradus.integrations.skyrl_advantage import AdvantageEstimatorRegistry, register

    register()
    return [
        compare_estimators(AdvantageEstimatorRegistry.get, name)
        for name in ("grpo", "rloo", "maxrl")
    ]


def run_openrlhf():
    """Run the filter of whole groups, then the baseline of those that are left."""
    import ray
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    name = types.SimpleNamespace
    advantage = name(estimator="group_norm", gamma=1.0, no_std_norm=False)
    args = name(
        algo=name(dynamic_filtering_range=(-1, 1), advantage=advantage),
        rollout=name(n_samples_per_prompt=GROUP_SIZE),
        reward=name(clip_range=None, overlong_buffer_len=None, stop_properly_penalty_coef=None),
    )
    ray.wait = lambda refs, **_: (refs[:1], refs[1:])
    ray.get = lambda ref: ref
    groups = []

    class Samples(SamplesGenerator):
        def __init__(self):
            self.args = args

        def _dispatch_prompts_to_vllm(self, prompts, labels, **_):
            return [groups[int(prompt)] for prompt in prompts]

    def compute(rewards):
        groups[:] = [build_responses(values.tolist()) for values in rewards]
        rows = iter([(["source"], [str(n)], ["label"], [None]) for n in range(len(groups))])
        experiences, _, _ = Samples()._generate_vllm(rows, len(groups), True)
        for number, experience in enumerate(experiences):
            experience.index = [number]
            experience.kl = torch.zeros_like(experience.action_mask, dtype=torch.float32)
        maker = RemoteExperienceMaker.__new__(RemoteExperienceMaker)
        maker.strategy = name(args=args)
        maker.kl_ctl = name(value=0.0)
        maker.advantage_estimator = "group_norm"
        shaped = maker.compute_advantages_and_returns(experiences)
        return torch.cat([experience.advantages for experience in shaped]).flatten().tolist()

    return [{**compute_by_groups(compute), "faulted": []}]


def build_responses(values):
    """Return what OpenRLHF's agent returns for the samples of one prompt."""
    common = {"action_ranges": [(1, 3)], "rollout_log_probs": None, "prompt": "p", "label": "l"}
    tokens = {"observation_tokens": [1, 2, 3]}
    return [{**common, **tokens, "reward": value, "scores": value} for value in values]


def compute_by_groups(compute):
    """Return the advantages of groups of which the second has a fault, and of the other groups."""
    rewards = build_rewards(faults=False).reshape(N_GROUPS, GROUP_SIZE)
    expected = compute(rewards[[0, 2, 3]])
    rewards[1, 4] = math.nan
    return {"kept": compute(rewards), "expected": expected}


def run_areal():
    """Run the predicate that AReaL calls with a group, then its normalization by groups."""
    skip_init("areal", "areal.utils", "areal.infra", "areal.api")
    sys.modules["areal.infra.platforms"] = Empty("areal.infra.platforms")
    sys.modules["areal.utils.logging"] = logging
    sys.modules["areal.utils.seqpack"] = Empty("areal.utils.seqpack")
    from areal.utils.data import Normalization

    from gradus.integrations.areal import has_no_fault

    settings = types.SimpleNamespace(mean_level="group", std_level="group", group_size=GROUP_SIZE)
    settings.mean_leave1out = False
    settings.std_unbiased = True
    settings.eps = 1e-5

    def compute(rewards):
        accepted = [group for group in rewards if has_no_fault({"rewards": group})]
        return Normalization(settings)(torch.cat(accepted)).tolist()

    return [{**compute_by_groups(compute), "faulted": []}]


def run_tinker():
    """Run `MinViableGroup` with rollouts that raise, then the baseline of what it keeps."""
    from tinker_cookbook.rl import rollouts
    from tinker_cookbook.rl.data_processing import compute_advantages
    from tinker_cookbook.rl.rollout_strategy import MinViableGroup
    from tinker_cookbook.rl.types import TrajectoryGroup

    async def roll_out(policy, env):
        if math.isnan(env):
            raise RuntimeError("fault")
        return env

    rollouts.do_single_rollout = roll_out

    def compute(rewards):
        groups = []
        for values in rewards.tolist():
            builder = types.SimpleNamespace(make_envs=lambda values=values: wrap(values))
            kept = asyncio.run(MinViableGroup(max_retries=0).execute(builder, None)).trajectories
            empty = [types.SimpleNamespace(transitions=[]) for _ in kept]
            groups.append(TrajectoryGroup(empty, kept, [{} for _ in kept]))
        return torch.cat([advantages.sort().values for advantages in compute_advantages(groups)])

    async def wrap(value):
        return value

    faulted = build_rewards(faults=True).reshape(N_GROUPS, GROUP_SIZE)
    clean = keep(build_rewards(faults=False)).reshape(N_GROUPS, GROUP_SIZE - 1)
    kept = compute(faulted).tolist()
    expected = compute(clean).tolist()
    return [{"kept": kept, "expected": expected, "faulted": []}]


if __name__ == "__main__":
    sys.meta_path.append(EmptyModules())
    print("RESULT " + json.dumps(globals()[f"run_{sys.argv[1]}"]()))
