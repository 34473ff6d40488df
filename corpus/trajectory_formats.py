"""How a trajectory is written down: messages with tool calls, or Harmony, the text that gpt-oss
models read. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from corpus.trajectories import Trajectory

TOOL = "check"
_SAYS_IT_DOES = "Compiles the whole file and runs the tests of the task against it."
_OF_CODE = "The whole file."
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": _SAYS_IT_DOES,
            "parameters": {
                "type": "object",
                "properties": {"code": {"type": "string", "description": _OF_CODE}},
                "required": ["code"],
            },
        },
    }
]


class Format(StrEnum):
    CHAT = "chat"
    AGENT = "agent"
    HARMONY = "harmony"


def instructions(trajectory: Trajectory) -> str:
    return (
        f"You write {trajectory.language}. Check your code with the tool `{TOOL}` until all tests"
        " pass, then answer with the whole file in one fenced block."
    )


# -------------------------------------------------------------------------------------------- chat


def chat_row(trajectory: Trajectory) -> dict[str, Any]:
    """`messages` and `tools`, as chat templates take them; arguments of calls are objects."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": instructions(trajectory)},
        {"role": "user", "content": trajectory.request},
    ]
    for number, step in enumerate(trajectory.steps, start=1):
        call = {"name": TOOL, "arguments": {"code": step.code}}
        asked = {"id": f"call_{number}", "type": "function", "function": call}
        messages.append({"role": "assistant", "content": step.thought, "tool_calls": [asked]})
        messages.append(
            {"role": "tool", "tool_call_id": f"call_{number}", "name": TOOL, "content": step.reply}
        )
    messages.append({"role": "assistant", "content": trajectory.answer})
    return {"id": trajectory.id, "messages": messages, "tools": TOOLS}


# ----------------------------------------------------------------------------------------- Harmony

_SYSTEM = """You are ChatGPT, a large language model trained by OpenAI.
Knowledge cutoff: 2024-06

Reasoning: medium

# Valid channels: analysis, commentary, final. Channel must be included for every message.
Calls to these tools must go to the commentary channel: 'functions'."""
_FUNCTIONS = f"""# Tools

## functions

namespace functions {{

// {_SAYS_IT_DOES}
type {TOOL} = (_: {{
// {_OF_CODE}
code: string,
}}) => any;

}} // namespace functions"""
_ASSISTANT = "<|start|>assistant"


def harmony_row(trajectory: Trajectory) -> dict[str, Any]:
    """The whole conversation as one `text`."""
    parts = [_opening(trajectory)]
    for turn, reply in _turns(trajectory):
        parts += [_ASSISTANT, turn, reply]
    return {"id": trajectory.id, "text": "".join(parts)}


def harmony_turns(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """One worked example for each turn of the assistant: `completion` is the turn, `prompt` all
    that came before.

    With these, loss on completions is loss on what the assistant writes and never on what the tool
    replies.
    """
    before = _opening(trajectory)
    for number, (turn, reply) in enumerate(_turns(trajectory), start=1):
        before += _ASSISTANT
        yield {"id": f"{trajectory.id}#{number}", "prompt": before, "completion": turn}
        before += turn + reply


def _opening(trajectory: Trajectory) -> str:
    developer = f"# Instructions\n\n{instructions(trajectory)}\n\n{_FUNCTIONS}"
    said = (("system", _SYSTEM), ("developer", developer), ("user", trajectory.request))
    return "".join(f"<|start|>{role}<|message|>{text}<|end|>" for role, text in said)


def _turns(trajectory: Trajectory) -> Iterator[tuple[str, str]]:
    """What the assistant writes, from behind its name on, and the tool's message that follows;
    empty after the last."""
    for step in trajectory.steps:
        arguments = json.dumps({"code": step.code}, ensure_ascii=False)
        call = (
            f"<|channel|>commentary to=functions.{TOOL}"
            f" <|constrain|>json<|message|>{arguments}<|call|>"
        )
        reply = (
            f"<|start|>functions.{TOOL}"
            f" to=assistant<|channel|>commentary<|message|>{step.reply}<|end|>"
        )
        yield _analysis(step.thought) + _ASSISTANT + call, reply
    final = f"{_ASSISTANT}<|channel|>final<|message|>{trajectory.answer}<|return|>"
    yield _analysis(trajectory.thought) + final, ""


def _analysis(thought: str) -> str:
    return f"<|channel|>analysis<|message|>{thought}<|end|>"
