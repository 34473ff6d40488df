"""NeMo-RL's own path from NeMo Gym's results to advantages: `nemo_rl_peer.py CHECKOUT`.

Results are replies of `/verify` on Gradus' ports of NeMo Gym; one in ten is of a service without a
grader. NeMo-RL's code makes a batch, loss masks and advantages of them. Its workers, models and
data sets are replaced by empty modules. Prints, for each estimator, the advantages with Gradus'
plug-in, those of a batch that never held the faults, and those without the plug-in.
"""

import json
import os
import sys
import typing
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import advantages_peer
import torch
import typing_extensions
from advantages_peer import FAULTED, GROUP_SIZE, GROUPS, keep
from common import ANSWERS, build_response, build_row

ABSENT = ("wandb", "pynvml", "decord", "mlflow", "nemo_gym", "sglang", "tensorboard", "zmq")
NEIGHBOURS = ("nemo_rl.data.datasets", "nemo_rl.models.megatron", "nemo_rl.models.policy")
NEIGHBOURS += ("nemo_rl.utils.logger", "nemo_rl.utils.nvml", "nemo_rl.weight_sync")
GENERATION = "nemo_rl.models.generation."
PORTS = {False: os.environ["NEMO_GYM_PORT"], True: os.environ["FAULTY_NEMO_GYM_PORT"]}
ESTIMATORS = (
    {"name": "grpo"},
    {"name": "grpo", "use_leave_one_out_baseline": False, "normalize_rewards": False},
    {"name": "gdpo"},
    {"name": "reinforce_plus_plus"},
)


class Neighbour(advantages_peer.Empty):
    """An empty module whose classes are also valid types of fields of pydantic models."""

    def __getattr__(self, name):
        found = super().__getattr__(name)
        found.__init__ = lambda *_, **__: None
        found.__get_pydantic_core_schema__ = classmethod(lambda *_: {"type": "any"})
        return found


class Neighbours(advantages_peer.EmptyModules):
    def find_spec(self, name, path=None, target=None):
        is_engine = name.startswith(GENERATION) and name != f"{GENERATION}interfaces"
        if is_engine or name.startswith(NEIGHBOURS) or name.partition(".")[0] in ABSENT:
            return ModuleSpec(name, self, is_package=True)
        return super().find_spec(name, path, target)

    def create_module(self, spec):
        return Neighbour(spec.name)


def verify(number):
    """Return what a NeMo Gym agent returns for a sample: the reply of `/verify`, as it came."""
    text = list(ANSWERS.values())[number % len(ANSWERS)]
    row = {**build_row(text), "response": build_response(text)}
    group = number // GROUP_SIZE
    tokens = {"prompt_token_ids": [group + 1, 2], "generation_token_ids": [3, 4, 5]}
    row["response"]["output"][0].update(tokens, generation_log_probs=[-0.5] * 3)
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORTS[number in FAULTED]}/verify",
        data=json.dumps(row).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


def build_batch(replies):
    """Return NeMo-RL's batch of replies, its training data and the tokens of each prompt."""
    tokenizer = SimpleNamespace(pad_token_id=0, batch_decode=lambda ids: ["text" for _ in ids])
    gym = nemo_gym.NemoGym.__ray_metadata__.modified_class
    rows = [{"agent_ref": {"name": "agent"}} for _ in replies]
    results = [
        gym._postprocess_nemo_gym_to_nemo_rl_result(
            SimpleNamespace(cfg={}), row, json.loads(json.dumps(reply)), tokenizer
        )
        for row, reply in zip(rows, replies, strict=True)
    ]
    batch = rollouts._postprocess_single_nemo_gym_group(
        rows,
        results,
        Timer(),
        "rollout",
        SimpleNamespace(cfg={"max_total_sequence_length": 1000}),
        {"loss_multiplier": torch.ones(len(replies))},
        tokenizer,
        log_full_result_tables=False,
    ).final_batch
    grpo._apply_mask_sample_filter(batch)
    messages = batch["message_log"]
    first = grpo.extract_initial_prompt_messages(messages, batch["length"])
    padding = {"token_ids": 0}
    prompts, _ = batched_message_log_to_flat_message(first, pad_value_dict=padding)
    grpo.add_grpo_token_loss_masks_and_generation_logprobs(messages)
    flat, lengths = batched_message_log_to_flat_message(messages, pad_value_dict=padding)
    policy = {"precision": "float32"}
    data = grpo._build_async_grpo_train_data(flat, lengths, batch, policy)
    return batch, data, prompts["token_ids"]


def compute(replies, options):
    """Return the advantages of replies, and which tokens the loss counts."""
    estimator = grpo._create_advantage_estimator(
        SimpleNamespace(
            grpo=SimpleNamespace(adv_estimator=AdvEstimatorConfig(**options)),
            loss_fn=ClippedPGLossConfig(),
        )
    )
    batch, data, prompts = build_batch(replies)
    mask = data["token_mask"] * data["sample_mask"].unsqueeze(-1)
    advantages = estimator.compute_advantage(
        prompt_ids=prompts, rewards=batch["total_reward"], mask=mask, repeated_batch=batch
    )
    return advantages, mask


def compare(replies, options, default):
    clean = [reply for number, reply in enumerate(replies) if number not in FAULTED]
    expected, _ = compute(clean, options)
    advantages, mask = compute(replies, options)
    return {
        "kept": keep(advantages).flatten().tolist(),
        "expected": expected.flatten().tolist(),
        "default": keep(default).flatten().tolist(),
        "faulted": advantages[FAULTED].flatten().tolist(),
        "tokens_in_loss": mask[FAULTED].sum().item(),
        "tokens_of_others": keep(mask).sum().item(),
    }


if __name__ == "__main__":
    typing.TypedDict = typing_extensions.TypedDict  # pydantic asks for it before Python 3.12
    sys.meta_path.insert(0, Neighbours())
    sys.path.insert(0, sys.argv[1])
    from nemo_rl.algorithms import grpo
    from nemo_rl.algorithms.advantage_estimator import AdvEstimatorConfig
    from nemo_rl.algorithms.loss import ClippedPGLossConfig
    from nemo_rl.data.llm_message_utils import batched_message_log_to_flat_message
    from nemo_rl.environments import nemo_gym
    from nemo_rl.experience import rollouts
    from nemo_rl.utils.timer import Timer

    from gradus.integrations.nemo_rl import register

    grpo.router_replay_enabled = lambda policy: False
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(verify, range(len(GROUPS))))
    defaults = [compute(found, options)[0] for options in ESTIMATORS]
    register()
    print("RESULT " + json.dumps(list(map(compare, [found] * 4, ESTIMATORS, defaults))))
