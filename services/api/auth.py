"""Authentication and authorization: bearer keys, each with the graders it may use."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from services.api.api_keys import ApiKey
from services.api.lean_routing import LeanRoute
from services.api.problems import Refused
from services.api.state import Api
from services.broker import DEFAULT_FAIR_SHARE

ANONYMOUS = ApiKey(DEFAULT_FAIR_SHARE.run, "")
"""The key of every request to a service without keys."""


class KeyedRoute(LeanRoute):
    """Route that requires a known key, if keys are set, and notes it in `request.state.key`."""

    async def answer(self, request: Request, path_params: dict[str, str]) -> Response:
        api: Api = request.app.state.api
        key, log_fields = ANONYMOUS, {}
        if api.keys.keys:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            found = api.keys.find(given.strip())
            if scheme.lower() != "bearer" or found is None:
                raise Refused(401, "send a known API key in the header `Authorization: Bearer <key>`")
            key, log_fields = found, {"key": found.name}
        request.state.key, request.state.log_fields = key, log_fields
        return await super().answer(request, path_params)


def check_scope(key: ApiKey, grader: str) -> None:
    """Raises Refused (403) unless `key` may use the grader."""
    if not key.may_use(grader):
        allowed = ", ".join(sorted(key.graders or ()))
        raise Refused(403, f"this API key may not use the grader {grader}; it may use: {allowed}")
