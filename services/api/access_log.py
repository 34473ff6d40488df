"""Access log: one line, one count and, where requests are traced, one span per request; and the
last exception handler. Logs no body, header or raw path."""

from __future__ import annotations

import asyncio
import logging
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradus.errors import Fault, InternalFault, boundary
from services.api.metrics import Metrics
from services.api.problems import CLIENT_CLOSED_REQUEST, problem, unavailable
from services.json_logging import where
from services.tracing import Spans

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
log = logging.getLogger("gradus.api")


class AccessLogMiddleware:
    def __init__(self, app: ASGIApp, metrics: Metrics, spans: Spans | None) -> None:
        self._app = app
        self._metrics = metrics
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._spans is None or not scope["path"].startswith("/v1/"):
            await self._answer(scope, receive, send)
        else:  # probes and scrapes get no span
            with self._spans.request(Headers(scope=scope)) as fields:
                fields |= await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> dict[str, str | int]:
        """Run the application. Returns the fields of the log line."""
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
            # The server stops, and this request took longer than its grace period: no defect.
            if not statuses:
                answer = unavailable("the service is stopping: ask again", retry_after_s=1)
                await answer(scope, receive, noting)
        seconds = time.monotonic() - started_at
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = route_of(scope)
        status = statuses[0] if statuses else CLIENT_CLOSED_REQUEST
        self._metrics.request(method, route, str(status), seconds)
        fields: dict[str, str | int] = {"method": method, "route": route, "status": status}
        fields |= scope.get("state", {}).get("log_fields", {})
        log.info("request", extra={"fields": fields | {"ms": round(seconds * 1000, 1)}})
        return fields


def route_of(scope: Scope) -> str:
    """The template of the route, never the path: paths are the caller's."""
    return str(getattr(scope.get("route"), "path", "unmatched"))
