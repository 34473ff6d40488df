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
from services.api.parse import Reservation, parse_counted

DEADLINE_S = 120.0
NO_CASES = (
    'config.provided_data.test: must be a list of {"input": {"stdin": ...}, "output": {"stdout":'
    " ...}}"
)
router = APIRouter(route_class=KeyedRoute, include_in_schema=False)


@router.post("/sandbox_fusion/submit")
async def submit(request: Request) -> Response:
    """Return whether all cases pass, and each case. Only the number of passed cases is known, so
    the first ones are reported as passed."""
    document, reservation = await read_json(request)
    grader = str(get_field(document, "config", "language"))
    cases = await _read_cases(get_field(document, "config", "provided_data"), reservation)
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


async def _read_cases(data: Any, reservation: Reservation) -> list[dict[str, Any]]:
    """Return the cases of a submission. Raises a Misuse: 400, 413, 422, 429."""
    if isinstance(data, dict):
        data = data.get("test") or data.get("test_cases")
    if isinstance(data, str):
        text = data.encode(errors="surrogatepass")
        data = await parse_counted(text, reservation, _parse_text)
    try:
        cases_read = []
        for case in data:
            cases_read.append({"stdin": case["input"]["stdin"], "stdout": case["output"]["stdout"]})
        return cases_read
    except (TypeError, KeyError):
        raise Misuse(NO_CASES) from None


def _parse_text(data: bytes) -> Any:
    try:
        return parse_strict_json(data.decode(errors="surrogatepass"))
    except ValueError:
        raise Misuse(NO_CASES) from None
