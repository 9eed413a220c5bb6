"""What the studio accepts: requests of its own page, from this machine, of a bounded size.

Addresses and names of this machine come first. `Guard` is a plain ASGI middleware, so that it sees a body as
it arrives and does not stand between a stream and its client.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import ipaddress
import json
import re
import secrets
import socket
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect

from bytemill.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?")


def bracketed(host: str) -> str:
    """Return a host as it is written in a URL.

    >>> bracketed("fe80::1"), bracketed("Example")
    ('[fe80::1]', 'example')
    """
    return f"[{host}]" if ":" in host else host.lower()


def authorities(name: str, port: int) -> set[str]:
    """Return the values of the Host header for a name and a port. Browsers leave out port 80.

    >>> sorted(authorities("localhost", 80))
    ['localhost', 'localhost:80']
    """
    return {f"{name}:{port}"} | ({name} if port == 80 else set())


def allowed_authorities(allowed: str, port: int) -> set[str]:
    """Return the values of the Host header for what a user allows.

    Args:
        allowed: A name or an address, with a port if it is another one than `port` or the standard one.
        port: Port of the studio.

    Raises:
        OutputError: It is neither.

    >>> sorted(allowed_authorities("studio.example", 8321))
    ['studio.example', 'studio.example:8321']
    >>> sorted(allowed_authorities("studio.example:8443", 8321))
    ['studio.example:8443']
    """
    parts = _AUTHORITY.fullmatch(allowed.lower())
    if parts is None:
        raise OutputError(
            f"{allowed} is not the name of a host",
            hint="give a name and, if it is not the studio's, a port: studio.example or studio.example:8443",
        )
    name, own_port = parts.groups()
    if own_port is None:
        return {name} | authorities(name, port)
    return {f"{name}:{own_port}"} | ({name} if own_port in ("80", "443") else set())


def machine_names() -> set[str]:
    """Return the names of this machine, with and without its domain."""
    name = socket.gethostname().lower()
    short = name.partition(".")[0]
    return {name, short, f"{short}.local", socket.getfqdn().lower()} - {""}


def local_authorities(server: tuple[str, int] | None) -> set[str]:
    """Return the values of the Host header for the address at which a connection has arrived.

    Args:
        server: Address and port of this end of the connection.

    >>> local_authorities(("::ffff:192.168.1.5", 8321))
    {'192.168.1.5:8321'}
    >>> local_authorities(("fe80::1%eth0", 8321))
    {'[fe80::1]:8321'}
    """
    if server is None:
        return set()
    address = ipaddress.ip_address(server[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return authorities(bracketed(str(address)), server[1])


def reachable_host(own: socket.socket) -> str:
    """Return a host that other machines can use in a URL for a socket that listens on all interfaces.

    It is the address of the interface that leads to other networks, or else the name of this machine.
    """
    families = [socket.AF_INET]
    if own.family == socket.AF_INET6:
        is_dual = not own.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        families = [socket.AF_INET, socket.AF_INET6] if is_dual else [socket.AF_INET6]
    for family in families:
        with contextlib.suppress(OSError):
            return bracketed(_outward_address(family))
    return socket.gethostname().lower()


def _outward_address(family: socket.AddressFamily) -> str:
    """Return the address from which this machine would send elsewhere. Nothing is sent. Raises OSError."""
    # Addresses that are reserved for documentation (RFC 5737, RFC 3849).
    elsewhere = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((elsewhere, 9))
        return probe.getsockname()[0]


MAX_BODY_BYTES = 32 << 20
"""5 MB of text are 30 MB as JSON if every character is escaped."""
BODY_SECONDS = 120.0
"""Time for a body to arrive."""
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

    A connection's own address is accepted as Host too: a name that an attacker lets point here never equals it.

    Args:
        hosts: Accepted values of the Host header, in lower case, with port.
        token: Secret that a browser must show once; None if the server listens on the loopback interface alone.
        origins: Accepted values of the Origin header, besides that of the host itself: those of a reverse proxy.
        cookie: Name of the cookie. Browsers send a cookie to all ports of a host.
    """

    hosts: frozenset[str]
    token: str | None = None
    origins: frozenset[str] = frozenset()
    cookie: str = "bytemill_studio"
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """Value of the cookie."""

    @classmethod
    def of(cls, host: str, port: int, allowed: Sequence[str] = ()) -> Access:
        """Return the access for a server: beyond the loopback interface with a new token.

        Args:
            host: Address or name that it listens on.
            port: Its port.
            allowed: Further names of it, such as that of a reverse proxy; with a port, or with its own and the
                standard ones.

        Raises:
            OutputError: One is not the name of a host.
        """
        own = bracketed(host)
        names = {*LOOPBACK, own}
        if own not in LOOPBACK:
            names |= machine_names()
        further = {each for name in allowed for each in allowed_authorities(name, port)}
        is_local = {own, *(_host_of(each) for each in further)}.issubset(LOOPBACK)
        return cls(
            frozenset({each for name in names for each in authorities(name, port)} | further),
            None if is_local else secrets.token_urlsafe(24),
            frozenset(f"{scheme}://{each}" for each in further for scheme in ("http", "https")),
            f"bytemill_studio_{port}",
        )


@dataclass(frozen=True)
class _Refusal:
    """An answer in place of the application's; 303 sets a cookie and leads to the page."""

    status: int
    message: str
    cookie: str | None = None
    hint: str | None = None


_TOO_LARGE = _Refusal(413, f"the body has more than {MAX_BODY_BYTES:,} bytes")
_OTHER_SITE = _Refusal(403, "requests from other sites are not accepted")


class Guard:
    """Middleware that refuses what does not come from the studio's own page.

    421 another Host header; 403 a request of another site; 401 no token; 415 a body that is not JSON; 413 one that is
    too large; 408 one that is too slow. Every answer gets the headers that keep a browser from running anything else.

    Args:
        app: The application.
        access: Who may connect.
    """

    def __init__(self, app: App, access: Access) -> None:
        self._app = app
        self._access = access

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
            await _answer(send, refusal, headers)
            return
        sent = 0
        is_whole = has_started = False
        end = asyncio.get_running_loop().time() + BODY_SECONDS

        async def receive_bounded() -> MutableMapping[str, Any]:
            nonlocal sent, is_whole, refusal
            try:
                async with asyncio.timeout_at(None if is_whole else end):
                    message = await receive()
            except TimeoutError:
                refusal = _Refusal(408, f"the body did not arrive within {BODY_SECONDS:g} seconds")
            else:
                is_whole = not message.get("more_body", False)
                sent += len(message.get("body", b""))
                if sent <= MAX_BODY_BYTES:
                    return message
                refusal = _TOO_LARGE
            raise ClientDisconnect  # the application ends; what it answers is not sent

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            nonlocal has_started
            if refusal is not None:
                return
            if message["type"] == "http.response.start":
                has_started = True
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        with contextlib.suppress(ClientDisconnect):
            await self._app(scope, receive_bounded, send_guarded)
        if refusal is not None and not has_started:
            await _answer(send, refusal, headers)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> _Refusal | None:
        host = headers.get("host", "").lower()
        if host not in self._access.hosts and host not in local_authorities(scope.get("server")):
            return _Refusal(
                421,
                "this is not a host that the studio was started for",
                hint="open the address that it printed, or start it with --allow-host and this name",
            )
        is_navigation = (
            scope["method"] == "GET" and scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
        )
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and not is_navigation:
            return _OTHER_SITE
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}", *self._access.origins}:
            return _OTHER_SITE
        if scope["method"] not in ("GET", "HEAD"):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return _Refusal(415, "the body must be application/json")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return _TOO_LARGE
        return None

    def _login(self, scope: Scope, headers: dict[str, str]) -> _Refusal | None:
        """Check the cookie, or exchange the token of the address for one."""
        if self._access.token is None:
            return None
        shown = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and hmac.compare_digest(shown.encode(), self._access.token.encode()):
            # Strict would leave the cookie out where a link in a mail or a chat leads to the page.
            cookie = f"{self._access.cookie}={self._access.session}; Path=/; HttpOnly; SameSite=Lax"
            return _Refusal(303, "", cookie)
        own = SimpleCookie(headers.get("cookie", "")).get(self._access.cookie)
        if own is not None and hmac.compare_digest(own.value.encode(), self._access.session.encode()):
            return None
        if own is not None or shown:
            return _Refusal(401, "this studio was restarted: open the address it printed")
        return _Refusal(401, "open the address that the studio printed when it started")


def _host_of(authority: str) -> str:
    host, colon, port = authority.rpartition(":")
    return host if colon and port.isdecimal() else authority


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers by name in lower case; of a name that is there twice, the values joined."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]},{text}" if key in found else text
    return found


async def _answer(send: Send, refusal: _Refusal, headers: dict[str, str]) -> None:
    is_page = "text/html" in headers.get("accept", "")
    if refusal.status == 303:
        body = b""
    elif is_page:
        body = _page(refusal)
    else:
        body = json.dumps({"detail": refusal.message, "hint": refusal.hint}).encode()
    own = [
        (b"content-type", b"text/html; charset=utf-8" if is_page else b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *_HEADERS,
        (b"connection", b"close"),  # what is left of a refused body is not read
    ]
    if refusal.cookie is not None:
        own += [(b"set-cookie", refusal.cookie.encode()), (b"location", b"/")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": own})
    await send({"type": "http.response.body", "body": body})


def _page(refusal: _Refusal) -> bytes:
    """Return a page for people who open an address, without scripts and styles."""
    sentences = [f"{text[:1].upper()}{text[1:]}." for text in (refusal.message, refusal.hint) if text]
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>bytemill studio</title>
<h1>bytemill studio</h1>
{"".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)}
""".encode()
