"""SkyRL-gym's make() with the registered environment."""

import asyncio

import skyrl_gym
from common import ROW, TASK, run, told
from skyrl_gym.envs.registration import register

register(id="gradus", entry_point="gradus.integrations.skyrl:GradusEnv")
EXTRAS = {
    "reward_spec": {"method": "rule", "ground_truth": TASK},
    "extra_info": {"grader": "ocaml"},
}


async def reward(text):
    environment = skyrl_gym.make("gradus", env_config={"deadline_s": 20}, extras=EXTRAS)
    environment.init([{"role": "user", "content": ROW["prompt"]}])
    return (await asyncio.to_thread(environment.step, text))["reward"]


if __name__ == "__main__":
    run(told(reward, lambda: reward("x")))
