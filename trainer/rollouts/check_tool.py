"""The grader's feedback as a tool that the model calls, `check(code)`, through TRL's environment
interface."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import Any

from trl.chat_template_utils import add_response_schema, supports_tool_calling

from gradus.contract import Faulted
from gradus.errors import Misuse
from gradus.feedback import reply
from gradus.tasks.base import cleaned
from trainer.rewards.judge import Judge

NOT_GRADED = "The code could not be checked now. Answer with the code that you think is right."
"""What the tool returns for a fault of the grader."""


class CheckEnvironment:
    """One sample's task. TRL calls `reset` before it generates, and offers every other public
    method as a tool."""

    def __init__(self, judge: Judge, counts: Counter[str]) -> None:
        """`counts` counts calls by outcome: `passed`, `failed` or `faulted`."""
        self._judge, self._counts, self._prompt_id = judge, counts, ""

    def reset(self, *, prompt_id: str, **_columns: Any) -> None:
        self._prompt_id = prompt_id

    async def check(self, code: str) -> str:
        """
        Compile the code and run the task's tests. Returns the compiler's messages, the number of
        tests that pass, and public tests that fail.

        Args:
            code: The whole code of the answer.
        """
        text = cleaned(code)
        (result,) = await self._judge.results(
            [(self._prompt_id, text)], f"check.{self._prompt_id}."
        )
        if isinstance(result, Faulted):
            self._counts["faulted"] += 1
            return NOT_GRADED
        self._counts["passed" if result.passed else "failed"] += 1
        return reply(result, text)


def refuse_without_calls(tokenizer: Any) -> None:
    """Raises Misuse for a chat template that renders no calls, or whose calls TRL cannot read."""
    try:
        if supports_tool_calling(tokenizer):
            if getattr(tokenizer, "response_template", None) is None:
                add_response_schema(deepcopy(tokenizer))
            return
    except ValueError:
        pass
    raise Misuse(
        "turns.as_tool: the chat template of this tokenizer renders no calls of tools, or TRL"
        " cannot read them. Use a model such as Qwen3, or leave `as_tool` out"
    )


def last_answer(completion: list[dict[str, Any]]) -> str:
    """The text of the model's last message; empty where that is a call, which has no answer behind
    it."""
    last = completion[-1] if completion else {}
    return (
        str(last.get("content") or "")
        if last.get("role") == "assistant" and not last.get("tool_calls")
        else ""
    )
