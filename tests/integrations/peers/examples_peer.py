"""The files of examples/NAME, run as far as the trainer's packages go without a GPU; prints the
reward of each."""

import asyncio
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

from common import ANSWERS, ROW, TASKS, Characters

EXAMPLES = Path(__file__).parents[3] / "examples"
RIGHT = ANSWERS["right"]


def module(folder, name):
    sys.path.insert(0, str(EXAMPLES / folder))
    return importlib.import_module(name)


def first_row(folder):
    """The first row of the Parquet file that make_data.py writes."""
    from datasets import Dataset

    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        runpy.run_path(str(EXAMPLES / folder / "make_data.py"))
        return Dataset.from_parquet("ocaml.parquet")[0]


def arguments(folder):
    """What train.sh passes to the trainer: `python` is replaced by a command that prints its
    arguments."""
    with tempfile.TemporaryDirectory() as name:
        python = Path(name, "python")
        python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        python.chmod(0o755)
        path = f"{name}:{os.environ['PATH']}"
        script = str(EXAMPLES / folder / "train.sh")
        found = subprocess.run(
            [script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
        )
    return found.stdout.splitlines()


def function_at(path):
    name, _, function = path.rpartition(".")
    return getattr(importlib.import_module(name), function)


async def trl():
    train = module("trl", "train")
    row = train.DATA[0]
    [found] = await train.reward("ocaml", tasks=str(train.TASKS))(
        [row["prompt"]], [RIGHT], task=[row["task"]]
    )
    return found


async def verl():
    row = first_row("verl")
    options = dict(one.split("=", 1) for one in arguments("verl") if "=" in one)
    name = options["reward.custom_reward_function.path"].removeprefix("pkg://")
    function = function_at(f"{name}.{options['reward.custom_reward_function.name']}")
    deadline_s = float(options["+reward.custom_reward_function.reward_kwargs.deadline_s"])
    found = await function(
        row["data_source"], RIGHT, row["reward_model"]["ground_truth"], deadline_s=deadline_s
    )
    return found["score"]


async def openrlhf():
    from openrlhf.utils.agent import SingleTurnAgentExecutor
    from openrlhf_peer import Engine, SimpleNamespace

    given = arguments("openrlhf")
    assert given[given.index("--data.label_key") + 1] == "task"
    executor = SingleTurnAgentExecutor([given[given.index("--reward.remote_url") + 1]])
    params = SimpleNamespace(max_tokens=9000, logprobs=None)
    found = await executor.execute("p", ROW["id"], params, 90_000, Characters(), Engine(RIGHT))
    return float(found["reward"][0])


async def slime():
    from types import SimpleNamespace

    given = arguments("slime")
    function = function_at(given[given.index("--custom-rm-path") + 1])
    return await function(
        None, SimpleNamespace(label=ROW["id"], response=RIGHT, prompt="p", metadata={})
    )


async def verifiers():
    from verifiers_peer import (
        AgentConfig,
        AgentInfo,
        AssistantMessage,
        GradusConfig,
        MessageNode,
        Trace,
        TraceTask,
        state_cls,
    )

    taskset = module("verifiers", "gradus_tasks").GradusTaskset
    task = next(iter(taskset(GradusConfig(id="gradus", file=TASKS))))
    about = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    trace = Trace(task=about, state=state_cls(type(task))(), agent=AgentInfo(config=AgentConfig()))
    trace.nodes.append(MessageNode(message=AssistantMessage(content=RIGHT), sampled=True))
    await task.score(trace)
    return trace.reward


async def inspect():
    from inspect_ai import eval_async
    from inspect_ai.model import ModelOutput, get_model
    from inspect_peer import result_of

    task = module("inspect", "ocaml").ocaml()
    model = get_model(
        "mockllm/model", custom_outputs=[ModelOutput.from_content("mockllm/model", RIGHT)]
    )
    with tempfile.TemporaryDirectory() as folder:
        [log] = await eval_async(task, model=model, log_dir=folder, limit=1)
        return result_of(log)


async def skyrl():
    import skyrl_gym

    row = first_row("skyrl")
    module("skyrl", "train").register_gradus()
    environment = skyrl_gym.make(row["env_class"], extras=row)
    environment.init(row["prompt"])
    return (await asyncio.to_thread(environment.step, RIGHT))["reward"]


async def areal():
    from areal_peer import api

    train = module("areal", "train")
    row = {name: value for name, value in train.DATA[0].items() if name != "messages"}
    return await api.AsyncRewardWrapper(function_at(train.REWARD), max_workers=1)(
        "p", RIGHT, [1], [2], **row
    )


async def tinker():
    from tinker_peer import Renderer

    [builder, *_] = (
        module("tinker", "train").Tasks(Renderer(), batch_size=8, group_size=2).get_batch(0)
    )
    environments = await builder.make_envs()
    steps = await asyncio.gather(*(one.step(Characters().encode(RIGHT)) for one in environments))
    assert len(steps) == 2
    return min(step.reward for step in steps)


async def openenv():
    import openenv_peer  # noqa: F401 - enters the package without its server

    play = module("openenv", "play")
    await play.main()
    return (await openenv_peer.reward(RIGHT)) if os.environ["GRADUS_URL"] == play.URL else None


async def sandbox_fusion():
    script = str(EXAMPLES / "sandbox_fusion" / "submit.py")
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, script], capture_output=True, text=True
    )
    accepted, reward = done.stdout.split()
    assert accepted == "True"
    return float(reward)


if __name__ == "__main__":
    os.environ["GRADUS_TASKS"] = str(TASKS)
    print("RESULT " + json.dumps({"reward": asyncio.run(globals()[sys.argv[1]]())}))
