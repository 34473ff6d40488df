"""`serve`: uvicorn around the dashboard, until a signal or the caller stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import uvicorn

from services.dashboard.app import create_app
from services.dashboard.auth import refuse_open_page
from services.dashboard.poller import LiveState
from services.http_server import is_loopback, listener, serve_on, url_of
from services.json_logging import json_lines

SHUTDOWN_S = 2


async def serve(
    runs: Path,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    token: str | None = None,
    allow_anonymous: bool = False,
    stop: asyncio.Event | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; with `stop`, until that is set, and signals are the caller's.

    Those who look need `token`. `on_ready` is called with the URL once it is listening. Raises Misuse for an open
    address without a token, and when it cannot listen.
    """
    refuse_open_page(host, token, allow_anonymous=allow_anonymous)
    watch = LiveState(runs)
    app = create_app(watch, token, only_this_machine=is_loopback(host))
    found = listener(host, port)
    config = uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        lifespan="on",
    )
    if on_ready is not None:
        on_ready(url_of(found))
    with json_lines():
        await serve_on(config, found, stop, watch.end_streams)
