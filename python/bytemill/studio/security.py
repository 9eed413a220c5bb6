"""What the studio accepts: requests of its own page, from this machine, of a bounded size.

A plain ASGI middleware, so that it sees a body as it arrives and does not stand between a stream and its client.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 32 << 20
"""5 MB of text are 30 MB as JSON if every character is escaped."""
COOKIE = "bytemill_studio"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]


@dataclass(frozen=True)
class Access:
    """Who may connect.

    Args:
        hosts: Accepted values of the Host header, in lower case, with port.
        token: Secret that a browser must show once; None if the server listens on the loopback interface alone.
    """

    hosts: frozenset[str]
    token: str | None = None
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """Value of the cookie."""

    @classmethod
    def of(cls, host: str, port: int) -> Access:
        """Return the access for a server that listens on `host`: beyond the loopback interface with a new token."""
        names = set(LOOPBACK) | ({f"[{host}]"} if ":" in host else {host.lower()})
        hosts = frozenset(f"{name}:{port}" for name in names)
        is_local = host in ("127.0.0.1", "localhost", "::1")
        return cls(hosts, None if is_local else secrets.token_urlsafe(24))


@dataclass(frozen=True)
class _Refusal:
    """An answer in place of the application's; 303 sets a cookie and leads to the page."""

    status: int
    message: str
    cookie: str | None = None


class Guard:
    """Middleware that refuses what does not come from the studio's own page.

    421 another Host header; 403 a request of another site; 401 no token; 415 a body that is not JSON; 413 one that is
    too large. Every answer gets the headers that keep a browser from running anything else.

    Args:
        app: The application.
        access: Who may connect.
        max_body_bytes: Limit of a body.
    """

    def __init__(self, app: App, access: Access, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._access = access
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no WebSockets
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope)
        refusal = self._refusal(scope, headers) or self._login(scope, headers)
        if refusal is not None:
            await _answer(send, refusal)
            return
        sent = 0
        has_started = False

        async def receive_bounded() -> MutableMapping[str, Any]:
            nonlocal sent
            message = await receive()
            if message["type"] == "http.request":
                sent += len(message.get("body", b""))
                if sent > self._max_body_bytes:
                    raise ClientDisconnect  # the application ends; what it answers is not sent
            return message

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            nonlocal has_started
            if sent > self._max_body_bytes:
                return
            if message["type"] == "http.response.start":
                has_started = True
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        with contextlib.suppress(ClientDisconnect):
            await self._app(scope, receive_bounded, send_guarded)
        if sent > self._max_body_bytes and not has_started:
            await _answer(send, self._too_large())

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> _Refusal | None:
        host = headers.get("host", "").lower()
        if host not in self._access.hosts:
            return _Refusal(421, "this is not the host that the studio was started for")
        is_navigation = (
            scope["method"] == "GET" and scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
        )
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and not is_navigation:
            return _Refusal(403, "requests from other sites are not accepted")
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}":
            return _Refusal(403, "requests from other sites are not accepted")
        if scope["method"] not in ("GET", "HEAD"):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return _Refusal(415, "the body must be application/json")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._max_body_bytes:
            return self._too_large()
        return None

    def _too_large(self) -> _Refusal:
        return _Refusal(413, f"the body has more than {self._max_body_bytes:,} bytes")

    def _login(self, scope: Scope, headers: dict[str, str]) -> _Refusal | None:
        """Check the cookie, or exchange the token of the address for one."""
        if self._access.token is None:
            return None
        own = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        if own is not None and hmac.compare_digest(own.value.encode(), self._access.session.encode()):
            return None
        shown = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and hmac.compare_digest(shown.encode(), self._access.token.encode()):
            return _Refusal(303, "", f"{COOKIE}={self._access.session}; Path=/; HttpOnly; SameSite=Strict")
        return _Refusal(401, "open the address that the studio printed when it started")


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers by name in lower case; of a name that is there twice, the values joined."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]},{text}" if key in found else text
    return found


async def _answer(send: Send, refusal: _Refusal) -> None:
    body = b"" if refusal.status == 303 else json.dumps({"detail": refusal.message}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *_HEADERS,
    ]
    headers.append((b"connection", b"close"))  # what is left of a refused body is not read
    if refusal.cookie is not None:
        headers += [
            (b"set-cookie", refusal.cookie.encode()),
            (b"location", b"/"),
            (b"cache-control", b"no-store"),
        ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
