"""OpenRLHF's SingleTurnAgentExecutor with the reward file, or with the route when `route` is the
first argument."""

import functools
import json
import sys
from types import SimpleNamespace

from common import FAULTY, ROW, SERVICE, TASK, Characters, run, told
from openrlhf.utils import agent

import gradus.integrations.openrlhf as file

PROMPT = f"<|im_start|>user\n{ROW['prompt']}<|im_end|>\n<|im_start|>assistant\n"


class Engine:
    def __init__(self, text):
        self.text = text

    async def generate(self, ids, params, multi_modal_data=None):
        ids = Characters().encode(self.text + Characters.eos_token)
        return SimpleNamespace(
            outputs=[
                SimpleNamespace(token_ids=ids, text=self.text, finish_reason="stop", logprobs=None)
            ]
        )


@functools.cache
def executor(url):
    return agent.SingleTurnAgentExecutor([url])


async def reward(url, text):
    params = SimpleNamespace(max_tokens=9000, logprobs=None)
    found = await executor(url).execute(PROMPT, TASK, params, 90_000, Characters(), Engine(text))
    value = found["reward"]
    if value is None:
        return None
    return float(value[0] if isinstance(value, list) else value)


route = "route" in sys.argv
url = f"{SERVICE}/openrlhf/ocaml/get_reward" if route else file.__file__
faulty = f"{FAULTY}/openrlhf/ocaml/get_reward" if route else file.__file__
json.loads(TASK)
if __name__ == "__main__":
    run(told(lambda text: reward(url, text), lambda: reward(faulty, "x")))
