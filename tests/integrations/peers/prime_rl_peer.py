"""prime-rl's GRPO, from a checkout: `prime_rl_peer.py CHECKOUT`. One group of four traces of
verifiers: the three answers, and one that has a fault. `wandb`, which is not used, is replaced by
an empty module."""

import asyncio
import json
import os
import sys

import verifiers_peer
from advantages_peer import Empty
from common import ANSWERS, FAULTY, SERVICE

sys.path[:0] = [f"{sys.argv[1]}/src", f"{sys.argv[1]}/packages/prime-rl-configs/src"]
sys.modules["wandb"] = Empty("wandb")

import verifiers.v1 as vf
from prime_rl.configs.algorithm import GRPOAlgoConfig
from prime_rl.orchestrator.algo.base import iter_trainable_traces
from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm


async def scored(text, url):
    """The trace of an answer, with tokens of which the model wrote the last three."""
    os.environ["GRADUS_URL"] = url
    task = verifiers_peer.own_task(url)
    trace = verifiers_peer.trace_of(task, text)
    for node in trace.nodes:
        node.token_ids = [1, 2, 3]
        node.mask = [node.sampled] * 3
    try:
        await task.score(trace)
        trace.ok = True
    except vf.TaskError as error:
        trace.record_error(error)
    return trace


async def main():
    traces = {name: await scored(text, SERVICE) for name, text in ANSWERS.items()}
    traces["fault"] = await scored("x", FAULTY)
    group = [vf.Episode(ok=trace.ok, task=trace.task, traces=[trace]) for trace in traces.values()]
    algorithm = GRPOAlgorithm(GRPOAlgoConfig(), None)
    for episode in group:
        await algorithm.finalize_episode(episode)
    await algorithm.finalize_group(group)
    trained = {trace.id for _, trace in iter_trainable_traces(group)}
    found = {
        name: trace.reward if trace.id in trained else trace.errors[-1].type
        for name, trace in traces.items()
    }
    tokens = {name: trace.nodes[-1].advantages for name, trace in traces.items()}
    advantages = {name: values and values[-1] for name, values in tokens.items()}
    print("RESULT " + json.dumps({**found, "advantages": advantages}))


if __name__ == "__main__":
    asyncio.run(main())
