"""OpenRLHF's remote reward model: `--reward.remote_url
http://key:KEY@HOST:8000/openrlhf/GRADER/get_reward`.

A fault is status 503. OpenRLHF tries five times within 180 s each, then gives the sample no reward,
and its experience maker raises: the run ends.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gradus.errors import Misuse
from gradus.integrations.core import Completion, build_metrics, require_reward
from gradus.integrations.openrlhf_query import extract_completion
from services.api.adapters.grading import build_fault_response, get_list, grade, read_json
from services.api.authenticate import KeyedRoute
from services.api.parse import run_outside_loop

DEADLINE_S = 170.0
router = APIRouter(route_class=KeyedRoute, include_in_schema=False)


@router.post("/openrlhf/{grader}/get_reward")
async def get_reward(grader: str, request: Request) -> Response:
    """Rewards in the order of `query`; the label of each is its task."""
    document, reservation = await read_json(request)
    queries = get_list(document, "query")
    prompts = get_list(document, "prompts")
    labels = get_list(document, "labels")
    if not len(queries) == len(prompts) == len(labels) or not all(
        isinstance(text, str) for text in queries + prompts
    ):
        raise Misuse(
            "query, prompts, labels: must be lists of the same length, the first two of texts"
        )

    def extract_completions() -> list[Completion]:
        texts = map(extract_completion, queries, prompts)
        return list(map(Completion, labels, texts, prompts))

    completions = await run_outside_loop(reservation.n_bytes, extract_completions)
    results = await grade(request, grader, completions, DEADLINE_S, reservation)
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
