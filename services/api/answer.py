"""Fifth step of a request: its answer, with all results in one response, or with each as a line of
NDJSON as soon as it exists. `problems` has the answers to requests that fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from fastapi import Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gradus.contract import Faulted, Graded
from services.api.dispatch import Batch, GradingDispatcher
from services.api.state import get_api

# Seconds for which the first line of a stream waits for others: each write costs a client 0.4 ms of
# CPU.
GATHER_S = 0.015


def render_json(
    model: BaseModel, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(model.model_dump_json(), status, headers=headers, media_type="application/json")


async def render_results(request: Request, results: Sequence[Graded | Faulted]) -> Response:
    """Return the response with all results of a request: a `GradeResponse`."""
    texts: list[str] = []
    async for part in get_api(request).dispatcher.turns.divide(results):
        texts += [result.model_dump_json() for result in part]
    return Response(f'{{"results":[{",".join(texts)}]}}', media_type="application/json")


async def run_while_connected(
    receive: Receive,
    dispatcher: GradingDispatcher,
    batch: Batch,
    work: Coroutine[Any, Any, None],
) -> None:
    """Run `work` until it ends or the client disconnects; then withdraw the jobs of `batch` without
    a result.

    The body must have been read: after it, `receive` returns only the disconnect.
    """

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        connected.reschedule(0)

    try:
        async with asyncio.timeout(None) as connected:
            watching = asyncio.create_task(wait_for_disconnect())
            try:
                await work
            finally:
                watching.cancel()
    except TimeoutError:
        if not connected.expired():
            raise
    finally:
        await dispatcher.cancel(batch)


async def collect_results(batch: Batch, request: Request) -> list[Graded | Faulted]:
    """Return one result per submission, in order. Raises QueueFault, and ClientDisconnect."""
    dispatcher = get_api(request).dispatcher
    results: dict[str, Graded | Faulted] = {}
    work = dispatcher.settle(batch, lambda result: results.update({result.id: result}))
    await run_while_connected(request.receive, dispatcher, batch, work)
    if len(results) < len(batch.submission_ids):
        raise ClientDisconnect
    return [results[submission_id] for submission_id in batch.submission_ids]


class NdjsonStream(Response):
    """One result per line, sent as soon as it exists. (Starlette's own stream notices a disconnect
    late.)

    After `heartbeat_s` seconds without a result an empty line is sent, so that the client can tell
    a slow service from a dead one.
    """

    media_type = "application/x-ndjson"

    def __init__(self, dispatcher: GradingDispatcher, batch: Batch, heartbeat_s: float) -> None:
        super().__init__(
            headers={"x-accel-buffering": "no"}
        )  # a proxy that buffers lines would delay both
        del self.headers["content-length"]
        self._dispatcher = dispatcher
        self._batch = batch
        self._heartbeat_s = heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await run_while_connected(receive, self._dispatcher, self._batch, self._send(send))

    async def _send(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        lines = bytearray()
        lines_ready = asyncio.Event()

        def deliver(result: Graded | Faulted) -> None:
            lines.extend(result.model_dump_json().encode() + b"\n")
            lines_ready.set()

        # The status has been sent: a fault of the broker goes to every item.
        settling = asyncio.create_task(self._dispatcher.settle_or_fail(self._batch, deliver))
        settling.add_done_callback(lambda _: lines_ready.set())
        try:
            while lines or not settling.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._heartbeat_s):
                        await lines_ready.wait()
                if lines:
                    await asyncio.wait([settling], timeout=GATHER_S)
                lines_ready.clear()
                chunk = bytes(lines) or b"\n" * (not settling.done())
                lines.clear()
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await settling
        finally:
            settling.cancel()
            await asyncio.gather(settling, return_exceptions=True)
        await send({"type": "http.response.body", "body": b""})
