"""Tools of the Model Context Protocol for agents: `read_task`, `check` and `submit`.

    gradus mcp tasks.jsonl --grader ocaml --url http://127.0.0.1:8000

Rewards are not shown to the agent: `--results` writes them to a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradus.integrations.agent_tasks import AgentTasks, ToolRefused

if TYPE_CHECKING:
    from mcp.server import MCPServer


def build_server(tasks: AgentTasks) -> MCPServer[Any]:
    """Return the server with its tools. Needs the package `mcp`."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    from gradus import __version__

    server = MCPServer("gradus", version=__version__, log_level="WARNING")

    def read_task(task: str) -> str:
        """Return the prompt of a task, by its id."""
        try:
            return tasks.read_task(task)
        except ToolRefused as refused:
            raise ToolError(str(refused)) from None

    async def check(task: str, answer: str) -> str:
        """Return the compiler's remarks on an answer and the public tests that it fails. The answer
        is complete, such as the whole source file."""
        try:
            return await tasks.check(task, answer)
        except ToolRefused as refused:
            raise ToolError(str(refused)) from None

    async def submit(task: str, answer: str) -> str:
        """Submit an answer to a task, and return what the grader reports of it. The last submission
        counts."""
        try:
            return await tasks.submit(task, answer)
        except ToolRefused as refused:
            raise ToolError(str(refused)) from None

    for tool in (read_task, check, submit):
        server.add_tool(tool)
    return server
