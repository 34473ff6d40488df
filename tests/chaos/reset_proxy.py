"""A TCP proxy in a thread that resets its connections (RST) when `reset` is called."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.ports import free_port

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends RST."""


class ResetProxy:
    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.StreamWriter] = set()

    @contextmanager
    def running(self) -> Iterator[ResetProxy]:
        listening = threading.Event()
        stop = asyncio.Event()

        async def serve() -> None:
            async with await asyncio.start_server(self._forward, "127.0.0.1", self.port):
                listening.set()
                await stop.wait()
                self._reset(1.0)

        thread = threading.Thread(target=self._loop.run_until_complete, args=(serve(),))
        thread.start()
        listening.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            thread.join()
            self._loop.close()

    def reset(self, share: float) -> None:
        """Reset this share of the open connections, chosen by chance."""
        self._loop.call_soon_threadsafe(self._reset, share)

    def _reset(self, share: float) -> None:
        for writer in list(self._connections):
            if random.random() < share:
                connection = writer.get_extra_info("socket")
                with suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._connections.add(writer)
        try:
            await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))
        finally:
            self._connections.discard(writer)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
