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
from gradus.row_reader import parse_strict_json
from services.api.adapters.grading import (
    build_fault_response,
    get_field,
    get_text_field,
    grade,
    read_json,
)
from services.api.authenticate import KeyedRoute

DEADLINE_S = 120.0
router = APIRouter(route_class=KeyedRoute, include_in_schema=False)


@router.post("/sandbox_fusion/submit")
async def submit(request: Request) -> Response:
    """Return whether all cases pass, and each case. Only the number of passed cases is known, so
    the first ones are reported as passed."""
    document, reservation = await read_json(request)
    grader = str(get_field(document, "config", "language"))
    cases = _read_cases(get_field(document, "config", "provided_data"))
    [result] = await grade(
        request,
        grader,
        [Completion({"cases": cases}, get_text_field(document, "completion"))],
        DEADLINE_S,
        reservation,
    )
    if not isinstance(result, Graded):
        return build_fault_response([result]) or Response(status_code=503)
    n_passed = result.tests.passed if result.tests else 0
    ran = {"status": "Success" if result.tests else "Failed", "message": result.stage.value}
    tests = [{"passed": number < n_passed, "exec_info": ran} for number in range(len(cases))]
    extra = {"reward": result.reward, "stage": result.stage.value, "flags": list(result.flags)}
    return JSONResponse(
        {
            "id": document.get("id", 0),
            "accepted": result.passed,
            "extracted_code": "",
            "tests": tests,
            "extra": extra,
        }
    )


def _read_cases(data: Any) -> list[dict[str, Any]]:
    if isinstance(data, dict):
        data = data.get("test") or data.get("test_cases")
    try:
        cases = parse_strict_json(data) if isinstance(data, str) else data
        cases_read = []
        for case in cases:
            cases_read.append({"stdin": case["input"]["stdin"], "stdout": case["output"]["stdout"]})
        return cases_read
    except (ValueError, TypeError, KeyError):
        message = (
            'config.provided_data.test: must be a list of {"input": {"stdin": ...}, "output":'
            ' {"stdout": ...}}'
        )
        raise Misuse(message) from None
