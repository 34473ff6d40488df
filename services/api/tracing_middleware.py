"""ASGI middleware: a span around every request for work, if tracing is configured. Probes and
scrapes get none."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.access_log import fields_of, route_of
from services.api.metrics import METHODS
from services.tracing import Spans


class TracingMiddleware:
    def __init__(self, app: ASGIApp, spans: Spans) -> None:
        self._app = app
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        from opentelemetry.trace import StatusCode

        with self._spans.request(Headers(scope=scope)) as span:

            async def noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            try:
                await self._app(scope, receive, noting)
            finally:
                method = scope["method"] if scope["method"] in METHODS else "_OTHER"
                span.update_name(f"{method} {route_of(scope)}")
                span.set_attributes({"http.request.method": method, "http.route": route_of(scope)})
                span.set_attributes(
                    {f"gradus.{name}": value for name, value in fields_of(scope).items()}
                )
