"""The client and the server of the package `openreward`, over HTTP on this machine."""

import asyncio
import json
import sys
import threading
import time
from contextlib import suppress

import uvicorn
from openreward.api.environments import ToolFailed
from openreward.api.environments.client import AsyncEnvironment, AsyncEnvironmentsAPI
from openreward.environments import Server

from gradus.integrations.openreward import build_environment


async def run_episode(environment: AsyncEnvironment, answer: str) -> list:
    """Return the reward and whether the episode ended; of an error, its kind."""
    async with environment.session(split="train", index=0) as session:
        try:
            output = await session.call_terminal_tool(answer)
        except ToolFailed as failure:
            return [type(failure).__name__, None]
        return [output.reward, output.finished]


async def use_environment(url: str) -> dict:
    async with AsyncEnvironmentsAPI(url, api_key="") as client:
        environment = client.get("gradus")
        tasks = await environment.list_tasks("train")
        found = {
            "tasks": [task.task_spec for task in tasks],
            "tools": [tool.name for tool in await environment.list_tools()],
            "right": await run_episode(environment, "reward 1"),
            "half": await run_episode(environment, "reward 0.5"),
            "fault": await run_episode(environment, "fault"),
        }
        async with environment.session(tasks[0]) as session:
            found["prompt"] = (await session.get_prompt())[0].text
            for name in ("check", "second check"):
                output = await session.call_tool("check", {"answer": "reward 0.5"})
                found[name] = [output.reward, output.finished, output.blocks[0].text]
        return found


def main(file: str, url: str) -> dict:
    app = Server([build_environment(file, "ocaml", url=url, max_checks=1)]).app
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        return asyncio.run(use_environment(f"http://127.0.0.1:{port}"))
    finally:
        server.should_exit = True
        with suppress(RuntimeError):
            thread.join(30)


print("RESULT " + json.dumps(main(*sys.argv[1:3])))
