"""The request headers `Gradus-Run` and `Gradus-Priority`: the fair share that a request's submissions belong to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gradus.errors import Misuse
from services.broker import DEFAULT_FAIR_SHARE, FairShare, Priority

_RUN = r"[A-Za-z0-9][A-Za-z0-9_.:/@+\-]{0,63}"
_PRIORITIES = [priority.value for priority in Priority]
PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "Gradus-Run",
        "in": "header",
        "description": "Runs take turns in the queue. Default: the name of the API key.",
        "schema": {"type": "string", "pattern": f"^{_RUN}$"},
    },
    {
        "name": "Gradus-Priority",
        "in": "header",
        "description": "Evaluation comes before training.",
        "schema": {"type": "string", "enum": _PRIORITIES, "default": "training"},
    },
    *(
        {
            "name": name.lower(),
            "in": "header",
            "deprecated": True,
            "description": f"Old name of `Gradus-{name}`, for one release. Ignored where it holds something else.",
            "schema": {"type": "string"},
        }
        for name in ("Run", "Priority")
    ),
]
"""For `/openapi.json`."""


def parse_fair_share(headers: Mapping[str, str], key_name: str | None) -> FairShare:
    """The fair share that `headers` name. `key_name`: of the API key, None where no keys are asked for.

    The same run under two keys is two runs. The headers' old names, `run` and `priority`, count where their values are
    valid: RFC 9218 has a `Priority` of its own. Raises Misuse for an invalid value of a new name.
    """
    owner = key_name or DEFAULT_FAIR_SHARE.run
    run = headers.get("gradus-run")
    if run is None and re.fullmatch(_RUN, headers.get("run", "")):
        run = headers["run"]
    if run is not None and not re.fullmatch(_RUN, run):
        raise Misuse(
            "header `Gradus-Run`: a name of 1 to 64 letters, digits and `_.:/@+-`, starting with a letter or digit"
        )
    priority = headers.get("gradus-priority")
    if priority is None and headers.get("priority") in _PRIORITIES:
        priority = headers["priority"]
    if priority is not None and priority not in _PRIORITIES:
        raise Misuse("header `Gradus-Priority`: `evaluation` or `training`")
    return FairShare(
        owner if run is None else f"{owner} {run}",
        DEFAULT_FAIR_SHARE.priority if priority is None else Priority(priority),
    )
