"""A WebSocket over a bare socket. It answers pings and measures nothing."""

from __future__ import annotations

import asyncio

from wsproto import ConnectionType, WSConnection
from wsproto.events import Event, Ping, Request


class WebSocketClient:
    """One WebSocket of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._socket = WSConnection(ConnectionType.CLIENT)

    async def open(self, path: str, authorization: str = "Bearer none") -> Event:
        """Return what the server answers to the handshake."""
        headers = [(b"Authorization", authorization.encode())]
        await self.send(Request("localhost", path, extra_headers=headers))
        return await self.receive()

    async def send(self, event: Event) -> None:
        self._writer.write(self._socket.send(event))
        await self._writer.drain()

    async def send_many(self, event: Event, n_times: int) -> None:
        self._writer.write(self._socket.send(event) * n_times)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()

    async def receive(self) -> Event:
        """Return the next event but pings. The end of the stream is an event too."""
        while True:
            for event in self._socket.events():
                if not isinstance(event, Ping):
                    return event
                await self.send(event.response())
            self._socket.receive_data(await self._reader.read(65_536) or None)
