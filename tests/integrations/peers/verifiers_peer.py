"""verifiers' Task.score with a Trace: of our task set, or of its own NeMo Gym tasks when `nemo_gym`
is the argument."""

import functools
import json
import sys

from common import FAULTY, ROW, SERVICE, TASK, TASKS, run, told
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.graph import MessageNode
from verifiers.v1.state import state_cls
from verifiers.v1.tasksets.nemo_gym import NeMoGymData, NeMoGymTask, NeMoGymTaskConfig
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, UserMessage

from gradus.integrations.verifiers import GradusConfig, GradusTaskset


@functools.cache
def own_task(url):
    return next(iter(GradusTaskset(GradusConfig(id="gradus", file=TASKS, grader="ocaml"))))


def nemo_gym_task(url):
    params = {"input": [{"role": "user", "content": ROW["prompt"]}]}
    row = {"responses_create_params": params, "verifier_metadata": {"task": json.loads(TASK)}}
    config = NeMoGymTaskConfig(resources_url=f"{url}/nemo_gym/ocaml")
    return NeMoGymTask(NeMoGymData(idx=0, prompt=ROW["prompt"], row=row), config)


def trace_of(task, text):
    about = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    trace = Trace(task=about, state=state_cls(type(task))(), agent=AgentInfo(config=AgentConfig()))
    trace.nodes.append(MessageNode(message=UserMessage(content=task.data.prompt)))
    trace.nodes.append(MessageNode(parent=0, message=AssistantMessage(content=text), sampled=True))
    return trace


async def reward(text, url=SERVICE):
    task = nemo_gym_task(url) if "nemo_gym" in sys.argv else own_task(url)
    trace = trace_of(task, text)
    await task.setup(trace, None)
    await task.score(trace)
    return trace.reward


if __name__ == "__main__":
    run(told(reward, lambda: reward("x", FAULTY)))
