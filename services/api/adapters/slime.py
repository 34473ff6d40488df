"""slime's and miles' remote reward: `--rm-type remote_rm --rm-url
http://key:KEY@HOST:8000/slime/GRADER`.

A fault is status 503. slime tries ten times within 120 s each and miles once; then both raise, and
the run ends.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gradus.integrations.core import Completion, require_reward
from services.api.adapters.grading import (
    build_fault_response,
    get_field,
    get_text_field,
    grade,
    read_json,
)
from services.api.authenticate import KeyedRoute

DEADLINE_S = 110.0
router = APIRouter(route_class=KeyedRoute, include_in_schema=False)


@router.post("/slime/{grader}")
async def get_reward(grader: str, request: Request) -> Response:
    """The reward, as a bare number."""
    document, reservation = await read_json(request)
    completion = Completion(
        get_field(document, "label"),
        get_text_field(document, "response"),
        document.get("prompt") or "",
    )
    [result] = await grade(request, grader, [completion], DEADLINE_S, reservation)
    return build_fault_response([result]) or JSONResponse(require_reward(result))
