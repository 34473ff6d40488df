"""SandboxFusion's `/submit` for programs with cases:
`set_endpoint("http://key:KEY@HOST:8000/sandbox_fusion")`.

The language is the name of a grader whose tasks have `cases` with `stdin` and `stdout`; others are
refused. There is no `/run_code`: it returns what a program prints, so hidden tests could be read. A
fault is status 503. The client tries five times and raises; its `submit_safe` makes a wrong answer
of that, so do not use it for rewards.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gradus.contract import Graded
from gradus.errors import Misuse
from gradus.integrations.core import Completion
from gradus.row_reader import strict_json
from services.api.adapters.grading import field, grade, read_json, refused_faults, text_field
from services.api.routing import KeyedRoute

DEADLINE_S = 120.0
router = APIRouter(route_class=KeyedRoute, include_in_schema=False)


@router.post("/sandbox_fusion/submit")
async def submit(request: Request) -> Response:
    """Whether all cases pass, and each case: only how many pass is known, so the first ones are
    called passed."""
    asked, body = await read_json(request)
    grader = str(field(asked, "config", "language"))
    cases = _cases(field(asked, "config", "provided_data"))
    [result] = await grade(
        request,
        grader,
        [Completion({"cases": cases}, text_field(asked, "completion"))],
        DEADLINE_S,
        body,
    )
    if not isinstance(result, Graded):
        return refused_faults([result]) or Response(status_code=503)
    n_passed = result.tests.passed if result.tests else 0
    ran = {"status": "Success" if result.tests else "Failed", "message": result.stage.value}
    tests = [{"passed": number < n_passed, "exec_info": ran} for number in range(len(cases))]
    extra = {"reward": result.reward, "stage": result.stage.value, "flags": list(result.flags)}
    found = {
        "id": asked.get("id", 0),
        "accepted": result.passed,
        "extracted_code": "",
        "tests": tests,
        "extra": extra,
    }
    return JSONResponse(found)


def _cases(data: Any) -> list[dict[str, Any]]:
    if isinstance(data, dict):
        data = data.get("test") or data.get("test_cases")
    try:
        found = strict_json(data) if isinstance(data, str) else data
        return [
            {"stdin": one["input"]["stdin"], "stdout": one["output"]["stdout"]} for one in found
        ]
    except (ValueError, TypeError, KeyError):
        message = (
            'config.provided_data.test: must be a list of {"input": {"stdin": ...}, "output":'
            ' {"stdout": ...}}'
        )
        raise Misuse(message) from None
