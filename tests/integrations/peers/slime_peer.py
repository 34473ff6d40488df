"""slime's or miles' rm_hub, from a checkout: `slime_peer.py NAME CHECKOUT route|function`. Its
neighbours, which need sglang and Megatron, are replaced by empty modules."""

import importlib
import importlib.util
import sys
import types
from types import SimpleNamespace

from common import FAULTY, ROW, SERVICE, TASK, run, told

peer, checkout, way = sys.argv[1:4]


class Empty(types.ModuleType):
    def __getattr__(self, name):
        return lambda *_, **__: None


def load_function(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


for name in ("", ".utils", ".rollout"):
    sys.modules[peer + name] = types.ModuleType(peer + name)
    sys.modules[peer + name].__path__ = []
for name in ("utils.misc", "utils.types", "utils.multi_lora"):
    sys.modules[f"{peer}.{name}"] = Empty(f"{peer}.{name}")
for name in ("deepscaler", "f1", "gpqa", "math_dapo_utils", "math_utils", "ifbench"):
    sys.modules[f"{peer}.rollout.rm_hub.{name}"] = Empty(name)
sys.modules[f"{peer}.utils.misc"].load_function = load_function
sys.modules[f"{peer}.utils.types"].Sample = object
file = f"{checkout}/{peer}/rollout/rm_hub/__init__.py"
spec = importlib.util.spec_from_file_location(
    f"{peer}.rollout.rm_hub", file, submodule_search_locations=[]
)
hub = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = hub
spec.loader.exec_module(hub)


async def reward(text, url=SERVICE):
    sample = SimpleNamespace(
        prompt=ROW["prompt"], response=text, label=TASK, metadata={}, custom_rm_path=None, tokens=[]
    )
    sample.reward_spec = sample.reward = None
    if way == "function":
        function = "gradus.integrations.slime.reward"
        return await hub.async_rm(
            SimpleNamespace(rm_type=None, rm_url=None, custom_rm_path=function), sample
        )
    args = SimpleNamespace(rm_type="remote_rm", rm_url=f"{url}/slime/ocaml", custom_rm_path=None)
    if url == FAULTY and peer == "slime":
        return await hub.remote_rm(args, sample, max_retries=2)
    return await hub.async_rm(args, sample)


if __name__ == "__main__":
    run(told(reward, lambda: reward("x", FAULTY)))
