"""`serve`: uvicorn around the app, until a signal or the caller stops it. Starts no worker: the CLI does."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import uvicorn
from fastapi import FastAPI

from gradus.errors import Misuse
from services.api.app import create_app
from services.api.auth import refuse_open_service
from services.api.patience import PatientProtocol, let_go_of_silent_peers
from services.api.settings import ApiSettings
from services.broker import Broker
from services.broker.open import open_broker
from services.log_lines import json_lines


class _Server(uvicorn.Server):
    """Stops on a signal and returns. uvicorn's own would then raise the signal again, before others could clean up."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _StoppedServer(uvicorn.Server):
    """Leaves signals alone: somebody else says when to stop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    broker: Broker | str | None,
    host: str | None = None,
    port: int | None = None,
    *,
    settings: ApiSettings | None = None,
    stop: asyncio.Event | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; with `stop`, until that is set, and signals are the caller's.

    Requests under way may finish for `settings.shutdown_s`; cancelling this stops in the same way.
    `broker`: one that stays the caller's; or a URL, or None for a queue inside this process, and then it is closed at
    the end. `host` and `port` go before the settings. `on_ready` is called with the URL once it is listening.
    Raises Misuse for an open address without keys, and when it cannot listen.
    """
    settings = settings or ApiSettings()
    host, port = settings.host if host is None else host, settings.port if port is None else port
    refuse_open_service(host, settings)
    used = open_broker(broker) if broker is None or isinstance(broker, str) else broker
    try:
        listener = _listener(host, port)
        let_go_of_silent_peers(listener, settings.send_timeout_s)
        if on_ready is not None:
            on_ready(_url_of(listener))
        with json_lines():
            await _run(_config(create_app(used, settings), settings), listener, stop)
    finally:
        if used is not broker:
            await used.close()


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise Misuse(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    # Connections inherit it. asyncio's own setting passes over them, because `create_server` names no protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _config(app: FastAPI, settings: ApiSettings) -> uvicorn.Config:
    protocol = partial(
        PatientProtocol,
        head_timeout_s=settings.head_timeout_s,
        connections_open=app.state.api.metrics.connections,
    )
    return uvicorn.Config(
        app,
        http=cast(type[asyncio.Protocol], protocol),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=settings.shutdown_s,
        lifespan="on",
    )


async def _run(config: uvicorn.Config, listener: socket.socket, stop: asyncio.Event | None) -> None:
    server = _Server(config) if stop is None else _StoppedServer(config)
    serving = asyncio.create_task(server.serve([listener]))
    stopping = asyncio.create_task((stop or asyncio.Event()).wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        server.should_exit = True
        await serving
