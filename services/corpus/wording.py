"""The prompt of a repair task, and which parts of such a prompt are its own: what it quotes, others wrote."""

from __future__ import annotations

from gradus.contract import GraderName
from services.admission import fenced

LANGUAGES = {GraderName.OCAML: "OCaml", GraderName.RUST: "Rust"}
_MISTAKE = "code has a mistake. Find it, and answer with the whole corrected file."
_TASK = "# What the code should do"
_CODE = "# The code"
_SAID = "# What the compiler and the tests say"


def repair_prompt(task: str, name: GraderName, code: str, message: str) -> str:
    return (
        f"This {LANGUAGES[name]} {_MISTAKE}\n\n{_TASK}\n\n{task.strip()}\n\n{_CODE}\n\n{fenced(name, code)}\n\n"
        f"{_SAID}\n\n```\n{message}\n```"
    )


def quoted(prompt: str, message: str) -> list[str]:
    """The task and the code of such a prompt, each alone, without `message`; of any other prompt the whole of it."""
    if _MISTAKE not in prompt or _SAID not in prompt:
        return [prompt]
    parts = [prompt.partition(_MISTAKE)[2].replace(message, "") if message else prompt.partition(_MISTAKE)[2]]
    for heading in (_TASK, _CODE, _SAID):
        parts = [piece for part in parts for piece in part.split(heading)]
    return parts
