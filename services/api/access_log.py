"""Access log: one line and one count per request, and the last exception handler. Logs no body,
header or raw path."""

from __future__ import annotations

import asyncio
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradus.errors import Fault, InternalFault, boundary
from services.api.metrics import Metrics
from services.api.problems import CLIENT_CLOSED_REQUEST, problem
from services.json_logging import where

log = logging.getLogger("gradus.api")


class AccessLogMiddleware:
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
            # The server stops, and this request took longer than its grace period. That is no
            # defect.
            if not statuses:
                answer = problem(
                    503, "the service is stopping: ask again", headers={"retry-after": "1"}
                )
                await answer(scope, receive, noting)
        finally:
            seconds, status = (
                time.monotonic() - started_at,
                statuses[0] if statuses else CLIENT_CLOSED_REQUEST,
            )
            method, route = scope["method"], route_of(scope)
            self._metrics.request(method, route, status, seconds)
            fields = {
                "method": method,
                "route": route,
                "status": status,
                "ms": round(seconds * 1000, 1),
            }
            log.info("request", extra={"fields": fields | fields_of(scope)})


def route_of(scope: Scope) -> str:
    """The template of the route, never the path: paths are the caller's."""
    return str(getattr(scope.get("route"), "path", "unmatched"))


def fields_of(scope: Scope) -> dict[str, str | int]:
    """Fields that the route added to the log line of its request."""
    fields: dict[str, str | int] = scope.get("state", {}).get("log_fields", {})
    return fields
