"""NeMo Gym's rollout collection: its head server, simple agent and server client, with a model that
repeats its prompt.

Gradus is the resources server. The servers are those of examples/nemo_gym, on free ports.
"""

import asyncio
import copy
import json
import os
import socket
import sys
import tempfile
from pathlib import Path

import yaml
from common import TASK, run, told
from fastapi import FastAPI
from nemo_gym.server_utils import get_response_json, raise_for_status

EXAMPLE = Path(__file__).parents[3] / "examples" / "nemo_gym"
sys.path.insert(0, str(EXAMPLE))
from collect import client, collect, serve, start

model = FastAPI()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def config():
    """The example's, with a second agent whose resources server has no grader."""
    found = yaml.safe_load((EXAMPLE / "config.yaml").read_text())
    found["faulty"], found["faulty_agent"] = (
        copy.deepcopy(found["gradus"]),
        copy.deepcopy(found["agent"]),
    )
    found["faulty_agent"]["responses_api_agents"]["simple_agent"]["resources_server"]["name"] = (
        "faulty"
    )
    found["head_server"]["port"] = free_port()
    found["policy_model"]["responses_api_models"]["vllm"]["port"] = free_port()
    found["gradus"]["resources_servers"]["gradus"]["port"] = int(os.environ["NEMO_GYM_PORT"])
    found["faulty"]["resources_servers"]["gradus"]["port"] = int(os.environ["FAULTY_NEMO_GYM_PORT"])
    for agent in ("agent", "faulty_agent"):
        found[agent]["responses_api_agents"]["simple_agent"]["port"] = free_port()
    return found


def response_of(text):
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    more = {"tool_choice": "auto", "tools": [], "parallel_tool_calls": False}
    return {
        "id": "r",
        "created_at": 0,
        "model": "repeater",
        "object": "response",
        "output": [message],
        **more,
    }


@model.post("/v1/responses")
async def respond(body: dict):
    return response_of(body["input"][-1]["content"])


def row_of(text):
    params = {"input": [{"role": "user", "content": text}]}
    return {"responses_create_params": params, "verifier_metadata": {"task": TASK}}


def reward_in(folder):
    """The reward of the rollout that was kept; its failure class if it is in the file of
    failures."""
    failures = [
        json.loads(line) for line in (folder / "rollouts_failures.jsonl").read_text().splitlines()
    ]
    kept = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]
    metrics = json.loads((folder / "rollouts_aggregate_metrics.json").read_text())[0][
        "agent_metrics"
    ]
    if failures:
        assert not kept
        assert "mean/reward" not in metrics
        return f"failure row: {failures[0]['_ng_failure_class']}"
    assert metrics["mean/reward"] == kept[0]["reward"]
    return kept[0]["reward"]


async def rollout(row, agent="agent"):
    with tempfile.TemporaryDirectory() as name:
        await asyncio.to_thread(Path(name, "rows.jsonl").write_text, json.dumps(row))
        await collect(agent, f"{name}/rows.jsonl", f"{name}/rollouts.jsonl")
        return await asyncio.to_thread(reward_in, Path(name))


async def verified(text):
    row = {**row_of(text), "response": response_of(text)}
    answer = await client().post(server_name="gradus", url_path="/verify", json=row)
    await raise_for_status(answer)
    return (await get_response_json(answer))["reward"]


async def main():
    found = config()
    await start(found)
    await serve(model, found["policy_model"]["responses_api_models"]["vllm"]["port"])
    await told(
        lambda text: rollout(row_of(text)), lambda: rollout(row_of("x"), "faulty_agent"), verified
    )


if __name__ == "__main__":
    run(main())
