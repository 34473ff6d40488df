"""What a person sees first: `/` with name, version, graders and links, and `/docs`, the API as one
page that loads nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from gradus import __version__
from services.api.authenticate import LeanRoute
from services.api.state import get_api

router = APIRouter(route_class=LeanRoute, include_in_schema=False)

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 56rem; padding: 1rem; }
h2 { font-size: 1rem; margin: 2rem 0 .25rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { border: 1px solid; border-radius: 4px; overflow-x: auto; padding: .75rem; }
summary { cursor: pointer; }
"""
BODY = ("post", "put", "patch")


@router.get("/")
async def root(request: Request) -> Response:
    """Name, version, live graders and where to go on."""
    api = get_api(request)
    live = sorted({info.name for info in await api.registry.list_live()})
    links = {
        "openapi": "/openapi.json",
        "graders": "/v1/graders",
        "ready": "/readyz",
        "metrics": "/metrics",
    }
    if api.settings.docs:
        links = {"docs": "/docs", **links}
    answer = {"name": "gradus", "version": __version__, "graders": live, "links": links}
    return JSONResponse(answer)


async def show_docs(request: Request) -> Response:
    """Show the routes with a command, an example of each request, and the possible answers."""
    document = request.app.openapi()
    return HTMLResponse(render_docs(document, str(request.base_url).rstrip("/")), headers=HEADERS)


def install_docs() -> APIRouter:
    """Return the route of `/docs`."""
    docs = APIRouter(route_class=LeanRoute, include_in_schema=False)
    docs.get("/docs")(show_docs)
    return docs


def render_docs(document: dict[str, Any], url: str) -> str:
    """Return the page of an OpenAPI document, for a service at `url`."""
    sections: list[str] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            sections += _render_operation(path, method, operation, url)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><title>Gradus: REST API</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head><body>",
            f"<h1>Gradus {escape(__version__)}: REST API</h1>",
            f"<p>{_render_text(document['info']['description'])} With API keys, send the header"
            " <code>Authorization: Bearer KEY</code>.</p>",
            *sections,
            "</body></html>",
        ]
    )


def _render_operation(path: str, method: str, operation: dict[str, Any], url: str) -> Iterator[str]:
    """Yield the section of one route."""
    yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
    yield f"<p>{_render_text(operation.get('description', operation.get('summary', '')))}</p>"
    command = f"curl {url}{path}"
    if method == "delete":
        command = f"curl -X DELETE {url}{path}"
    if method in BODY:
        command = f"curl {url}{path} -H 'content-type: application/json' -d @request.json"
    yield f"<pre>{escape(command)}</pre>"
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    for name, example in body.get("examples", {}).items():
        shown = escape(json.dumps(example["value"], indent=2, ensure_ascii=False))
        yield f"<details><summary>request.json for {escape(name)}</summary><pre>{shown}</pre>"
        yield "</details>"
    yield "<details><summary>Answers</summary><ul>"
    for status, response in operation["responses"].items():
        yield f"<li><code>{escape(status)}</code> {_render_text(response['description'])}</li>"
    yield "</ul></details>"


def _render_text(text: str) -> str:
    """Return a text with its code in backticks."""
    parts = escape(text).split("`")
    marked = []
    for index, part in enumerate(parts):
        marked.append(f"<code>{part}</code>" if index % 2 else part)
    return "".join(marked)
