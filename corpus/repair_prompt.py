"""The prompt of a repair task, and which parts of such a prompt are its own: what it quotes, others
wrote."""

from __future__ import annotations

from corpus.task_rows import wrap_in_fence
from gradus.contract import GraderName
from gradus.feedback import LANGUAGES, MISTAKE, SAID, render_grader_message

_TASK = "# What the code should do"
_CODE = "# The code"


def render_repair_prompt(task: str, name: GraderName, code: str, message: str) -> str:
    return (
        f"This {LANGUAGES[name]}"
        f" {MISTAKE}\n\n{_TASK}\n\n{task.strip()}\n\n{_CODE}\n\n{wrap_in_fence(name, code)}\n\n"
        f"{render_grader_message(message)}"
    )


def extract_quotes(prompt: str, message: str) -> list[str]:
    """Return the task and the code of such a prompt, each alone, without `message`; of any other
    prompt the whole of it."""
    if MISTAKE not in prompt or SAID not in prompt:
        return [prompt]
    parts = [
        (
            prompt.partition(MISTAKE)[2].replace(message, "")
            if message
            else prompt.partition(MISTAKE)[2]
        )
    ]
    for heading in (_TASK, _CODE, SAID):
        parts = [piece for part in parts for piece in part.split(heading)]
    return parts
