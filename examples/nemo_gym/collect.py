"""Rollouts of NeMo Gym's simple agent with rewards from Gradus: `collect.py config.yaml rows.jsonl
rollouts.jsonl`."""

import asyncio
import json
import os
import sys

import uvicorn
import yaml
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import HeadServer, ServerClient
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

SERVING = []


def client():
    """NeMo Gym's client; None while its head server does not listen yet."""
    try:
        return ServerClient.load_from_global_config()
    except ValueError:
        return None


async def serve(app, port):
    """Serve on this loop: NeMo Gym has one HTTP client per process, which belongs to the first loop
    that uses it."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off")
    )
    SERVING.append(asyncio.create_task(server.serve()))
    while not server.started:
        await asyncio.sleep(0.02)


async def start(config):
    """Start the head server and the agents of a configuration."""
    os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps(config)
    HeadServer.run_webserver()
    async with asyncio.timeout(60):
        while client() is None:
            await asyncio.sleep(0.1)
    for name, server in config.items():
        if options := server.get("responses_api_agents"):
            agent = SimpleAgentConfig(name=name, **options["simple_agent"])
            await serve(
                SimpleAgent(config=agent, server_client=client()).setup_webserver(), agent.port
            )


async def collect(agent, rows, rollouts):
    """One rollout per row. Those whose reward is missing are in `..._failures.jsonl`, beside the
    others' file."""
    config = RolloutCollectionConfig(
        agent_name=agent,
        input_jsonl_fpath=rows,
        output_jsonl_fpath=rollouts,
        upload_rollouts_to_wandb=False,
    )
    await RolloutCollectionHelper().run_from_config(config)


async def main(config, rows, rollouts):
    await start(config)
    await collect("agent", rows, rollouts)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        found = yaml.safe_load(file)
    asyncio.run(main(found, *sys.argv[2:]))
