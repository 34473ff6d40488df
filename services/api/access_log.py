"""Access log: one line and one count per request, and the last exception handler. Logs no body, header or raw path."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradus.errors import Fault, InternalFault, boundary
from services.api.metrics import Metrics
from services.api.problems import problem
from services.json_logging import where

log = logging.getLogger("gradus.api")


class AccessLogMiddleware:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        statuses: list[int] = []

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        started_at = time.monotonic()
        try:
            with boundary(InternalFault, "the API"):
                await self._app(scope, receive, noting)
        except Fault as fault:
            log.error("defect", extra={"fields": {"route": route_of(scope), "error": where(fault)}})
            if not statuses:
                answer = problem(500, "the service failed on this request; its log says where")
                await answer(scope, receive, noting)
        except asyncio.CancelledError:
            # The server stops, and this request was under way for longer than it waits. That is no defect.
            if not statuses:
                answer = problem(503, "the service is stopping: ask again", headers={"retry-after": "1"})
                await answer(scope, receive, noting)
        finally:
            self._note(scope, statuses, time.monotonic() - started_at)

    def _note(self, scope: Scope, statuses: list[int], seconds: float) -> None:
        status = statuses[0] if statuses else 499
        self._metrics.request(scope["method"], route_of(scope), status, seconds)
        fields: dict[str, Any] = {
            "method": scope["method"],
            "route": route_of(scope),
            "status": status,
            "ms": round(seconds * 1000, 1),
        }
        log.info("request", extra={"fields": fields | fields_of(scope)})


def route_of(scope: Scope) -> str:
    """The template of the route, never the path: paths are the caller's."""
    return str(getattr(scope.get("route"), "path", "unmatched"))


def fields_of(scope: Scope) -> dict[str, str | int]:
    """What the route found worth telling of its request."""
    fields: dict[str, str | int] = scope.get("state", {}).get("log_fields", {})
    return fields
