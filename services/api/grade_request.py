"""Reads and validates a grading request: JSON, tasks, and the headers of its fair share."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import ValidationError

from gradus.contract import GradeRequest
from gradus.errors import Misuse
from services.api.known_grader import KnownGrader
from services.api.problems import make_model_refusal
from services.api.request_body import refuse_lax_json
from services.broker import DEFAULT_FAIR_SHARE, FairShare, Priority

RUN_NAME = r"[A-Za-z0-9][A-Za-z0-9_.:/@+\-]{0,63}"
PRIORITIES = [priority.value for priority in Priority]


def parse_request(data: bytes, grader: KnownGrader) -> GradeRequest:
    """Return the request, its tasks valid for `grader`. Raises a Misuse: 400, 413, 422."""
    try:
        request = GradeRequest.model_validate_json(data)
    except ValidationError as error:
        raise make_model_refusal(error) from None
    grader.refuse_mistakes([submission.task for submission in request.submissions])
    refuse_lax_json(data)
    return request


def parse_fair_share(headers: Mapping[str, str], owner: str = DEFAULT_FAIR_SHARE.run) -> FairShare:
    """Return the fair share that `Gradus-Run` and `Gradus-Priority` name. `owner`: the name of the
    API key.

    The same run under two keys is two runs. Raises Misuse for an invalid value.
    """
    run = headers.get("gradus-run")
    if run is not None and not re.fullmatch(RUN_NAME, run):
        raise Misuse(
            "header `Gradus-Run`: a name of 1 to 64 letters, digits and `_.:/@+-`, starting with a"
            " letter or digit"
        )
    priority = headers.get("gradus-priority", DEFAULT_FAIR_SHARE.priority)
    if priority not in PRIORITIES:
        raise Misuse("header `Gradus-Priority`: `evaluation` or `training`")
    return FairShare(owner if run is None else f"{owner} {run}", Priority(priority))
