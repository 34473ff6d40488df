"""FastAPI for its document, and as little of it as possible on the way of a request. Knows no route.

What stands around a route in FastAPI (dependencies and their exit stacks, middlewares, a second net for exceptions)
costs more than these routes do. They need none of it: they read their request and answer with a response themselves.
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


class BareApp(FastAPI):
    """Only the middlewares that were added, and the handlers of exceptions. What has none goes up to them."""

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = ExceptionMiddleware(self.router, handlers=self.exception_handlers)
        for middleware in reversed(self.user_middleware):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        return app


class BareRoute(APIRoute):
    """Calls its endpoint with the request and the parameters of the path, as texts; its types are for the document."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)  # says which would do
            return
        response = await self.answer(Request(scope, receive, send), scope["path_params"])
        await response(scope, receive, send)

    async def answer(self, request: Request, path_params: dict[str, str]) -> Response:
        response: Response = await self.endpoint(request=request, **path_params)
        return response
