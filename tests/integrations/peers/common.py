"""What the scripts of this folder share: a task, answers to it, and one line of JSON as the result."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

TASKS = Path(__file__).parents[3] / "configs" / "tasks" / "ocaml.jsonl"
ROW: dict[str, Any] = json.loads(TASKS.read_text().splitlines()[0])
TASK = json.dumps({"tests": ROW["tests"], "signature": ROW["signature"]})
ANSWERS = {
    "right": f"<think>Easy.</think>\n```ocaml\n{ROW['solution']}```",
    "stub": f"```ocaml\n{ROW['stub']}```",
    "broken": "```ocaml\nlet clamp a b = a +\n```",
}
SERVICE = os.environ.get("GRADUS_URL", "")
FAULTY = os.environ.get("FAULTY_URL", "")
"""A service without a grader: each submission is a fault."""


async def told(reward: Callable[[str], Awaitable[Any]], faulty: Callable[[], Awaitable[Any]]) -> None:
    """Print the rewards of the answers, and what a fault becomes: the exception, or what was returned."""
    found: dict[str, Any] = {name: await reward(text) for name, text in ANSWERS.items()}
    os.environ["GRADUS_URL"] = FAULTY
    try:
        found["fault"] = await faulty()
    except Exception as error:  # whatever the client raises is what is measured
        found["fault"] = f"{type(error).__name__}: {error}"[:300]
    print("RESULT " + json.dumps(found))


def run(work: Awaitable[None]) -> None:
    async def main() -> None:
        await work

    asyncio.run(main())


class Characters:
    """A tokenizer of single characters, with one token that ends a turn."""

    eos_token, eos_token_id = "<|im_end|>", 1

    def __call__(self, text: str = "", **_: Any) -> dict[str, Any]:
        import torch

        return {"input_ids": torch.tensor([self.encode(text)])}

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        text = "".join(chr(int(one)) for one in ids)
        return text.replace(self.eos_token, "") if skip_special_tokens else text
