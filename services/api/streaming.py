"""Long responses: work is cancelled when the client disconnects; NDJSON lines are sent as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")
Produce = Callable[[Callable[[bytes], None]], Coroutine[Any, Any, None]]


async def cancel_on_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None if the client disconnects before, and then `work` was cancelled.

    The body must have been read: what `receive` brings after it is the disconnect.
    """
    here = asyncio.current_task()
    assert here is not None
    n_cancelled = here.cancelling()

    def leave(_: asyncio.Task[None]) -> None:
        here.cancel()

    watching = asyncio.create_task(_disconnected(receive))
    watching.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        # As in asyncio.timeout: somebody else's cancellation goes on.
        if watching.done() and here.uncancel() <= n_cancelled:
            return None
        raise
    finally:
        watching.remove_done_callback(leave)
        watching.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class NdjsonStream(Response):
    """Newline-delimited JSON, each line sent when it is there. Starlette's own stream notices a leaving client late.

    While there is none an empty line is sent now and then, so that the client can tell slow from dead.
    """

    media_type = "application/x-ndjson"

    def __init__(self, produce: Produce, heartbeat_s: float) -> None:
        """`produce(put)` calls `put` with each line, its newline included, and returns after the last."""
        super().__init__(headers={"x-accel-buffering": "no"})  # a proxy that gathers lines would hide both
        del self.headers["content-length"]
        self._produce = produce
        self._heartbeat_s = heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await cancel_on_disconnect(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        producing = asyncio.create_task(self._produce(lines.put_nowait))
        producing.add_done_callback(lambda _: lines.put_nowait(b""))
        try:
            await self._send_lines(lines, send)
            await producing
        finally:
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)
        await send({"type": "http.response.body", "body": b""})

    async def _send_lines(self, lines: asyncio.Queue[bytes], send: Send) -> None:
        """Until the empty text, which is the end. Lines that are there together are sent together."""
        ended = False
        while not ended:
            ready = [await self._next(lines)]
            while not lines.empty():
                ready.append(lines.get_nowait())
            ended = ready[-1] == b""
            await send({"type": "http.response.body", "body": b"".join(ready), "more_body": True})

    async def _next(self, lines: asyncio.Queue[bytes]) -> bytes:
        try:
            async with asyncio.timeout(self._heartbeat_s):
                return await lines.get()
        except TimeoutError:
            return b"\n"
