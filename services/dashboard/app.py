"""`create_app`: the routes of the dashboard, a few lines each. Nothing can be changed through any of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from services.dashboard.auth import ENTER, AuthMiddleware, TokenVerifier, entered
from services.dashboard.document import escaped_json, live_page, page_file, script, style
from services.dashboard.jsonl_tail import Json
from services.dashboard.poller import LiveState
from services.dashboard.prometheus import exposition
from services.dashboard.run import FollowedRun
from services.dashboard.views import detail_of, examples_of, group_of, summary_of, wanted_group

MAX_FORM_BYTES = 4096
WRONG_TOKEN_S = 0.5
"""How long one who gave a wrong token waits for the answer."""


class AsciiJson(JSONResponse):
    """Answers with `escaped_json`."""

    def render(self, content: Any) -> bytes:
        return escaped_json(content).encode()


class Dashboard:
    """What the routes share."""

    def __init__(self, watch: LiveState, verifier: TokenVerifier) -> None:
        self.watch = watch
        self.verifier = verifier
        self.page, self.style, self.script = live_page(), style(), script()
        self.entrance = page_file("enter.html")

    # -------------------------------------------------------------------------------------------------- the page

    async def index(self, request: Request) -> Response:
        return HTMLResponse(self.page)

    async def sheet(self, request: Request) -> Response:
        return Response(self.style, media_type="text/css")

    async def code(self, request: Request) -> Response:
        return Response(self.script, media_type="text/javascript")

    async def enter(self, request: Request) -> Response:
        if self.verifier.is_open:
            return HTMLResponse(self.entrance.replace("{{ trouble }}", "No token is asked for here."))
        if request.method != "POST":
            return HTMLResponse(self.entrance.replace("{{ trouble }}", ""))
        token = await _token_in(request)
        if self.verifier.fits(token):
            return entered(self.verifier)
        await asyncio.sleep(WRONG_TOKEN_S)
        trouble = "That is not the token."
        return HTMLResponse(self.entrance.replace("{{ trouble }}", trouble), 401)

    # -------------------------------------------------------------------------------------------------- the data

    async def runs(self, request: Request) -> Response:
        now = time.time()
        runs = [summary_of(run, now) for run in self.watch.runs.all()]
        told = {"now": now, "folder": self.watch.runs.confined.root.name, "left_out": self.watch.runs.left_out}
        return AsciiJson({**told, "runs": runs})

    async def run(self, request: Request) -> Response:
        run = self._run_in(request)
        return _missing("there is no such run") if run is None else AsciiJson(detail_of(run, time.time()))

    async def samples(self, request: Request) -> Response:
        run = self._run_in(request)
        return _missing("there is no such run") if run is None else AsciiJson(examples_of(run))

    async def group(self, request: Request) -> Response:
        run = self._run_in(request)
        if run is None:
            return _missing("there is no such run")
        try:
            number, step = (_whole(request.query_params.get(name)) for name in ("number", "step"))
        except ValueError:
            return _problem(422, "number and step are whole numbers")
        with_signal = request.query_params.get("signal") == "1"
        group = wanted_group(run.groups, number, step, with_signal=with_signal)
        if group is None:
            return _missing("there is no such group of completions")
        return AsciiJson(group_of(self.watch.runs.confined, run, group, with_signal=with_signal))

    def _run_in(self, request: Request) -> FollowedRun | None:
        return self.watch.runs.get(request.query_params.get("id", ""))

    async def events(self, request: Request) -> Response:
        if self.watch.is_full:
            return _problem(503, "too many pages listen already; close some")
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[bytes]:
        async for news in self.watch.news():
            data = AsciiJson(news).body
            yield b"data: " + bytes(data) + b"\n\n" if news else b": alive\nretry: 2000\n\n"

    # ------------------------------------------------------------------------------------------------ operations

    async def healthz(self, request: Request) -> Response:
        return AsciiJson({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        return Response(exposition(self.watch.runs.all(), time.time()), media_type=CONTENT_TYPE_LATEST)


def create_app(watch: LiveState, token: str | None = None, *, only_this_machine: bool = True) -> Starlette:
    """The page over what `watch` sees. `only_this_machine`: it listens on the loopback address."""
    verifier = TokenVerifier(token)
    dashboard = Dashboard(watch, verifier)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with watch.looking():
            yield

    routes = [
        Route("/", dashboard.index),
        Route(ENTER, dashboard.enter, methods=["GET", "POST"]),
        Route("/style.css", dashboard.sheet),
        Route("/page.js", dashboard.code),
        Route("/api/runs", dashboard.runs),
        Route("/api/run", dashboard.run),
        Route("/api/group", dashboard.group),
        Route("/api/samples", dashboard.samples),
        Route("/events", dashboard.events),
        Route("/healthz", dashboard.healthz),
        Route("/metrics", dashboard.metrics),
    ]
    entrance = Middleware(AuthMiddleware, verifier=verifier, only_this_machine=only_this_machine)
    return Starlette(routes=routes, middleware=[entrance], lifespan=lifespan)


def _problem(status: int, detail: str) -> Response:
    body: Json = {"type": "about:blank", "title": "Refused", "status": status, "detail": detail}
    return JSONResponse(body, status, media_type="application/problem+json")


def _missing(detail: str) -> Response:
    return _problem(404, detail)


def _whole(text: str | None) -> int | None:
    """Raises ValueError for what is no number of an ordinary length."""
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise ValueError(text[:20])
    return int(text)


async def _token_in(request: Request) -> str:
    """What was entered; empty for a form that is too long or none."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_FORM_BYTES:
            return ""
    try:
        return parse_qs(data.decode("utf-8"), max_num_fields=4).get("token", [""])[0].strip()
    except ValueError:
        return ""
