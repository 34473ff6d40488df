"""slime's and miles' remote reward: `--rm-type remote_rm --rm-url
http://key:KEY@HOST:8000/slime/GRADER`.

A fault is status 503. slime tries ten times within 120 s each and miles once; then both raise, and
the run ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gradus.integrations.core import Completion, require_reward
from services.api.adapters.grading import build_fault_response, grade, read_json
from services.api.authenticate import KeyedRoute
from services.api.json_object import JsonObject, parse_value

DEADLINE_S = 110.0
router = APIRouter(route_class=KeyedRoute, include_in_schema=False)


@router.post("/slime/{grader}")
async def get_reward(grader: str, request: Request) -> Response:
    """The reward, as a bare number."""
    document, reservation = await read_json(request)
    iter_completions = partial(_iter_completion, document)
    [result] = await grade(request, grader, iter_completions, DEADLINE_S, reservation)
    return build_fault_response([result]) or JSONResponse(require_reward(result))


def _iter_completion(document: JsonObject) -> Iterator[Completion]:
    task = parse_value(document.require("label"))
    prompt = document.get("prompt") or ""
    yield Completion(task, document.require_text("response"), prompt)
