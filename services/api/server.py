"""`serve`: runs the app in uvicorn until the caller stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from gradus.errors import Misuse
from services.api.app import create_app
from services.api.connection_timeouts import (
    BoundedWebSocketProtocol,
    HeaderTimeoutProtocol,
    set_send_timeout,
)
from services.api.settings import ApiSettings
from services.api.state import Api
from services.broker import Broker
from services.http_server import format_url, is_loopback, open_listener, serve_on
from services.open_files import raise_open_files

# Open files of an API process besides connections of clients: Redis, sockets, libraries.
RESERVED_FILES = 128


async def serve(
    broker: Broker,
    host: str,
    port: int,
    *,
    settings: ApiSettings | None = None,
    stop: asyncio.Event,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until `stop` is set; signals are the caller's.

    Requests under way may finish for `settings.shutdown_grace_s`; cancelling this stops in the same
    way. `on_ready` is called with the URL once it is listening. Raises Misuse for an open address
    without keys, for too few open files, and when it cannot listen.
    """
    settings = settings or ApiSettings()
    refuse_open_service(host, settings)
    max_connections = raise_open_files() - RESERVED_FILES
    app = create_app(broker, settings)
    api: Api = app.state.api
    api.busy_connections.max_connections = max_connections
    if api.allowed_hosts is None and is_loopback(host) and not api.keys.load_current():
        # A page that a browser here loaded under another name could send requests (DNS rebinding).
        api.allowed_hosts = is_loopback
    protocol = partial(
        HeaderTimeoutProtocol,
        header_timeout_s=settings.header_timeout_s,
        connections_open=api.metrics.connections,
        max_connections=max_connections,
        idle={},
    )
    if settings.nemo_gym_ports and "nemo_gym" not in settings.adapters:
        raise Misuse(
            "a port for NeMo Gym needs the adapter: `--adapters nemo_gym` or"
            " GRADUS_API_ADAPTERS=nemo_gym"
        )
    served: ASGIApp = app
    with ExitStack() as sockets:
        main_socket = sockets.enter_context(open_listener(host, port))
        listeners = [main_socket]
        graders = {}
        for grader, root_port in settings.nemo_gym_ports:
            root = sockets.enter_context(open_listener(host, root_port))
            listeners.append(root)
            graders[root.getsockname()[1]] = grader
        if graders:
            from services.api.adapters.nemo_gym import serve_at_roots

            failure_rows = settings.nemo_gym_faults == "row"
            served = serve_at_roots(app, graders, failure_rows)
        for sock in listeners:
            set_send_timeout(sock, settings.send_timeout_s)
        config = uvicorn.Config(
            served,
            http=cast(type[asyncio.Protocol], protocol),
            ws=BoundedWebSocketProtocol if "openenv" in settings.adapters else "none",
            ws_per_message_deflate=False,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=settings.keep_alive_s,
            timeout_graceful_shutdown=settings.shutdown_grace_s,
            lifespan="on",
        )
        if on_ready is not None:
            on_ready(format_url(main_socket))
        await serve_on(config, listeners, stop)


def refuse_open_service(host: str, settings: ApiSettings) -> None:
    """Raise Misuse for a service without keys that other machines could reach."""
    if settings.read_keys() or settings.allow_anonymous or is_loopback(host):
        return
    raise Misuse(
        f"refusing to serve on {host or 'every address'} without API keys: every client could run"
        " code here. Make a key with `gradus keys new NAME` and name the file that holds its line"
        " in GRADUS_API_KEYS_FILE, or bind to 127.0.0.1, or, inside a network that is closed"
        " already (a compose network without published ports), set GRADUS_API_ALLOW_ANONYMOUS=true"
    )
