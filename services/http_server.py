"""Listening socket and uvicorn server of every HTTP service."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from gradus.errors import Misuse


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a service that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listener(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one. Raises Misuse when it cannot listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise Misuse(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    # Connections inherit it. asyncio's own setting passes over them, because `create_server` names
    # no protocol.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def url_of(found: socket.socket) -> str:
    host, port = found.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve_on(
    config: uvicorn.Config,
    found: socket.socket,
    stop: asyncio.Event,
    on_shutdown: Callable[[], None] = lambda: None,
) -> None:
    """Serve until `stop` is set.

    `on_shutdown` is called before requests under way are waited for; it must end endless streams.
    """
    server = _Server(config)
    serving = asyncio.create_task(server.serve([found]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        on_shutdown()
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """Leaves signals to the caller; uvicorn's own raises them again before the caller can clean
    up."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
