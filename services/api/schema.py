"""Parts of `/openapi.json` that FastAPI does not generate: request bodies, examples, keys.

Request bodies are those that the known graders announced, so the document changes as graders join.
"""

from __future__ import annotations

import json
from copy import deepcopy
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gradus.contract import Faulted, Graded, GradeRequest, RawSubmission
from gradus.descriptions import GraderDescription, GraderList
from gradus.rest import GradeResponse, JobStatus, Problem
from services.api.grader_registry import GraderRegistry
from services.api.parse import PRIORITIES, RUN_NAME

VERSION = "1"
ABOUT = "Grades what language models write. Every 4xx and 5xx answer is `application/problem+json`."
REF = "#/components/schemas/{model}"


class Accepted(BaseModel):
    """The answer to a job that was taken."""

    id: str


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
        {
            "stage": "types",
            "severity": "warning",
            "line": 3,
            "column": 9,
            "code": None,
            "message": "unused variable x.",
        }
    ],
    "rubric": "example/graduated@1",
    "grader": "example@34536bc79c07",
    "toolchain": "example 4.14.2",
    "cached": False,
    "cpu_ms": 9.1,
    "wall_ms": 14.0,
}
FAULTED: dict[str, Any] = {
    "id": "b2",
    "status": "faulted",
    "fault": {
        "kind": "deadline",
        "message": "example submission 'b2': no verdict within 60 s",
        "retryable": True,
    },
}
JOB_ID = "ZQ4tZ6nqVxk3c1yUuG0a8h2sPjB7LwDf"


def _build_response(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    return {"model": model, "content": {"application/json": {"example": example}}}


RESULTS = _build_response(GradeResponse, {"results": [GRADED, FAULTED]})
ACCEPTED = _build_response(Accepted, {"id": JOB_ID})
STATUS = _build_response(
    JobStatus, {"id": JOB_ID, "status": "running", "done": 1, "total": 2, "results": None}
)
CANCELLED = _build_response(
    JobStatus,
    {
        "id": JOB_ID,
        "status": "done",
        "done": 2,
        "total": 2,
        "results": [
            GRADED,
            FAULTED
            | {
                "fault": {
                    "kind": "queue",
                    "message": "submission 'b2': cancelled by its client",
                    "retryable": False,
                }
            },
        ],
    },
)
GRADERS = _build_response(
    GraderList,
    {
        "graders": [
            {
                "name": "example",
                "revision": "34536bc79c07",
                "toolchain": "example 4.14.2",
                "rubrics": ["example/graduated@1", "example/strict@1"],
                "sandbox": "bubblewrap",
                "workers": 2,
                "slots": 8,
            }
        ]
    },
)

PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "Gradus-Run",
        "in": "header",
        "description": "Runs take turns in the queue. Default: the name of the API key.",
        "schema": {"type": "string", "pattern": f"^{RUN_NAME}$"},
    },
    {
        "name": "Gradus-Priority",
        "in": "header",
        "description": (
            "Evaluation comes before training, which still gets a fifth of the claims while both"
            " wait."
        ),
        "schema": {"type": "string", "enum": PRIORITIES, "default": "training"},
    },
]
# The body is filled in by the graders that are known when the document is built.
GRADE_BODY: dict[str, Any] = {
    "parameters": PARAMETERS,
    "requestBody": {"required": True, "content": {"application/json": {}}},
}
DESCRIPTION = _build_response(
    GraderDescription,
    {
        "name": "example",
        "task_schema": {
            "type": "object",
            "properties": {"tests": {"type": "string"}},
            "required": ["tests"],
        },
        "example": {"id": "a1", "prompt": "...", "completion": "...", "task": {"tests": "..."}},
        "stages": ["extract", "compile", "tests"],
        "rates": {"compile": "past:compile", "tests": "passed"},
        "components": ["compile", "tests"],
        "fences": ["example"],
        "reads_prompt": False,
    },
)

STREAM: dict[str, Any] = {
    "description": (
        "One result per line. An empty line, now and then, says that the service is still at work."
    ),
    "content": {
        "application/x-ndjson": {
            "schema": {
                "oneOf": [{"$ref": REF.format(model=model.__name__)} for model in (Graded, Faulted)]
            },
            "example": f"{json.dumps(GRADED)}\n\n{json.dumps(FAULTED)}\n",
        }
    },
}

EXPOSITION: dict[str, Any] = {
    "description": "Prometheus text format.",
    "content": {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}},
}


def _build_problem(status: int, title: str, detail: str, description: str) -> dict[str, Any]:
    content = {
        "schema": {"$ref": REF.format(model=Problem.__name__)},
        "example": {"type": "about:blank", "title": title, "status": status, "detail": detail},
    }
    return {"description": description, "content": {"application/problem+json": content}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": _build_problem(
        422,
        HTTPStatus(422).phrase,
        "submissions.0.completion: Field required",
        "Misuse: the request cannot be answered; `detail` says how to ask.",
    ),
    "429": _build_problem(
        429,
        "Too Many Requests",
        "the queue of grader 'example' is full; try again in 5 s",
        "The queue is full: come back after Retry-After.",
    ),
    "500": _build_problem(
        500,
        "Internal Server Error",
        "the service failed on this request; its log says where",
        "A defect of the service; its log says where.",
    ),
    "503": _build_problem(
        503,
        "Service Unavailable",
        "cannot reach Redis at redis://redis:6379/0",
        "The broker is away: come back after Retry-After.",
    ),
}


def install(app: FastAPI, registry: GraderRegistry) -> None:
    """Serve the completed document, which is built when the known graders change."""
    graders: list[GraderDescription] = []
    document: dict[str, Any] = {}

    def get_document() -> dict[str, Any]:
        nonlocal graders, document
        descriptions = [known_grader.description for known_grader in registry.known.values()]
        if not document or descriptions != graders:
            document = _build_document(app, descriptions)
            graders = descriptions
        return document

    app.openapi = get_document  # type: ignore[method-assign]


def _build_document(app: FastAPI, graders: list[GraderDescription]) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=ABOUT, routes=app.routes
    )
    models: list[type[BaseModel]] = [GradeRequest, RawSubmission, Graded, Faulted, Problem]
    _, definitions = models_json_schema(
        [(model, "validation") for model in models], ref_template=REF
    )
    components = document.setdefault("components", {})
    components["schemas"] = definitions["$defs"] | components.get("schemas", {})
    requests = [_add_request(components["schemas"], grader) for grader in graders]
    body = {
        "schema": {"anyOf": [{"$ref": REF.format(model=request)} for request in requests]},
        "examples": {
            grader.name: {"value": {"submissions": [grader.example]}} for grader in graders
        },
    }
    for path in document["paths"].values():
        for operation in path.values():
            if "requestBody" in operation:
                operation["requestBody"]["content"]["application/json"] = body
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" and "pattern" in parameter["schema"]:
                    parameter["schema"] = {
                        "type": "string",
                        "enum": [grader.name for grader in graders],
                    }
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{}, {"key": []}]
    return document


def _add_request(schemas: dict[str, Any], grader: GraderDescription) -> str:
    """Add the schema of requests to `grader` to `schemas`. Returns its name."""
    title = "".join(part.title() for part in grader.name.split("_"))
    task = f"{title}Task"
    submission = f"{title}Submission"
    request = f"{title}GradeRequest"
    # Definitions of the task, referenced as `#/$defs/NAME`, become components of the document.
    moved = json.dumps(grader.task_schema).replace('"#/$defs/', f'"{REF.format(model=task)}.')
    described = json.loads(moved)
    schemas |= {f"{task}.{name}": inner for name, inner in described.pop("$defs", {}).items()}
    schemas[task] = described
    schemas[submission] = deepcopy(schemas[RawSubmission.__name__]) | {"title": submission}
    schemas[submission]["properties"]["task"] = {"$ref": REF.format(model=task)}
    schemas[request] = deepcopy(schemas[GradeRequest.__name__]) | {"title": request}
    schemas[request]["properties"]["submissions"]["items"] = {"$ref": REF.format(model=submission)}
    return request
