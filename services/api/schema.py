"""What `/openapi.json` says beyond what FastAPI sees by itself: request bodies, examples, keys. Validates nothing."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gradus.contract import (
    REQUESTS,
    Faulted,
    Graded,
    GradeResponse,
    GraderList,
    GraderName,
    JobStatus,
    Problem,
)
from services.api.lanes import PARAMETERS

VERSION = "1"
ABOUT = "Grades what language models write. Every 4xx and 5xx answer is `application/problem+json`."
REF = "#/components/schemas/{model}"


class Accepted(BaseModel):
    """The answer to a job that was taken."""

    id: str


EXAMPLES: dict[GraderName, dict[str, Any]] = {
    GraderName.OCAML: {
        "submissions": [
            {
                "id": "a1",
                "prompt": "Write double : int -> int.",
                "completion": "```ocaml\nlet double x = 2 * x\n```",
                "task": {"tests": "let () = assert (double 2 = 4)", "signature": "val double : int -> int"},
            }
        ],
        "rubric": "ocaml/graduated@1",
        "deadline_s": 60,
    },
    GraderName.RUST: {
        "submissions": [
            {
                "id": "a1",
                "prompt": "Write pub fn double(x: i64) -> i64.",
                "completion": "```rust\npub fn double(x: i64) -> i64 { 2 * x }\n```",
                "task": {
                    "tests": "#[test]\nfn doubles() { assert_eq!(solution::double(2), 4); }",
                    "signature": "pub fn double(x: i64) -> i64;",
                },
            }
        ],
        "rubric": "rust/graduated@1",
        "deadline_s": 60,
    },
    GraderName.STORY: {
        "submissions": [
            {
                "id": "a1",
                "prompt": "Write the user stories for this sprint.",
                "completion": "As a shopper, I want to save my basket, so that I can buy later.",
                "task": {
                    "sprint_goal": "Shoppers keep their baskets",
                    "references": ["As a shopper, I want my basket kept, so that I need not fill it again."],
                },
            }
        ]
    },
    GraderName.PREFERENCE: {
        "submissions": [
            {
                "id": "a1",
                "completion": "Blue.",
                "task": {"messages": [{"role": "user", "content": "Name a colour."}]},
            }
        ]
    },
}

GRADED: dict[str, Any] = {
    "id": "a1",
    "status": "graded",
    "reward": 0.74,
    "passed": False,
    "stage": "tests",
    "components": {"types": 0.25, "compile": 0.1, "tests": 0.39},
    "tests": {"passed": 3, "total": 5},
    "flags": [],
    "diagnostics": [
        {"stage": "types", "severity": "warning", "line": 3, "column": 9, "code": None, "message": "unused variable x."}
    ],
    "rubric": "ocaml/graduated@1",
    "grader": "ocaml@34536bc79c07",
    "toolchain": "ocaml 4.14.2",
    "cached": False,
    "cpu_ms": 9.1,
    "wall_ms": 14.0,
}
FAULTED: dict[str, Any] = {
    "id": "b2",
    "status": "faulted",
    "fault": {"kind": "deadline", "message": "ocaml submission 'b2': no verdict within 60 s", "retryable": True},
}
JOB_ID = "ZQ4tZ6nqVxk3c1yUuG0a8h2sPjB7LwDf"


def _shown(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    return {"model": model, "content": {"application/json": {"example": example}}}


RESULTS = _shown(GradeResponse, {"results": [GRADED, FAULTED]})
ACCEPTED = _shown(Accepted, {"id": JOB_ID})
STATUS = _shown(JobStatus, {"id": JOB_ID, "status": "running", "done": 1, "total": 2, "results": None})
GRADERS = _shown(
    GraderList,
    {
        "graders": [
            {
                "name": "ocaml",
                "revision": "34536bc79c07",
                "toolchain": "ocaml 4.14.2",
                "rubrics": ["ocaml/graduated@1", "ocaml/binary@1"],
                "sandbox": "bubblewrap",
                "workers": 2,
                "slots": 8,
            }
        ]
    },
)

GRADE_BODY: dict[str, Any] = {
    "parameters": PARAMETERS,
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"oneOf": [{"$ref": REF.format(model=model.__name__)} for model in REQUESTS.values()]},
                "examples": {grader.value: {"value": example} for grader, example in EXAMPLES.items()},
            }
        },
    },
}

STREAM: dict[str, Any] = {
    "description": "One result per line. An empty line, now and then, says that the service is still at work.",
    "content": {
        "application/x-ndjson": {
            "schema": {"oneOf": [{"$ref": REF.format(model=model.__name__)} for model in (Graded, Faulted)]},
            "example": f"{json.dumps(GRADED)}\n\n{json.dumps(FAULTED)}\n",
        }
    },
}

EXPOSITION: dict[str, Any] = {
    "description": "Prometheus text format.",
    "content": {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}},
}


def _problem(status: int, title: str, detail: str, description: str) -> dict[str, Any]:
    content = {
        "schema": {"$ref": REF.format(model=Problem.__name__)},
        "example": {"type": "about:blank", "title": title, "status": status, "detail": detail},
    }
    return {"description": description, "content": {"application/problem+json": content}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": _problem(
        422,
        HTTPStatus(422).phrase,
        "submissions.0.completion: Field required",
        "Misuse: the request cannot be answered; `detail` says how to ask.",
    ),
    "429": _problem(
        429,
        "Too Many Requests",
        "the queue of grader 'ocaml' is full; try again in 5 s",
        "The queue is full: come back after Retry-After.",
    ),
    "500": _problem(
        500,
        "Internal Server Error",
        "the service failed on this request; its log says where",
        "A defect of the service; its log says where.",
    ),
    "503": _problem(
        503,
        "Service Unavailable",
        "cannot reach Redis at redis://redis:6379/0",
        "The broker is away: come back after Retry-After.",
    ),
}


def install(app: FastAPI) -> None:
    """Serve the completed document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
    models = [*REQUESTS.values(), Graded, Faulted, Problem]
    _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    components = document.setdefault("components", {})
    components["schemas"] = definitions["$defs"] | components.get("schemas", {})
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{}, {"key": []}]
    return document
