"""The socket on which the API listens."""

from __future__ import annotations

import socket

from services.api.serving import _listener


def test_small_answers_leave_at_once() -> None:
    """Else Nagle's algorithm keeps the body back until the client confirms the head, which it delays by 40 ms."""
    with _listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
