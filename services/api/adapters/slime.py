"""slime's and miles' remote reward: `--rm-type remote_rm --rm-url
http://key:KEY@HOST:8000/slime/GRADER`.

A fault is status 503. slime tries ten times within 120 s each and miles once; then both raise, and
the run ends.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gradus.integrations.core import Completion, reward_or_raise
from services.api.adapters.grading import field, grade, read_json, refused_faults, text_field
from services.api.routing import KeyedRoute

DEADLINE_S = 110.0
router = APIRouter(route_class=KeyedRoute, include_in_schema=False)


@router.post("/slime/{grader}")
async def remote_rm(grader: str, request: Request) -> Response:
    """The reward, as a bare number."""
    asked, body = await read_json(request)
    given = Completion(
        field(asked, "label"), text_field(asked, "response"), asked.get("prompt") or ""
    )
    [result] = await grade(request, grader, [given], DEADLINE_S, body)
    return refused_faults([result]) or JSONResponse(reward_or_raise(result))
