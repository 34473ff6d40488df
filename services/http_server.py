"""Listening socket and uvicorn server of every HTTP service."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from gradus.errors import Misuse


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a service that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_host_name(header: str) -> str:
    """Return the name in a header `Host`, without port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 is any free one. Raises Misuse when it cannot listen
    there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise Misuse(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    # Connections inherit it. asyncio's own setting passes over them, because `create_server` names
    # no protocol.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def format_url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve_on(
    config: uvicorn.Config, listeners: list[socket.socket], stop: asyncio.Event
) -> None:
    """Serve on these sockets until `stop` is set."""
    server = _Server(config)
    serving = asyncio.create_task(server.serve(listeners))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """Leaves signals to the caller; uvicorn's own raises them again before the caller can clean
    up."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
