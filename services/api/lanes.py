"""The headers `run` and `priority` of a request: when it is the turn of its submissions. Orders nothing itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gradus.errors import Misuse
from services.broker import DEFAULT_LANE, Lane, Priority

_RUN = r"[A-Za-z0-9][A-Za-z0-9_.:/@+\-]{0,63}"
PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "run",
        "in": "header",
        "description": "Runs take turns in the queue. Without it: the name of the API key.",
        "schema": {"type": "string", "pattern": f"^{_RUN}$"},
    },
    {
        "name": "priority",
        "in": "header",
        "description": "Evaluation comes before training.",
        "schema": {"type": "string", "enum": [priority.value for priority in Priority], "default": "training"},
    },
]
"""For `/openapi.json`."""


def lane_of(headers: Mapping[str, str], key_name: str | None) -> Lane:
    """`key_name`: of the API key, if one was asked for. Raises Misuse for what is no name and no priority.

    Runs of different keys are different though their names are alike: nobody takes the turns of another's run.
    """
    owner, run = key_name or DEFAULT_LANE.run, headers.get("run")
    if run is not None and not re.fullmatch(_RUN, run):
        raise Misuse("header `run`: a name of 1 to 64 letters, digits and `_.:/@+-`, starting with a letter or digit")
    return Lane(owner if run is None else f"{owner} {run}", _priority(headers.get("priority")))


def _priority(asked: str | None) -> Priority:
    if asked is None:
        return DEFAULT_LANE.priority
    try:
        return Priority(asked)
    except ValueError:
        raise Misuse("header `priority`: `evaluation` or `training`") from None
