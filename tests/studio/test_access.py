"""Who reaches a studio that listens for others, and under which names."""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from bytemill.errors import OutputError
from bytemill.studio import security, server
from bytemill.studio.library import Library
from bytemill.studio.security import Access, Guard, reachable_host
from bytemill.studio.server import Address, listen, running

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - nothing listens there in these tests


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a name in a domain."""
    monkeypatch.setattr(socket, "gethostname", lambda: "Box")
    monkeypatch.setattr(socket, "getfqdn", lambda: "box.lab.example")


async def page(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def status_of(
    access: Access, host: str, local: tuple[str, int] = ("192.168.1.5", 8321), **headers: str
) -> int:
    """Return the answer to a request that arrives at an address of the machine."""
    cookie = f"{access.cookie}={access.session}"
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/texts",
        "server": local,
        "headers": [
            (name.encode(), value.encode())
            for name, value in {
                "host": host,
                "cookie": cookie,
                "content-type": "application/json",
                **headers,
            }.items()
        ],
    }
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    with ThreadPoolExecutor(1) as executor:  # this thread may have the loop of a browser
        executor.submit(asyncio.run, Guard(page, access)(scope, receive, send)).result()
    return sent[0]["status"]


@pytest.mark.parametrize("host", EVERYWHERE)
@pytest.mark.parametrize(
    ("shown", "local"),
    [
        ("192.168.1.5:8321", ("192.168.1.5", 8321)),
        ("192.168.1.5:8321", ("::ffff:192.168.1.5", 8321)),
        ("[2001:db8::5]:8321", ("2001:db8::5", 8321)),
        ("[fe80::5]:8321", ("fe80::5%eth0", 8321)),
        ("10.0.0.9:8321", ("10.0.0.9", 8321)),
        ("box:8321", ("192.168.1.5", 8321)),
        ("BOX.lab.example:8321", ("192.168.1.5", 8321)),
        ("box.local:8321", ("192.168.1.5", 8321)),
        ("localhost:8321", ("127.0.0.1", 8321)),
        ("127.0.0.1:8321", ("127.0.0.1", 8321)),
    ],
)
def test_all_addresses_and_names_of_the_machine_are_accepted(host: str, shown: str, local: tuple[str, int]):
    access = Access.of(host, 8321)
    assert access.token is not None
    assert status_of(access, shown, local) == 200
    assert status_of(access, shown, local, origin=f"http://{shown.lower()}") == 200


@pytest.mark.parametrize(
    "shown",
    [
        "evil.example:8321",
        "192.168.1.6:8321",
        "192.168.1.5",
        "192.168.1.5:80",
        "box:80",
        "box",
        "evil.box:8321",
        "box.evil.example:8321",
        "",
    ],
)
def test_a_name_that_was_pointed_here_is_refused(shown: str):
    assert status_of(Access.of(EVERYWHERE[0], 8321), shown) == 421


@pytest.mark.parametrize(
    ("allowed", "accepted", "refused"),
    [
        ("studio.example", ["studio.example", "studio.example:8321"], ["studio.example:8443"]),
        ("Studio.Example:8443", ["studio.example:8443"], ["studio.example", "studio.example:8321"]),
        ("studio.example:443", ["studio.example", "studio.example:443"], ["studio.example:8321"]),
        ("192.168.1.7:9000", ["192.168.1.7:9000"], ["192.168.1.7:8321"]),
        ("[2001:db8::7]", ["[2001:db8::7]:8321"], ["[2001:db8::8]:8321"]),
    ],
)
def test_a_name_that_is_allowed_is_accepted_with_its_ports(
    allowed: str, accepted: list[str], refused: list[str]
):
    access = Access.of("127.0.0.1", 8321, [allowed])
    assert access.token is not None  # requests through the proxy come from other machines
    for host in accepted:
        assert status_of(access, host) == 200
        for scheme in ("http", "https"):
            assert status_of(access, host, origin=f"{scheme}://{host}") == 200
            # A proxy may send the address of the studio as Host.
            assert status_of(access, "127.0.0.1:8321", origin=f"{scheme}://{host}") == 200
    for host in refused:
        assert status_of(access, host) == 421
        assert status_of(access, accepted[0], origin=f"https://{host}") == 403
    assert status_of(access, accepted[0], origin="https://evil.example") == 403
    assert status_of(access, "evil.example", origin=f"https://{accepted[0]}") == 421


def test_another_port_of_this_machine_needs_no_token():
    access = Access.of("127.0.0.1", 8321, ["localhost:9000"])  # the near end of a tunnel
    assert access.token is None
    assert status_of(access, "localhost:9000", origin="http://localhost:9000") == 200


@pytest.mark.parametrize(
    "allowed", ["https://studio.example", "*", "a b", "studio.example/x", "me@here", "a:b", ""]
)
def test_what_is_no_name_is_an_error(allowed: str):
    with pytest.raises(OutputError, match="is not the name of a host") as caught:
        Access.of("127.0.0.1", 8321, [allowed])
    assert "studio.example" in str(caught.value.hint)


def test_browsers_leave_out_port_80():
    access = Access.of(EVERYWHERE[0], 80)
    for host in ("box", "box:80", "192.168.1.5", "localhost"):
        assert status_of(access, host, ("192.168.1.5", 80), origin=f"http://{host}") == 200


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize(
    ("routes", "host"),
    [
        ({socket.AF_INET: "192.168.1.5", socket.AF_INET6: "2001:db8::5"}, "192.168.1.5"),
        ({socket.AF_INET6: "2001:db8::5"}, "[2001:db8::5]"),
        ({}, "box"),
    ],
)
def test_the_printed_address_is_one_that_others_reach(
    monkeypatch: pytest.MonkeyPatch, family: socket.AddressFamily, routes: dict[Any, str], host: str
):
    def outward(wanted: socket.AddressFamily) -> str:
        if wanted not in routes:
            raise OSError("no route")
        return routes[wanted]

    monkeypatch.setattr(security, "_outward_address", outward)
    with socket.socket(family) as own:
        is_without_ipv6 = family == socket.AF_INET and socket.AF_INET not in routes
        assert reachable_host(own) == ("box" if is_without_ipv6 else host)


def test_the_printed_address_holds_the_token(monkeypatch: pytest.MonkeyPatch):
    class Everywhere:
        """A socket that would listen on all interfaces."""

        family = socket.AF_INET

        def getsockname(self) -> tuple[str, int]:
            return EVERYWHERE[0], 9000

    monkeypatch.setattr(server, "_bound_socket", lambda *_: Everywhere())
    monkeypatch.setattr(security, "_outward_address", lambda _: "192.168.1.5")
    found = listen(EVERYWHERE[0], 9000)
    assert found.url == f"http://192.168.1.5:9000/?token={found.access.token}"
    assert len(found.access.token or "") >= 32
    assert status_of(found.access, "192.168.1.5:9000", ("192.168.1.5", 9000)) == 200


class Served:
    """A studio for others, which is started again on the same port."""

    def __init__(self, root: Path) -> None:
        self._root, self.port = root, 0

    def start(self, allowed: Sequence[str] = ()) -> Any:
        own = listen(port=self.port)
        self.port = own.socket.getsockname()[1]
        access = Access.of(EVERYWHERE[0], self.port, allowed)
        return running(Library(self._root), Address(own.socket, f"{own.url}?token={access.token}", access))


@pytest.fixture
def browser() -> Iterator[httpx.Client]:
    """A client with the cookies of all studios, as a browser has."""
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=20) as own:
        yield own


def test_two_studios_do_not_log_each_other_out(tmp_path: Path, browser: httpx.Client):
    with Served(tmp_path).start() as first, Served(tmp_path).start() as second:
        for url in (first, second):
            assert browser.get(url).status_code == 200
        for url in (first, second):
            assert browser.get(f"{url.partition('?')[0]}api/v1/status").status_code == 200


def test_after_a_restart_it_says_so_to_the_page_and_to_people(tmp_path: Path, browser: httpx.Client):
    served = Served(tmp_path)
    with served.start() as old:
        assert browser.get(old).status_code == 200
        api = f"{old.partition('?')[0]}api/v1/status"
    with served.start() as new:
        answer = browser.get(api)
        assert answer.status_code == 401
        assert answer.json()["detail"] == "this studio was restarted: open the address it printed"
        for url in (old, old.partition("?")[0]):
            answer = browser.get(url, headers={"accept": "text/html,*/*;q=0.8"})
            assert answer.status_code == 401
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert "<p>This studio was restarted: open the address it printed.</p>" in answer.text
            assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert browser.get(new).status_code == 200
        assert browser.get(api).status_code == 200


def test_who_was_never_here_is_not_told_of_a_restart(tmp_path: Path, browser: httpx.Client):
    with Served(tmp_path).start() as url:
        own = url.partition("?")[0]
        assert browser.get(own).json()["detail"] == "open the address that the studio printed when it started"


def test_the_token_never_stays_in_the_address(tmp_path: Path):
    with Served(tmp_path).start() as url, httpx.Client(trust_env=False) as own:
        for _ in range(2):  # with a cookie and without one
            answer = own.get(url)
            assert answer.status_code == 303
            assert answer.headers["location"] == "/"


def test_people_who_come_under_another_name_are_told_what_to_do(tmp_path: Path, browser: httpx.Client):
    with Served(tmp_path).start() as url:
        answer = browser.get(url, headers={"host": "other.example", "accept": "text/html"})
    assert answer.status_code == 421
    assert "--allow-host" in answer.text
    assert "other.example" not in answer.text
