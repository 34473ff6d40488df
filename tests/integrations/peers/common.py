"""What the scripts of this folder share: a task, answers to it, and one line of JSON as the result.

With `SINGLES`, a number, the line is what that many single calls cost beside one batch
(tests/bench/singles.py).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
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
GRADER = "ocaml"
COMMENT = "(* {} *)"
SERVICE = os.environ.get("GRADUS_URL", "")
FAULTY = os.environ.get("FAULTY_URL", "")
"""A service without a grader: each submission is a fault."""


async def told(
    reward: Callable[[str], Awaitable[Any]],
    faulty: Callable[[], Awaitable[Any]],
    single: Callable[[str], Awaitable[Any]] | None = None,
) -> None:
    """Print the rewards of the answers, and what a fault becomes: the exception, or what was
    returned.

    `single` is the part of `reward` whose cost is measured, by default all of it.
    """
    if "SINGLES" in os.environ:
        print("RESULT " + json.dumps(await cost(single or reward, int(os.environ["SINGLES"]))))
        return
    found: dict[str, Any] = {name: await reward(text) for name, text in ANSWERS.items()}
    os.environ["GRADUS_URL"] = FAULTY
    try:
        found["fault"] = await faulty()
    except Exception as error:  # whatever the client raises is what is measured
        found["fault"] = f"{type(error).__name__}: {error}"[:300]
    print("RESULT " + json.dumps(found))


def cpu_s(*pids: int) -> list[float]:
    """CPU seconds of each process with its descendants that live or were waited for, in ticks of 10
    ms."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        ticks[int(stat.parent.name)] = sum(map(int, fields[11:15]))

    def total(pid: int) -> int:
        return ticks.get(pid, 0) + sum(map(total, children.get(pid, [])))

    return [total(pid) / os.sysconf("SC_CLK_TCK") for pid in pids]


async def cost(reward: Callable[[str], Awaitable[Any]], n: int) -> dict[str, list[list[float]]]:
    """[seconds, CPU seconds of this process, CPU seconds of the service] of `n` answers, as one
    batch and as singles.

    Both ways take turns in five rounds, after one that does not count. No answer occurs twice.
    Plain functions run in 32 threads, which is what asyncio takes on a machine with 28 cores or
    more.
    """
    from gradus.client import RewardClient

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    numbers = itertools.count()
    found = {}
    client = RewardClient(SERVICE, batch_size=n)
    processes = [os.getpid(), int(os.environ["SERVICE_PID"])]

    async def batch(texts: list[str]) -> list[Any]:
        given = [
            {"id": str(i), "completion": text, "task": json.loads(TASK)}
            for i, text in enumerate(texts)
        ]
        return [result.reward for result in await client.grade(GRADER, given)]

    async def singles(texts: list[str]) -> list[Any]:
        return await asyncio.gather(*map(reward, texts))

    for _ in range(6):
        for way in (batch, singles):
            texts = [
                ANSWERS["right"].replace(
                    f"```{GRADER}\n", f"```{GRADER}\n{COMMENT.format(next(numbers))}\n"
                )
                for _ in range(n)
            ]
            cpu_before = cpu_s(*processes)
            began_at = time.perf_counter()
            rewards = await way(texts)
            seconds = time.perf_counter() - began_at
            cpu_after = cpu_s(*processes)
            assert rewards == [1.0] * n, rewards
            cpu = [after - before for before, after in zip(cpu_before, cpu_after, strict=True)]
            found.setdefault(way.__name__, []).append([seconds, *cpu])
    return {name: rounds[1:] for name, rounds in found.items()}


def run(work: Awaitable[None]) -> None:
    async def main() -> None:
        await work

    asyncio.run(main())


class Characters:
    """A tokenizer of single characters, with one token that ends a turn."""

    eos_token = "<|im_end|>"
    eos_token_id = 1

    def __call__(self, text: str = "", **_: Any) -> dict[str, Any]:
        import torch

        return {
            "input_ids": torch.frombuffer(bytearray(text, "utf-32-le"), dtype=torch.int32).long()[
                None
            ]
        }

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(map(ord, text))

    def decode(self, ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        text = "".join(map(chr, ids if isinstance(ids, list) else ids.tolist()))
        return text.replace(self.eos_token, "") if skip_special_tokens else text


def build_response(text: str) -> dict[str, Any]:
    """Return a response of OpenAI's Responses API with one message."""
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    more = {"tool_choice": "auto", "tools": [], "parallel_tool_calls": False}
    return {
        "id": "r",
        "created_at": 0,
        "model": "repeater",
        "object": "response",
        "output": [message],
        **more,
    }


def build_row(text: str) -> dict[str, Any]:
    """Return a row of NeMo Gym whose prompt is `text`."""
    params = {"input": [{"role": "user", "content": text}]}
    return {"responses_create_params": params, "verifier_metadata": {"task": TASK}}
