"""The client of the official SDK of the Model Context Protocol, over standard input and output."""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters, stdio_client


async def main(tasks: str, url: str, results: str) -> dict:
    words = ["-m", "gradus", "mcp", tasks, "--grader", "ocaml", "--url", url]
    words += ["--results", results, "--max-checks", "1", "--max-submissions", "2"]
    server = StdioServerParameters(
        command=sys.executable, args=words, env={"PYTHONPATH": sys.argv[4]}
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        found = {"tools": sorted(tool.name for tool in (await session.list_tools()).tools)}

        async def call(tool: str, **arguments: str) -> list:
            result = await session.call_tool(tool, arguments)
            return [result.is_error, result.content[0].text]

        found["read"] = await call("read_task", task="one")
        found["check"] = await call("check", task="one", answer="reward 0.5")
        found["second check"] = await call("check", task="one", answer="reward 0.5")
        found["fault"] = await call("submit", task="one", answer="fault")
        found["submit"] = await call("submit", task="one", answer="reward 0.5")
        found["unknown"] = await call("submit", task="two", answer="reward 0.5")
        return found


print("RESULT " + json.dumps(asyncio.run(main(*sys.argv[1:4]))))
