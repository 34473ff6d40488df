"""NeMo Gym's rollout collection: its head server, simple agent and server client, with a model that
repeats its prompt.

Gradus is the resources server. The servers are those of examples/nemo_gym, on free ports. With a
word, NeMo Gym is that checkout in place of the installed package.
"""

import asyncio
import copy
import importlib.util
import json
import os
import socket
import sys
import tempfile
from pathlib import Path

import yaml
from common import build_response, build_row, run, told
from repeater import model

EXAMPLE = Path(__file__).parents[3] / "examples" / "nemo_gym"
sys.path[:0] = [*sys.argv[1:], str(EXAMPLE)]
from collect import client, collect, serve, start
from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.server_utils import get_response_json, raise_for_status


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


def read_metrics(file):
    """Return the agent's metrics. Without a row to count, NeMo Gym 0.5 writes no file."""
    return json.loads(file.read_text())[0]["agent_metrics"] if file.exists() else {}


def reward_in(folder):
    """The reward of the rollout that was kept; its failure class if it is in the file of
    failures."""
    failures = [
        json.loads(line) for line in (folder / "rollouts_failures.jsonl").read_text().splitlines()
    ]
    kept = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]
    for row in failures + kept:
        BaseVerifyResponse.model_validate(row)
    metrics = read_metrics(folder / "rollouts_aggregate_metrics.json")
    if failures:
        assert not kept
        assert "mean/reward" not in metrics
        check_flags(failures[0])
        return f"failure row: {failures[0]['_ng_failure_class']}"
    assert metrics["mean/reward"] == kept[0]["reward"]
    return kept[0]["reward"]


def check_flags(row):
    """Check the flags of a failure row, and its kind where this NeMo Gym has a list of kinds."""
    assert row["mask_sample"] is row["instance_config"]["mask_sample"] is True
    assert row["failure_reason"]
    if importlib.util.find_spec("nemo_gym.failure_kinds"):
        from nemo_gym.failure_kinds import FAILURE_KINDS

        assert row["failure_kind"] in FAILURE_KINDS


async def rollout(row, agent="agent"):
    with tempfile.TemporaryDirectory() as name:
        await asyncio.to_thread(Path(name, "rows.jsonl").write_text, json.dumps(row))
        await collect(agent, f"{name}/rows.jsonl", f"{name}/rollouts.jsonl")
        return await asyncio.to_thread(reward_in, Path(name))


async def verified(text):
    row = {**build_row(text), "response": build_response(text)}
    answer = await client().post(server_name="gradus", url_path="/verify", json=row)
    await raise_for_status(answer)
    return (await get_response_json(answer))["reward"]


async def main():
    found = config()
    await start(found)
    await serve(model, found["policy_model"]["responses_api_models"]["vllm"]["port"])
    await told(
        lambda text: rollout(build_row(text)),
        lambda: rollout(build_row("x"), "faulty_agent"),
        verified,
    )


if __name__ == "__main__":
    run(main())
