"""The socket on which services listen."""

from __future__ import annotations

import socket

from services.http_server import open_listener


def test_small_answers_leave_at_once() -> None:
    """Else Nagle's algorithm keeps the body back until the client confirms the head, which it
    delays by 40 ms."""
    with open_listener("127.0.0.1", 0) as found, socket.create_connection(found.getsockname()):
        accepted, _ = found.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
