"""Addresses and names under which others reach this machine, and how a browser writes them."""

from __future__ import annotations

import ipaddress
import re
import socket
from contextlib import suppress

from bytemill.errors import OutputError

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
        with suppress(OSError):
            return bracketed(_outward_address(family))
    return socket.gethostname().lower()


def _outward_address(family: socket.AddressFamily) -> str:
    """Return the address from which this machine would send elsewhere. Nothing is sent. Raises OSError."""
    # Addresses that are reserved for documentation (RFC 5737, RFC 3849).
    elsewhere = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((elsewhere, 9))
        return probe.getsockname()[0]
