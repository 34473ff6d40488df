"""inspect_ai's eval() with its mock model. Its token counter would fetch a table, and is
replaced."""

import sys
import tempfile

import tiktoken
from common import ROW, TASK, run, told

tiktoken.get_encoding = lambda _: type(
    "Counter", (), {"encode": lambda self, text, **more: [0] * (len(text) // 4)}
)()

from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelName, ModelOutput, get_model
from inspect_ai.scorer import Target
from inspect_ai.solver import TaskState, generate

from gradus.integrations.inspect import gradus


async def reward(text):
    model = get_model(
        "mockllm/model", custom_outputs=[ModelOutput.from_content("mockllm/model", text)]
    )
    sample = Sample(input=ROW["prompt"], id="a", metadata={"task": TASK})
    task = Task(dataset=[sample], solver=generate(), scorer=gradus("ocaml", deadline_s=20))
    with tempfile.TemporaryDirectory() as folder:
        [log] = await eval_async(task, model=model, log_dir=folder)
        return result_of(log)


def result_of(log):
    if log.results is None or log.samples[0].scores is None:
        print(log.error or log.samples[0].error, file=sys.stderr)
    unscored = {score.unscored_samples for score in log.results.scores}
    if unscored != {0}:
        return f"unscored samples: {unscored.pop()}"
    return log.samples[0].scores["gradus"].value["reward"]


async def scored(text):
    output = ModelOutput.from_content("mockllm/model", text)
    state = TaskState(
        ModelName("mockllm/model"),
        "a",
        1,
        ROW["prompt"],
        [],
        output=output,
        metadata={"task": TASK},
    )
    return (await SCORER(state, Target(""))).value["reward"]


SCORER = gradus("ocaml")
if __name__ == "__main__":
    run(told(reward, lambda: reward("x"), scored))
