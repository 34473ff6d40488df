"""The first pages of the API: `/` and `/docs`."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from gradus import __version__
from services.api.app import create_app
from services.api.pages import render_docs
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker


def make_client(**settings: bool) -> TestClient:
    app = create_app(MemoryBroker(), ApiSettings(**settings))
    return TestClient(app, base_url="http://127.0.0.1:8000")


def test_the_root_names_the_service_and_where_to_go_on() -> None:
    with make_client() as client:
        answer = client.get("/").json()
        assert (answer["name"], answer["version"], answer["graders"]) == ("gradus", __version__, [])
        for link in answer["links"].values():
            assert client.get(link).status_code in (200, 401), link


def test_the_docs_show_every_route_and_load_nothing() -> None:
    with make_client() as client:
        response = client.get("/docs")
        paths = client.get("/openapi.json").json()["paths"]
    assert response.status_code == 200
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    for path in paths:
        assert f"{path}</code></h2>" in response.text
    assert not re.search(r"<(script|link|img|iframe)\b|@import|url\(", response.text)


def test_the_document_is_built_once_for_the_known_graders() -> None:
    app = create_app(MemoryBroker(), ApiSettings())
    with TestClient(app):
        document = app.openapi()
        assert app.openapi() is document
        known = app.state.api.registry.known
        for name in list(known)[1:]:
            del known[name]
        body = app.openapi()["paths"]["/v1/grade/{grader}"]["post"]["requestBody"]
        assert set(body["content"]["application/json"]["examples"]) == set(known)


def test_the_docs_are_off_on_request() -> None:
    with make_client(docs=False) as client:
        assert client.get("/docs").status_code == 404
        assert "docs" not in client.get("/").json()["links"]


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><b>', "`<i>`"])
def test_what_graders_announce_is_escaped(hostile: str) -> None:
    operation = {
        "description": hostile,
        "requestBody": {
            "content": {"application/json": {"examples": {hostile: {"value": hostile}}}}
        },
        "responses": {"200": {"description": hostile}},
    }
    document = {"info": {"description": hostile}, "paths": {f"/{hostile}": {"post": operation}}}
    page = render_docs(document, "http://127.0.0.1:8000")
    assert "<script" not in page
    assert "<b>" not in page
    assert "<i>" not in page
