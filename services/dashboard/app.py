"""Routes of the dashboard. They read files; `queues` forwards requests of operators."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from services.dashboard.auth import (
    COOKIE,
    COOKIE_AGE_S,
    ENTER,
    AuthMiddleware,
    TokenVerifier,
    refuse_open_page,
    render_problem,
)
from services.dashboard.document import (
    build_script,
    build_style,
    encode_json,
    read_page_file,
    render_live_page,
)
from services.dashboard.prometheus import render_metrics
from services.dashboard.queues import METHODS, Queues, read_bounded_body
from services.dashboard.report import Compare, build_changes
from services.dashboard.run import FollowedRun
from services.dashboard.runs import Runs
from services.dashboard.samples import select_samples
from services.dashboard.views import build_detail, build_group, build_summary
from services.http_server import format_url, is_loopback, open_listener, serve_on

WRONG_TOKEN_S = 0.5  # seconds before the response to a wrong token
SHUTDOWN_S = 2


async def serve(
    runs: Path,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    token: str | None = None,
    allow_anonymous: bool = False,
    compare: Compare | None = None,
    queues: Queues | None = None,
    stop: asyncio.Event,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until `stop` is set; signals are the caller's.

    Readers need `token`. `compare` computes what changed between two evaluations. With `queues`,
    the page shows and changes them. `on_ready` is called with the URL once it is listening. Raises
    Misuse for an open address without a token, and when it cannot listen.
    """
    refuse_open_page(host, token, allow_anonymous=allow_anonymous)
    watch = Runs(runs)
    server_socket = open_listener(host, port)
    config = uvicorn.Config(
        create_app(watch, token, compare, queues, only_this_machine=is_loopback(host)),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        lifespan="on",
    )
    if on_ready is not None:
        on_ready(format_url(server_socket))
    await serve_on(config, [server_socket], stop)


def create_app(
    watch: Runs,
    token: str | None = None,
    compare: Compare | None = None,
    queues: Queues | None = None,
    *,
    only_this_machine: bool = True,
) -> Starlette:
    """Return the dashboard of the runs of `watch`. `only_this_machine`: it listens on the loopback
    address."""
    verifier = TokenVerifier(token)
    dashboard = _Dashboard(watch, verifier, compare, has_queues=queues is not None)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with watch.poll_in_background():
            yield

    async def handle_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return render_problem(error.status_code, error.detail)

    fixed = {
        "/": HTMLResponse(render_live_page()),
        "/style.css": Response(build_style(), media_type="text/css"),
        "/page.js": Response(build_script(), media_type="text/javascript"),
        "/healthz": JSONResponse({"status": "ok"}),
    }
    routes = [
        *(Route(path, response, methods=["GET"]) for path, response in fixed.items()),
        Route(ENTER, dashboard.enter, methods=["GET", "POST"]),
        Route("/api/runs", dashboard.get_runs),
        Route("/api/run", dashboard.get_run),
        Route("/api/group", dashboard.get_group),
        Route("/api/samples", dashboard.get_samples),
        Route("/api/changes", dashboard.get_changes),
        Route("/metrics", dashboard.get_metrics),
    ]
    if queues is not None:
        routes.append(Route("/api/queues{path:path}", queues.handle_request, methods=METHODS))
    entrance = Middleware(AuthMiddleware, verifier=verifier, only_this_machine=only_this_machine)
    return Starlette(
        routes=routes,
        middleware=[entrance],
        lifespan=lifespan,
        exception_handlers={HTTPException: handle_http_error},
    )


class _AsciiJson(JSONResponse):
    def render(self, content: Any) -> bytes:
        return encode_json(content).encode()


class _Dashboard:
    def __init__(
        self, watch: Runs, verifier: TokenVerifier, compare: Compare | None, *, has_queues: bool
    ) -> None:
        self.watch = watch
        self.verifier = verifier
        self.compare = compare
        self.has_queues = has_queues
        self.comparing = asyncio.Lock()  # one comparison at a time: each takes a second of CPU

    async def enter(self, request: Request) -> Response:
        trouble = ""
        status = 200
        if self.verifier.is_open:
            trouble = "This dashboard needs no token."
        elif request.method == "POST":
            if self.verifier.is_valid_token(await _read_token(request)):
                response = RedirectResponse("/", 303)
                response.set_cookie(
                    COOKIE,
                    self.verifier.session,
                    max_age=COOKIE_AGE_S,
                    httponly=True,
                    samesite="strict",
                )
                return response
            await asyncio.sleep(WRONG_TOKEN_S)
            trouble = "That is not the token."
            status = 401
        return HTMLResponse(read_page_file("enter.html").replace("{{ trouble }}", trouble), status)

    async def get_runs(self, request: Request) -> Response:
        """Return the runs that changed since a version of the list, and the ids of all."""
        since = _parse_whole_number(request, "since") or 0
        now = time.time()
        runs = self.watch.list_runs()
        return _AsciiJson(
            {
                "now": now,
                "version": self.watch.version,
                "folder": self.watch.confined.root.name,
                "left_out": self.watch.left_out,
                "has_queues": self.has_queues,
                "ids": [run.id for run in runs],
                "runs": [build_summary(run, now) for run in runs if run.version > since],
            }
        )

    async def get_run(self, request: Request) -> Response:
        return _AsciiJson(build_detail(self._require_run(request), time.time()))

    async def get_samples(self, request: Request) -> Response:
        run = self._require_run(request)
        return _AsciiJson(select_samples(run.confined, run.evaluations.select_before_and_after()))

    async def get_changes(self, request: Request) -> Response:
        sides = []
        for run in (self._require_run(request, "before"), self._require_run(request, "after")):
            measured = run.evaluations.list_by_step()
            if not measured:
                raise HTTPException(404, "there is nothing measured to compare")
            sides.append(replace(measured[-1], name=run.id))
        async with self.comparing:
            return _AsciiJson(
                await asyncio.to_thread(build_changes, self.watch.confined, sides, self.compare)
            )

    async def get_group(self, request: Request) -> Response:
        run = self._require_run(request)
        number = _parse_whole_number(request, "number")
        step = _parse_whole_number(request, "step")
        if step is not None:
            group = run.groups.find_at_step(step)
        elif number is not None:
            group = run.groups.get(number)
        else:
            group = run.groups.get_newest()
        if group is None:
            raise HTTPException(404, "there is no such group of completions")
        return _AsciiJson(build_group(self.watch.confined, run, group))

    def _require_run(self, request: Request, name: str = "id") -> FollowedRun:
        run = self.watch.get(request.query_params.get(name, ""))
        if run is None:
            raise HTTPException(404, "there is no such run")
        return run

    async def get_metrics(self, request: Request) -> Response:
        return Response(
            render_metrics(self.watch.list_runs(), time.time()), media_type=CONTENT_TYPE_LATEST
        )


def _parse_whole_number(request: Request, name: str) -> int | None:
    """Return a query parameter, or None. Raises HTTPException (422) for a text that is no
    number."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,15}", text):
        raise HTTPException(422, f"{name} is a whole number")
    return int(text)


async def _read_token(request: Request) -> str:
    """Return the token of the form; empty for a form that is too long or has none."""
    try:
        form = parse_qs((await read_bounded_body(request)).decode("utf-8"), max_num_fields=4)
    except (ValueError, HTTPException):
        return ""
    return form.get("token", [""])[0].strip()
