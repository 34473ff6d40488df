"""AReaL's AsyncRewardWrapper, which runs the function in a pool of processes. Its package is not
imported."""

import functools
import importlib.util
import logging
import sys
import types

from common import TASK, run, told

from gradus.integrations.areal import reward_fn

spec = importlib.util.find_spec("areal")
folder = spec.submodule_search_locations[0]
for name in ("areal", "areal.utils"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
loggers = types.ModuleType("areal.utils.logging")
loggers.getLogger = logging.getLogger
sys.modules["areal.utils.logging"] = sys.modules["areal.utils"].logging = loggers
spec = importlib.util.spec_from_file_location("areal.api.reward_api", f"{folder}/api/reward_api.py")
api = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = api
spec.loader.exec_module(api)


@functools.cache
def wrapper(max_workers=8, **options):
    return api.AsyncRewardWrapper(reward_fn, max_workers=max_workers, **options)


async def reward(text, **options):
    return await wrapper(**options)("p", text, [1], [2], task=TASK)


if __name__ == "__main__":
    run(told(reward, lambda: reward("x", max_workers=2, max_retries=1)))
