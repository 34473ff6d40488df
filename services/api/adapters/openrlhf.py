"""OpenRLHF's remote reward model: `--reward.remote_url
http://key:KEY@HOST:8000/openrlhf/GRADER/get_reward`.

A fault is status 503. OpenRLHF tries five times within 180 s each, then gives the sample no reward,
and its experience maker raises: the run ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gradus.errors import Misuse
from gradus.integrations.core import Completion, build_metrics, require_reward
from gradus.integrations.openrlhf_query import extract_completion
from services.api.adapters.grading import build_fault_response, grade, read_json
from services.api.authenticate import KeyedRoute
from services.api.json_object import JsonObject, parse_value

DEADLINE_S = 170.0
WRONG_LISTS = "query, prompts, labels: must be lists of the same length, the first two of texts"
router = APIRouter(route_class=KeyedRoute, include_in_schema=False)


@router.post("/openrlhf/{grader}/get_reward")
async def get_reward(grader: str, request: Request) -> Response:
    """Rewards in the order of `query`; the label of each is its task."""
    document, reservation = await read_json(request)
    iter_completions = partial(_iter_completions, document)
    results = await grade(request, grader, iter_completions, DEADLINE_S, reservation)
    refusal = build_fault_response(results)
    if refusal is not None:
        return refusal
    rewards = list(map(require_reward, results))
    metrics = list(map(build_metrics, results))
    logs = {
        "passed": [row["passed"] for row in metrics],
        "cached": [row["cached"] for row in metrics],
    }
    return JSONResponse({"rewards": rewards, "scores": rewards, "extra_logs": logs})


def _iter_completions(document: JsonObject) -> Iterator[Completion]:
    lists = [document.iter_list(name) for name in ("query", "prompts", "labels")]
    try:
        for query_text, prompt_text, label in zip(*lists, strict=True):
            query = _read_text(query_text)
            prompt = _read_text(prompt_text)
            yield Completion(parse_value(label), extract_completion(query, prompt), prompt)
    except ValueError:  # one of the lists is shorter
        raise Misuse(WRONG_LISTS) from None


def _read_text(text: bytes) -> str:
    value = parse_value(text)
    if not isinstance(value, str):
        raise Misuse(WRONG_LISTS)
    return value
