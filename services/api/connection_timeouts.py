"""Timeouts and bounds of connections: closes clients that send request headers too slowly, stop
reading the response, or send a great many tiny chunks or frames, and, when there are too many
connections, the one that has been idle longest.

`parse` has the timeout of request bodies. docs/operate/api.md promises all three
(Limits). The timer costs less than 1 % of the CPU of a request with one submission.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
from prometheus_client import Gauge
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto import events

from gradus.rest import Problem

MAX_HEADER_BYTES = 64 * 1024
SMALL_BYTES = 1024
MAX_SMALL_CHUNKS = 4096
"""Chunks of less than `SMALL_BYTES` in the body of one request: each takes 6 us in the event loop,
and 256 KiB of them are read in one turn."""
TOO_MANY_CHUNKS = (
    f"a chunked body has more than {MAX_SMALL_CHUNKS} chunks of less than {SMALL_BYTES} bytes: send"
    " longer ones, or `Content-Length`"
)
MAX_SMALL_FRAMES_PER_S = 2500
"""Frames of less than `SMALL_BYTES`, pings included, on one WebSocket: each takes 9 to 13 us."""


class _ChunkBoundedConnection(h11.Connection):
    n_small_chunks = 0

    def next_event(self) -> Any:
        """See h11. Raises RemoteProtocolError past `MAX_SMALL_CHUNKS`, too."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.n_small_chunks = 0
        elif isinstance(event, h11.Data) and event.chunk_start and event.chunk_end:
            self.n_small_chunks += len(event.data) < SMALL_BYTES
            if self.n_small_chunks > MAX_SMALL_CHUNKS:
                raise h11.RemoteProtocolError(TOO_MANY_CHUNKS)
        return event


class HeaderTimeoutProtocol(H11Protocol):
    """uvicorn's protocol with a timeout for header sections, for which uvicorn waits for ever.

    uvicorn's own keep-alive timeout applies between requests. It must be longer than the client's
    (httpx 5 s, aiohttp 15 s): a request that a client sends at the moment when the server closes
    the connection is lost.
    """

    conn: _ChunkBoundedConnection

    def __init__(
        self,
        *args: Any,
        header_timeout_s: float,
        connections_open: Gauge,
        max_connections: int,
        idle: dict[HeaderTimeoutProtocol, None],
        **options: Any,
    ) -> None:
        """`idle`: the connections without a request under way, in the order in which they became
        so."""
        super().__init__(*args, **options)
        self.conn = _ChunkBoundedConnection(h11.SERVER, MAX_HEADER_BYTES)
        self._header_timeout_s = header_timeout_s
        self._connections_open = connections_open
        self._max_connections = max_connections
        self._idle = idle
        self._timer: asyncio.TimerHandle | None = None
        self._is_upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connections_open.inc()
        self._idle[self] = None
        if len(self.connections) > self._max_connections:
            oldest = next(iter(self._idle))  # this one, where all others have a request under way
            del self._idle[oldest]
            oldest.transport.abort()
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._idle.pop(self, None)
        self._connections_open.dec()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_timer()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to the WebSocket's protocol: `connection_lost` of this one will
        not be called."""
        if not all(value.isascii() for name, value in self.headers if name == b"host"):
            self.send_400_response("`Host` must be ASCII")  # wsproto's decoder would raise
            return
        super().handle_websocket_upgrade(event)
        self._is_upgraded = True
        self._stop_timer()
        self._idle.pop(self, None)
        self._connections_open.dec()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._idle[self] = None
        self._stop_timer()  # from here uvicorn's keep-alive timeout applies

    def send_400_response(self, msg: str) -> None:
        """uvicorn's own is plain text, and the route that waits for the rest of the body would
        respond, too."""
        if self.conn.n_small_chunks > MAX_SMALL_CHUNKS:
            msg = TOO_MANY_CHUNKS
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        body = (
            Problem(title="Bad Request", status=400, detail=msg)
            .model_dump_json(exclude_none=True)
            .encode()
        )
        headers = [
            ("content-type", "application/problem+json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason="Bad Request"),
            h11.Data(data=body),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.write(self.conn.send(h11.EndOfMessage()) or b"")
        self.transport.close()

    def _update_timer(self) -> None:
        """The timer runs from the connection, or the first byte of the next header section, to the
        section's end."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
            self._idle.pop(self, None)
        elif self._timer is None and not self._is_upgraded and not self.transport.is_closing():
            self._timer = self.loop.call_later(self._header_timeout_s, self._handle_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _handle_timeout(self) -> None:
        self._timer = None
        if self.transport.get_write_buffer_size():
            self._update_timer()  # a response is still being sent: `set_send_timeout` limits that
        else:
            self.transport.abort()


class _TooManyFrames(Exception):
    pass


class BoundedWebSocketProtocol(WSProtocol):
    """uvicorn's protocol, which closes a connection that sends more than
    `MAX_SMALL_FRAMES_PER_S`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._n_small_frames = 0
        self._counted_until = 0.0

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except _TooManyFrames:
            while not self.queue.empty():  # messages that the session has not received
                self.queue.get_nowait()
            reason = f"more than {MAX_SMALL_FRAMES_PER_S} small frames in a second"
            self.transport.write(self.conn.send(events.CloseConnection(1008, reason)))
            self.transport.close()

    def handle_message(self, event: events.TextMessage | events.BytesMessage) -> None:
        if event.frame_finished and len(event.data) < SMALL_BYTES:
            self._count_frame()
        super().handle_message(event)

    def handle_ping(self, event: events.Ping) -> None:
        self._count_frame()
        super().handle_ping(event)

    def handle_pong(self, event: events.Pong) -> None:
        self._count_frame()
        super().handle_pong(event)

    def _count_frame(self) -> None:
        """Raise _TooManyFrames past the bound."""
        now = self.loop.time()
        if now >= self._counted_until:
            self._n_small_frames = 0
            self._counted_until = now + 1
        self._n_small_frames += 1
        if self._n_small_frames > MAX_SMALL_FRAMES_PER_S:
            raise _TooManyFrames


def set_send_timeout(listener: socket.socket, timeout_s: float) -> None:
    """Close accepted connections whose peer acknowledges no sent data for `timeout_s` (Linux:
    TCP_USER_TIMEOUT)."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(timeout_s * 1000))
