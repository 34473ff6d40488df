"""Child that calls a reward function once: `python -P target_child.py`, in a box of its own.

Standard input has the request, descriptor 3 gets the reply. Both are one JSON object. The reply
repeats the request's `nonce`, which the completion cannot know before the function has run it.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any


def call_trl(function: Callable[..., Any], request: Mapping[str, Any]) -> Any:
    """Call as TRL does with plain texts: lists of one, and each column of the row."""
    columns = {name: [value] for name, value in request["columns"].items()}
    return function(prompts=[request["prompt"]], completions=[request["completion"]], **columns)


def call_open_r1(function: Callable[..., Any], request: Mapping[str, Any]) -> Any:
    """Call as TRL does with conversations."""
    columns = {name: [value] for name, value in request["columns"].items()}
    completion = [{"role": "assistant", "content": request["completion"]}]
    prompt = [{"role": "user", "content": request["prompt"]}]
    return function(prompts=[prompt], completions=[completion], **columns)


def call_verl(function: Callable[..., Any], request: Mapping[str, Any]) -> Any:
    """Call as the reward managers of verl do."""
    return function(
        data_source=request["data_source"],
        solution_str=request["completion"],
        ground_truth=request["columns"]["ground_truth"],
        extra_info=request["columns"],
    )


def call_nemo_gym(function: Callable[..., Any], request: Mapping[str, Any]) -> Any:
    """Call with the body of a `verify` request of NeMo Gym."""
    text = {"type": "output_text", "text": request["completion"], "annotations": []}
    message = {"id": "1", "type": "message", "role": "assistant", "status": "completed"}
    response = {"id": "1", "object": "response", "output": [{**message, "content": [text]}]}
    params = {"input": [{"role": "user", "content": request["prompt"]}]}
    metadata = {"task": request["columns"], **request["columns"]}
    body = {"responses_create_params": params, "response": response, "verifier_metadata": metadata}
    return function(body)


SHAPES = {
    "trl": call_trl,
    "open-r1": call_open_r1,
    "verl": call_verl,
    "nemo-gym": call_nemo_gym,
}


def read_number(value: Any) -> float:
    """Return the reward out of what a function returned: a number, the first of a list, or what
    stands under `score` or `reward`. Raises ValueError where there is none."""
    if isinstance(value, list | tuple) and value:
        value = value[0]
    for name in ("score", "reward"):
        if isinstance(value, Mapping):
            value = value.get(name, value)
        else:
            value = getattr(value, name, value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"no reward: {value!r:.200}") from None
    if not math.isfinite(number):
        raise ValueError(f"no reward: {number}")
    return number


def compute_reward(request: Mapping[str, Any]) -> float:
    function = attrgetter(request["function"])(importlib.import_module(request["module"]))
    value = SHAPES[request["shape"]](function, request)
    if inspect.isawaitable(value):

        async def wait() -> Any:
            return await value

        value = asyncio.run(wait())
    return read_number(value)


def main() -> None:
    request = json.load(sys.stdin)
    report = fcntl.fcntl(3, fcntl.F_DUPFD_CLOEXEC, 100)
    os.close(3)
    reply: dict[str, Any] = {"nonce": request["nonce"]}
    try:
        reply["reward"] = compute_reward(request)
    except BaseException as error:  # noqa: BLE001 an answer may raise anything, SystemExit too
        reply["error"] = f"{type(error).__name__}: {error}"[:500]
    os.write(report, json.dumps(reply).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
