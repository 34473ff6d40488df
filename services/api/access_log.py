"""Access log: one line, one count and, where requests are traced, one span per request; its id; and
the last exception handler. Of what a caller sends, only a request id is logged."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradus.errors import Fault, InternalFault, wrap_exceptions
from services.api.metrics import Metrics
from services.api.problems import CLIENT_CLOSED_REQUEST, build_problem, build_unavailable
from services.json_logging import describe_error
from services.tracing import Spans

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
REQUEST_ID_HEADER = "x-request-id"
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
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
            await self._handle_request(scope, receive, send)
        else:  # probes and scrapes get no span
            with self._spans.record_request(Headers(scope=scope)) as fields:
                fields |= await self._handle_request(scope, receive, send)

    async def _handle_request(
        self, scope: Scope, receive: Receive, send: Send
    ) -> dict[str, str | int]:
        """Run the application. Returns the fields of the log line."""
        statuses: list[int] = []
        request_id = get_request_id(scope)

        async def send_and_record(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        started_at = time.monotonic()
        try:
            with wrap_exceptions(InternalFault, "the API"):
                await self._app(scope, receive, send_and_record)
        except Fault as fault:
            log.error(
                "defect",
                extra={
                    "fields": {
                        "request": request_id,
                        "route": get_route(scope),
                        "error": describe_error(fault),
                    }
                },
            )
            if not statuses:
                answer = build_problem(
                    500, "the service failed on this request; its log says where"
                )
                await answer(scope, receive, send_and_record)
        except asyncio.CancelledError:
            # The server stops and this request took longer than the grace period: no defect.
            if not statuses:
                answer = build_unavailable("the service is stopping: ask again", retry_after_s=1)
                await answer(scope, receive, send_and_record)
        seconds = time.monotonic() - started_at
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = get_route(scope)
        status = statuses[0] if statuses else CLIENT_CLOSED_REQUEST
        self._metrics.record_request(method, route, str(status), seconds)
        fields: dict[str, str | int] = {"method": method, "route": route, "status": status}
        fields |= scope.get("state", {}).get("log_fields", {})
        line = fields | {"request": request_id, "ms": round(seconds * 1000, 1)}
        log.info("request", extra={"fields": line})
        return fields


def get_request_id(scope: Scope) -> str:
    """Return the caller's `X-Request-ID` if it is 1 to 64 of `A-Z a-z 0-9 . _ -`, else a new id."""
    sent = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
    return sent if REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex


def get_route(scope: Scope) -> str:
    """Return the template of the route. Paths are not logged, because clients choose them."""
    return str(getattr(scope.get("route"), "path", "unmatched"))
