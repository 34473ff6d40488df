"""How long a connection is waited for: a head that does not come, an answer that nobody reads. Knows no routes.

The time for a body is the route's to give (`bodies`); a client that leaves is noticed while its answer is awaited.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import h11
from prometheus_client import Gauge
from uvicorn.protocols.http.h11_impl import H11Protocol

from gradus.contract import Problem
from services.api.heads import HeldHeads


class PatientProtocol(H11Protocol):
    """uvicorn's, which closes connections that idle between requests but waits for ever for the rest of a head.

    A client that reuses its connection at the very moment when it is closed loses its request: `keep_alive_s` is longer
    than what clients keep theirs (httpx 5 s, aiohttp 15 s), so that it is they who close.
    """

    def __init__(self, *args: Any, head_timeout_s: float, connections_open: Gauge, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timeout_s = head_timeout_s
        self._connections_open = connections_open
        self._cut: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, HeldHeads(transport, self.loop)))
        self._connections_open.inc()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        self._connections_open.dec()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._stop_watching()  # how long it may idle is uvicorn's to say

    def send_400_response(self, msg: str) -> None:
        """uvicorn's own is plain text, and the route that waits for the rest of the body would answer, too."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        body = Problem(title="Bad Request", status=400, detail=msg).model_dump_json(exclude_none=True).encode()
        headers = [
            ("content-type", "application/problem+json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (h11.Response(status_code=400, headers=headers, reason="Bad Request"), h11.Data(data=body)):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.write(self.conn.send(h11.EndOfMessage()) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """The clock runs from the connection, or the first byte of the next head, to a whole head."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watching()
        elif self._cut is None and not self.transport.is_closing():
            self._cut = self.loop.call_later(self._head_timeout_s, self._cut_off)

    def _stop_watching(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None

    def _cut_off(self) -> None:
        self._cut = None
        if self.transport.get_write_buffer_size():
            self._watch()  # an answer is on its way still: how long that may take is `let_go_of_silent_peers`'s
        else:
            self.transport.abort()


def let_go_of_silent_peers(listener: socket.socket, timeout_s: float) -> None:
    """Connections accepted here end when what was sent to them is not taken for this long; Linux sees to it."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(timeout_s * 1000))
