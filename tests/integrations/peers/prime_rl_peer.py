"""prime-rl's TrainSink and GRPO, from a checkout: `prime_rl_peer.py CHECKOUT`. One group of four traces of verifiers:
the three answers, and one that has a fault. `wandb`, which is not used, is replaced by an empty module."""

import asyncio
import json
import os
import sys
from types import SimpleNamespace

import verifiers_peer  # puts empty modules in place of clients of a remote sandbox
from common import ANSWERS, FAULTY, SERVICE

sys.path[:0] = [f"{sys.argv[1]}/src", f"{sys.argv[1]}/packages/prime-rl-configs/src"]
sys.modules["wandb"] = verifiers_peer.Empty("wandb")

import verifiers.v1 as vf
from prime_rl.configs.algorithm import GRPOAlgoConfig
from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm
from prime_rl.orchestrator.train_sink import TrainSink
from prime_rl.orchestrator.types import Progress
from verifiers.v1.episode import EnvInfo, GroupInfo, TrainRunInfo, TrainWorkInfo


async def scored(text, url):
    """The trace of an answer with tokens, as a model's server returns them."""
    os.environ["GRADUS_URL"] = url
    trace = verifiers_peer.trace_of(verifiers_peer.own_task(url), text)
    for node in trace.nodes:
        node.token_ids = [1, 2, 3]
        node.mask = [node.sampled] * 3
        node.logprobs = [-1.0] * 3
    try:
        await verifiers_peer.own_task(url).score(trace)
        trace.ok = True
    except vf.TaskError as error:
        trace.record_error(error)
    return trace


async def main():
    environment = SimpleNamespace(
        config=SimpleNamespace(group_size=4),
        algorithm=GRPOAlgorithm(GRPOAlgoConfig(), None),
        sampling_args={"temperature": 1.0},
    )
    config = SimpleNamespace(max_off_policy_steps=8, train=SimpleNamespace(filter_zero_advantages=False))
    sink = TrainSink(
        config,
        tokenizer=None,
        train_envs=SimpleNamespace(get=lambda _: environment),
        mm_token_type_ids_mapping=None,
        progress=Progress(),
        batch_size=3,
        token_batch_size=None,
    )
    traces = {name: await scored(text, SERVICE) for name, text in ANSWERS.items()}
    traces["fault"] = await scored("x", FAULTY)
    batch = None
    for trace in traces.values():
        run = TrainRunInfo(id="run", work=TrainWorkInfo(step=1))
        about = {"env": EnvInfo(name="gradus"), "group": GroupInfo(id="group"), "run": run, "task": trace.task}
        batch = await sink.add(vf.Episode(ok=not trace.has_error, traces=[trace], **about))
    trained = {trace.id for episode in batch.cohort.episodes for trace in episode.traces}
    found = {name: trace.reward if trace.id in trained else trace.errors[-1].type for name, trace in traces.items()}
    found["advantages"] = [sum(sample.advantages) for sample in batch.samples]
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
