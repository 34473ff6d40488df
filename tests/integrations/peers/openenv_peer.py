"""OpenEnv's GenericEnvClient over a WebSocket. Its package is entered without its server, which
needs fastmcp."""

import importlib.util
import sys
import types

from common import FAULTY, SERVICE, TASK, run, told

folder = importlib.util.find_spec("openenv").submodule_search_locations[0]
for name, path in (("openenv", folder), ("openenv.core", f"{folder}/core")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from openenv.core.generic_client import GenericEnvClient


async def reward(text, url=SERVICE):
    async with GenericEnvClient(base_url=f"{url}/openenv/ocaml") as client:
        if url == SERVICE:
            await client.reset(split="ocaml", index=0)
        else:
            await client.reset(task=TASK)
        return (await client.step({"completion": text})).reward


if __name__ == "__main__":
    run(told(reward, lambda: reward("x", FAULTY)))
