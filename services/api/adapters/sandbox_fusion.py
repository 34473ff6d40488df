"""SandboxFusion's `/submit` and `/run_code`:
`set_endpoint("http://key:KEY@HOST:8000/sandbox_fusion")`.

A language is one of the grader `program`, or the name of a running grader whose tasks have `cases`.
Programs run in boxes without network and without a place to write, so `fetch_files` is refused;
limits are of CPU time. A fault is status 503. The client tries five times and raises; its
`submit_safe` makes a wrong answer of that, so do not use it for rewards.

Results of `/run_code` are cached as verdicts are: a program that draws random numbers prints the
same ones again.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gradus.contract import Graded, Stage
from gradus.errors import Misuse, TooLarge
from gradus.integrations.core import Completion
from gradus.tasks.program import choose_checker
from services.api.adapters.grading import build_fault_response, grade, read_json
from services.api.authenticate import KeyedRoute
from services.api.json_cursor import JsonCursor
from services.api.json_object import JsonObject, parse_value
from services.api.parse import run_outside_loop
from services.api.state import get_api

DEADLINE_S = 120.0
PROGRAM = "program"
LANGUAGES = {"nodejs": "javascript"}
"""SandboxFusion's names of languages, where the grader has others."""
SCRIPTS = ("python", "javascript", "ruby", "perl", "lua", "bash")
"""Languages whose errors of syntax SandboxFusion reports as those of a run."""
MAX_CPU_S = 600.0
MEMORY_MB = (16, 16384)
"""Least and most that a task may ask for."""
NO_FILES = "files: must be texts in base64, by name"
MAX_CASES = 4096
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
    language, n_cases = await run_outside_loop(reservation, _outline_submission, document)
    grader = await _choose_grader(request, language)
    iter_completions = partial(_iter_submission, document, grader == PROGRAM)
    [result] = await grade(request, grader, iter_completions, DEADLINE_S, reservation)
    if not isinstance(result, Graded):
        return build_fault_response([result]) or Response(status_code=503)
    n_passed = result.tests.passed if result.tests else 0
    ran = {"status": "Success" if result.tests else "Failed", "message": result.stage.value}
    tests = [{"passed": number < n_passed, "exec_info": ran} for number in range(n_cases)]
    extra = {"reward": result.reward, "stage": result.stage.value, "flags": list(result.flags)}
    added = {"accepted": result.passed, "extracted_code": "", "tests": tests, "extra": extra}
    answer = JsonObject({"id": document.members.get("id", b"0")})
    return Response(answer.encode(added), media_type="application/json")


@router.post("/sandbox_fusion/run_code")
async def run_code(request: Request) -> Response:
    """Return what a program prints. Runs it in the box of a case, with `stdin` and `files`."""
    document, reservation = await read_json(request)
    name = await run_outside_loop(reservation, document.require_text, "language")
    language = LANGUAGES.get(name, name)
    iter_completions = partial(_iter_program, document, language)
    [result] = await grade(request, PROGRAM, iter_completions, DEADLINE_S, reservation)
    if not isinstance(result, Graded):
        return build_fault_response([result]) or Response(status_code=503)
    return JSONResponse({"files": {}, "executor_pod_name": None, **_build_run(result, language)})


async def _choose_grader(request: Request, language: str) -> str:
    """Return a running grader of the language's name, whose tasks have cases; else `program`."""
    registry = get_api(request).registry
    await registry.list_live()
    entry = registry.known.get(language)
    # Any schema may be announced: one without `properties` too.
    fields = entry.description.task_schema.get("properties") if entry else None
    has_cases = isinstance(fields, dict) and "cases" in fields
    if has_cases and not await registry.is_absent(language):
        return language
    return PROGRAM


def _find_config(document: JsonObject) -> JsonObject:
    document.require("config")
    return document.find_object("config") or JsonObject({}, "config.")


def _outline_submission(document: JsonObject) -> tuple[str, int]:
    """Return the language of a submission, and the number of its cases."""
    config = _find_config(document)
    return str(parse_value(config.require("language"))), len(_read_cases(config))


def _iter_submission(document: JsonObject, is_program: bool) -> Iterator[Completion]:
    """Yield the completion of a submission. `is_program`: its grader is the one of programs, which
    reads more than the cases."""
    config = _find_config(document)
    cases = _read_cases(config)
    task: dict[str, Any] = {"cases": cases}
    if is_program:
        language = str(config.get("language"))
        task["language"] = LANGUAGES.get(language, language)
        task["checker"] = choose_checker(str(case["stdout"]) for case in cases)
        task["limits"] = _read_limits(config)
    yield Completion(task, document.require_text("completion"))


def _read_cases(config: JsonObject) -> list[dict[str, Any]]:
    tests = config.require("provided_data")
    data = config.find_object("provided_data")
    if data is not None:
        tests = data.members.get("test") or data.members.get("test_cases") or b""
    try:
        if tests.lstrip().startswith(b'"'):
            tests = parse_value(tests).encode(errors="surrogatepass")
        cursor = JsonCursor(tests)
        cases = []
        for text in cursor.iter_items():
            case = parse_value(text)
            cases.append({"stdin": case["input"]["stdin"], "stdout": case["output"]["stdout"]})
            if len(cases) > MAX_CASES:
                raise TooLarge(f"config.provided_data.test: more than {MAX_CASES} cases")
        cursor.close()
        return cases
    except (TypeError, KeyError, ValueError):
        raise Misuse(NO_CASES) from None


def _iter_program(document: JsonObject, language: str) -> Iterator[Completion]:
    """Yield the program of a request to run it."""
    if next(document.iter_list("fetch_files"), None) is not None:
        raise Misuse("fetch_files: a program has no place to write, so there are no files to fetch")
    case = {
        "stdin": document.get("stdin") or "",
        "files": _read_files(document),
        "stdout": "",
    }
    task = {
        "language": language,
        "cases": [case],
        "shows_output": True,
        "limits": _read_limits(document),
    }
    yield Completion(task, _fence(language, document.require_text("code")))


def _read_limits(values: JsonObject) -> dict[str, Any]:
    """Return a task's limits from `run_timeout` and `memory_limit_MB`; -1 is none."""
    limits: dict[str, Any] = {}
    seconds = values.get("run_timeout")
    if isinstance(seconds, int | float) and seconds > 0:
        limits["cpu_s"] = min(seconds, MAX_CPU_S)
    memory_mb = values.get("memory_limit_MB")
    if isinstance(memory_mb, int) and memory_mb > 0:
        minimum, maximum = MEMORY_MB
        limits["memory_mb"] = min(max(memory_mb, minimum), maximum)
    return limits


def _read_files(document: JsonObject) -> dict[str, str]:
    files = document.find_object("files")
    if files is None:
        if document.get("files"):
            raise Misuse(NO_FILES)
        return {}
    texts = {}
    for name in files.members:
        content = files.get(name)
        try:
            if content is not None:
                texts[name] = base64.b64decode(content, validate=True).decode()
        except (TypeError, ValueError):
            raise Misuse(NO_FILES) from None
    return texts


def _fence(language: str, code: str) -> str:
    """Return `code` as a model would write it, behind a fence that is longer than any in it."""
    fence = "`" * (max([2, *map(len, re.findall("`+", code))]) + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def _build_run(result: Graded, language: str) -> dict[str, Any]:
    """Return the fields of SandboxFusion's answer that come of a verdict."""
    messages = {entry.code: entry.message for entry in result.diagnostics}
    if result.stage is not Stage.TESTS:
        is_late = any(flag in ("limit:cpu", "limit:wall") for flag in result.flags)
        compiled = {
            "status": "TimeLimitExceeded" if is_late else "Finished",
            "return_code": None if is_late else 1,
            "stdout": "",
            "stderr": "\n".join(entry.message for entry in result.diagnostics),
        }
        results = {"compile_result": compiled, "run_result": None}
        if language in SCRIPTS:
            results = {"compile_result": None, "run_result": compiled}
        return {"status": "Failed", "message": "", **results}
    output = json.loads(messages.get("output", "null"))
    if output is None or output["is_cut"]:  # a cut one would be compared, and be wrong
        message = "the output is too large to be returned"
        return {"status": "SandboxError", "message": message, "run_result": None}
    is_late = "time_limit" in messages
    ran = {
        "status": "TimeLimitExceeded" if is_late else "Finished",
        "execution_time": result.cpu_ms / 1000,
        "return_code": None if is_late else output["status"],
        "stdout": output["stdout"],
        "stderr": output["stderr"],
    }
    status = "Success" if ran["return_code"] == 0 else "Failed"
    return {"status": status, "message": "", "compile_result": None, "run_result": ran}
