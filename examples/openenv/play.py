"""One episode of an OpenEnv client: the first task with its example of a wrong answer."""

import asyncio
import os

from openenv.core.generic_client import GenericEnvClient

URL = os.environ.get("GRADUS_URL", "http://127.0.0.1:8000")


async def main() -> None:
    async with GenericEnvClient(base_url=f"{URL}/openenv/ocaml") as client:
        print((await client.reset(split="ocaml", index=0)).observation["prompt"])
        result = await client.step({"completion": "```ocaml\nlet clamp low high x = x\n```"})
        print(result.reward, result.observation["feedback"])


if __name__ == "__main__":
    asyncio.run(main())
