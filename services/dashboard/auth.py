"""Access to the dashboard: without a token on the loopback address, with one everywhere else; and
security headers.

The one token gives access to everything, also to queues where they are shown.
"""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradus.errors import Misuse
from services.http_server import is_loopback, parse_host_name
from services.secret_file import read_secret_file

TOKEN_VARIABLE = "GRADUS_DASHBOARD_TOKEN"  # noqa: S105
OPEN_VARIABLE = "GRADUS_DASHBOARD_ALLOW_ANONYMOUS"
LEAST_TOKEN_CHARS = 16
COOKIE = "gradus_dashboard"
COOKIE_AGE_S = 30 * 24 * 3600
ENTER = "/enter"
OPEN_PATHS = frozenset({"/healthz", ENTER, "/style.css"})  # paths that need no token
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"
    " data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for"
    " 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def validate_token(text: str, source: str) -> str:
    """Return the token that a file or a variable holds. Raises Misuse that names `source` and
    repeats nothing of it."""
    token = text.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise Misuse(f"{source}: a token is printable ASCII without spaces")
    if len(token) < LEAST_TOKEN_CHARS:
        raise Misuse(
            f"{source}: a token has at least {LEAST_TOKEN_CHARS} characters; "
            "python3 -c 'import secrets; print(secrets.token_urlsafe(32))' makes one"
        )
    return token


def read_token_file(path: Path, option: str = "--token-file") -> str:
    """Raise Misuse for a file that cannot be read or holds no token: a wrong file must not make the
    page public."""
    return validate_token(read_secret_file(path, option), f"{option} {path}")


def refuse_open_page(host: str, token: str | None, *, allow_anonymous: bool) -> None:
    """Raise Misuse for a page without a token that others than this machine could reach."""
    if token or allow_anonymous or is_loopback(host):
        return
    raise Misuse(
        f"refusing to serve on {host or 'every address'} without a token: every client could read"
        " completions and settings. Name a file that holds one with --token-file, or set"
        f" {TOKEN_VARIABLE}, or bind to 127.0.0.1, or, inside a network that is closed already (a"
        f" compose network without published ports), set {OPEN_VARIABLE}=true"
    )


class TokenVerifier:
    def __init__(self, token: str | None) -> None:
        self._token = token
        # The cookie on a disk does not reveal the token, and a new token ends all sessions.
        self.session = hmac.new(
            (token or "").encode(), b"gradus dashboard session", hashlib.sha256
        ).hexdigest()

    @property
    def is_open(self) -> bool:
        return self._token is None

    def is_valid_token(self, token: str) -> bool:
        return self._token is not None and hmac.compare_digest(token.encode(), self._token.encode())

    def is_authorized(self, headers: Headers) -> bool:
        """Return whether the request has a valid bearer token or session cookie."""
        if self.is_open:
            return True
        scheme, _, credential = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_valid_token(credential.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(
            cookie.value.encode(), self.session.encode()
        )


class AuthMiddleware:
    """Refuses requests without the token or a session cookie, and adds the security headers to
    every response."""

    def __init__(self, app: ASGIApp, verifier: TokenVerifier, *, only_this_machine: bool) -> None:
        """`only_this_machine`: without a token, refuse names other than this machine's in `Host`:
        another site's page could resolve its own name to this address (DNS rebinding)."""
        self._app = app
        self._verifier = verifier
        self._checks_host = only_this_machine and verifier.is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._check_access(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _check_access(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        path = scope["path"]
        if self._checks_host and not is_loopback(parse_host_name(headers.get("host", ""))):
            return render_problem(
                403, "this address is only for this machine; use 127.0.0.1 or localhost"
            )
        if path in OPEN_PATHS or self._verifier.is_authorized(headers):
            return None
        if path == "/" and scope["method"] in ("GET", "HEAD"):
            return RedirectResponse(ENTER, 303)
        refusal = render_problem(
            401,
            "send the token in the header `Authorization: Bearer <token>`, or enter it at /enter",
        )
        refusal.headers["www-authenticate"] = "Bearer"
        return refusal


def render_problem(status: int, detail: str) -> Response:
    """Return a refusal as `application/problem+json` (RFC 9457)."""
    body = {"type": "about:blank", "title": "Refused", "status": status, "detail": detail}
    return JSONResponse(body, status, media_type="application/problem+json")
