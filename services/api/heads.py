"""A transport that sends the head of an answer together with what follows it. Knows no HTTP beyond where a head begins.

uvicorn writes head and body by themselves: two packets, and whoever reads them is woken up twice.
"""

from __future__ import annotations

import asyncio
from typing import Any


class HeldHeads:
    """In place of `transport`, whose other methods it has as well."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._head and data.startswith(b"HTTP/1."):
            self._head = data
            self._loop.call_soon(self._let_go)  # of a stream, whose first line may be long in coming
        else:
            head, self._head = self._head, b""
            self._transport.write(head + data if head else data)

    def close(self) -> None:
        self._let_go()
        self._transport.close()

    def _let_go(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)
