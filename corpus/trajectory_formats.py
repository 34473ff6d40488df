"""Trajectories as messages with calls of one tool, as chat templates take them. Pure."""

from __future__ import annotations

from typing import Any

from corpus.trajectories import Trajectory

TOOL = "check"
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Compiles the whole file and runs the tests of the task against it.",
            "parameters": {
                "type": "object",
                "properties": {"code": {"type": "string", "description": "The whole file."}},
                "required": ["code"],
            },
        },
    }
]


def build_chat_row(trajectory: Trajectory) -> dict[str, Any]:
    """Return `messages` and `tools`; arguments of calls are objects."""
    instructions = (
        f"You write {trajectory.language}. Check your code with the tool `{TOOL}` until all tests"
        " pass, then answer with the whole file in one fenced block."
    )
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": instructions},
        {"role": "user", "content": trajectory.request},
    ]
    for number, step in enumerate(trajectory.steps, start=1):
        call = {"name": TOOL, "arguments": {"code": step.code}}
        tool_call = {"id": f"call_{number}", "type": "function", "function": call}
        messages.append({"role": "assistant", "content": step.thought, "tool_calls": [tool_call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"call_{number}", "name": TOOL, "content": step.reply}
        )
    messages.append({"role": "assistant", "content": trajectory.answer})
    return {"id": trajectory.id, "messages": messages, "tools": TOOLS}
