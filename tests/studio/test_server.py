"""What the server accepts, from whom and for how long, and the page that it serves."""

import asyncio
import contextlib
import gzip
import hashlib
import json
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from urllib.parse import quote, urlsplit

import httpx
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from bytemill.errors import OutputError
from bytemill.studio import security, server
from bytemill.studio.app import STATIC
from bytemill.studio.library import Library
from bytemill.studio.security import MAX_BODY_BYTES, Access, Guard, reachable_host
from bytemill.studio.server import HEADER_SECONDS, READER_SECONDS, Address, Connection, listen
from tests.conftest import REPOSITORY
from tests.studio.conftest import HOSTILE, client_of, id_of, running

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - nothing listens there in these tests
WEB = REPOSITORY / "web"


def get(url: str, **options: Any) -> httpx.Response:
    return httpx.get(url, trust_env=False, **options)


@contextlib.contextmanager
def connected(url: str, sent: bytes) -> Iterator[socket.socket]:
    """Open a connection and send the beginning of a request; HOST is the one of the URL."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as own:
        own.sendall(sent.replace(b"HOST", parts.netloc.encode()))
        yield own


def raw(url: str, request: bytes) -> bytes:
    """Send bytes, and return the answer."""
    with connected(url, request) as own:
        answer = b""
        while data := own.recv(65536):
            answer += data
            if b"\r\n\r\n" in answer and b"connection: close" not in answer.lower():
                break
        return answer


# Who reaches a studio, and under which names.


@pytest.fixture
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
def test_all_addresses_and_names_of_the_machine_are_accepted(
    names: None, host: str, shown: str, local: tuple[str, int]
):
    access = Access.of(host, 8321)
    assert access.token is not None
    assert status_of(access, shown, local) == 200
    assert status_of(access, shown, local, origin=f"http://{shown.lower()}") == 200


@pytest.mark.parametrize(
    "shown",
    [
        "evil.example:8321", "192.168.1.6:8321", "192.168.1.5", "192.168.1.5:80", "box:80", "box",
        "evil.box:8321", "box.evil.example:8321", "",
    ],
)  # fmt: skip
def test_a_name_that_was_pointed_here_is_refused(names: None, shown: str):
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


def test_browsers_leave_out_port_80(names: None):
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
    names: None,
    monkeypatch: pytest.MonkeyPatch,
    family: socket.AddressFamily,
    routes: dict[Any, str],
    host: str,
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

    def start(self, allowed: Sequence[str] = ()) -> AbstractContextManager[str]:
        own = listen(port=self.port)
        self.port = own.socket.getsockname()[1]
        access = Access.of(EVERYWHERE[0], self.port, allowed)
        return running(Library(self._root), Address(own.socket, f"{own.url}?token={access.token}", access))


@pytest.fixture
def browser() -> Iterator[httpx.Client]:
    """A client with the cookies of all studios, as a browser has."""
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=20) as own:
        yield own


class TestToken:
    """A server that listens for others."""

    def test_without_it_there_is_nothing(self, tmp_path: Path):
        with Served(tmp_path).start() as address:
            own, _, token = address.partition("?token=")
            assert len(token) >= 32
            for path in ("", "api/v1/status", "?token=", "?token=wrong", f"api/v1/status?token={token}"):
                answer = get(own + path)
                assert answer.status_code == 401
            name = f"bytemill_studio_{urlsplit(own).port}"
            for cookie in (f"{name}=forged".encode(), f"{name}=\xff".encode("latin-1")):
                assert get(own, headers={b"cookie": cookie}).status_code == 401
            detail = "open the address that the studio printed when it started"
            assert get(own).json()["detail"] == detail  # and nothing of a restart
            answer = get(address, headers={"host": "other.example", "accept": "text/html"})
            assert answer.status_code == 421
            assert "--allow-host" in answer.text

    def test_it_becomes_a_cookie_that_scripts_do_not_see(self, tmp_path: Path):
        with Served(tmp_path).start() as address, httpx.Client(trust_env=False) as client:
            answers = [client.get(address) for _ in range(2)]  # without a cookie and with one
            assert [(each.status_code, each.headers["location"]) for each in answers] == [(303, "/")] * 2
            cookie = answers[0].headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Lax" in cookie
            assert client.get(f"{address.partition('?')[0]}api/v1/status").status_code == 200

    def test_two_studios_do_not_log_each_other_out(self, tmp_path: Path, browser: httpx.Client):
        with Served(tmp_path).start() as first, Served(tmp_path).start() as second:
            for url in (first, second):
                assert browser.get(url).status_code == 200
            for url in (first, second):
                assert browser.get(f"{url.partition('?')[0]}api/v1/status").status_code == 200

    def test_after_a_restart_it_says_so_to_the_page_and_to_people(
        self, tmp_path: Path, browser: httpx.Client
    ):
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


# Requests that are refused.


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80", "",
        "127.0.0.1:8080@evil.example",
    ],
)  # fmt: skip
def test_another_host_is_refused(url: str, host: str):
    for path in ("", "api/v1/status"):
        assert get(url + path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "request_", [b"HTTP/1.0\r\n\r\n", b"HTTP/1.1\r\nhost: HOST\r\nhost: evil.example\r\n\r\n"]
)
def test_no_host_and_two_hosts_are_refused(url: str, request_: bytes):
    assert raw(url, b"GET /api/v1/status " + request_).split(b" ")[1] in (b"400", b"421")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_sites_are_refused(client: httpx.Client, headers: dict[str, str], method: str):
    path, body = ("/status", None) if method == "GET" else ("/texts", {"text": "a"})
    answer = client.request(method, path, json=body, headers=headers)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_a_link_from_another_site_opens_the_page_but_no_data(client: httpx.Client, url: str):
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert get(url, headers=headers).status_code == 200
    assert get(f"{url}api/v1/sources", headers=headers).status_code == 403
    own = {"origin": url.rstrip("/"), "sec-fetch-site": "same-origin"}
    assert client.post("/texts", json={"text": "a"}, headers=own).status_code == 200


def test_a_preflight_gets_nothing(client: httpx.Client):
    answer = client.options(
        "/texts", headers={"origin": "http://evil.example", "access-control-request-method": "POST"}
    )
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        "application/json-seq",
    ],
)
def test_a_body_that_is_not_json_is_refused(client: httpx.Client, kind: str):
    answer = client.post("/texts", content=b'{"text": "a"}', headers={"content-type": kind})
    assert answer.status_code == 415
    missing = client.build_request("POST", "/texts", content=b'{"text": "a"}')
    missing.headers.pop("content-type", None)
    assert client.send(missing).status_code == 415


def test_a_body_over_the_limit_is_refused(client: httpx.Client, url: str):
    headers = {"content-type": "application/json"}
    # Only the length is sent: the server must not wait for the rest.
    head = (
        f"POST /api/v1/texts HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\ncontent-type: application/json\r\n"
    )
    answer = raw(url, f"{head}content-length: {MAX_BODY_BYTES + 1}\r\n\r\n".encode())
    assert b" 413 " in answer.partition(b"\r\n")[0]

    def chunks() -> Iterator[bytes]:
        yield b'{"text": "'
        for _ in range(MAX_BODY_BYTES // (1 << 20) + 1):
            yield b"a" * (1 << 20)

    # The connection may be closed before all is sent, which is as good.
    with contextlib.suppress(httpx.TransportError):
        assert client.post("/texts", content=chunks(), headers=headers).status_code == 413
    assert client.get("/status").status_code == 200


def test_a_text_over_the_limit_is_refused(client: httpx.Client):
    assert client.post("/texts", json={"text": "a" * 5_000_001}).status_code == 413
    text_id = client.post("/texts", json={"text": "a" * 4_999_999}).json()["id"]
    edit = {"version": 0, "edits": [{"start": 0, "end": 0, "text": "é"}], "views": []}
    assert client.patch(f"/texts/{text_id}", json=edit).status_code == 413
    assert client.patch(f"/texts/{text_id}", json={**edit, "edits": []}).json()["n_bytes"] == 4_999_999


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/assets/..%2f..%2f..%2fapp.py", "//etc/passwd",
        "/assets/%00", "/source.sha256/..", "/..\\..\\app.py",
    ],
)  # fmt: skip
def test_no_path_reaches_the_file_system(url: str, path: str):
    answer = raw(url, f"GET {path} HTTP/1.1\r\nhost: HOST\r\n\r\n".encode())
    assert b" 404 " in answer.partition(b"\r\n")[0]
    assert b"root:" not in answer
    assert b"import" not in answer


@pytest.mark.parametrize(
    "name", ["../tokenizer.json", "/etc/passwd", "tokenizer.json", "%2e%2e", "x" * 5000, "\x00"]
)
def test_an_unknown_id_leads_nowhere(client: httpx.Client, name: str):
    own = quote(name, safe="")
    assert client.get(f"/tokenizers/{own}/vocabulary").status_code == 404
    assert client.get(f"/runs/{own}/metrics").status_code == 404
    assert client.get(f"/studies/{own}").status_code == 404
    assert client.post("/texts", json={"source": name}).status_code in (404, 422)
    assert client.post(f"/models/{own}/surprisal", json={"text": "a"}).status_code in (404, 405)


def test_answers_name_no_folder_above_the_root(tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "broken.json").write_text('{"added_tokens": [], "model": {"type": "Unigram"}}')
    with client_of(Library(root)) as client:
        answer = client.get(f"/tokenizers/{id_of(client, 'broken')}")
        assert answer.status_code == 422
        assert "broken.json" in answer.json()["detail"]
        everything = answer.text + client.get("/sources").text + client.get("/models").text
    assert str(tmp_path) not in everything


def test_every_answer_forbids_what_the_page_does_not_need(client: httpx.Client, url: str):
    script = next(part for part in get(url).text.split('"') if part.endswith(".js"))
    answers = [
        get(url),
        get(url + script.lstrip("/")),
        client.get("/status"),
        client.get("/nothing"),
        client.get("/status", headers={"host": "evil.example"}),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers
    assert "<script>" not in answers[0].text
    assert "style=" not in answers[0].text


def test_markup_in_names_and_tokens_stays_data(client: httpx.Client):
    tokenizer = id_of(client, "tokenizer")
    answer = client.get(f"/tokenizers/{tokenizer}")
    assert HOSTILE in answer.json()["special"]
    assert answer.headers["content-type"] == "application/json"
    assert any("<script>" in run["name"] for run in client.get("/runs").json()["runs"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/texts", {"text": 1}),
        ("/texts", {"text": "a", "path": "/etc/passwd"}),
        ("/texts", {}),
        ("/texts", []),
        ("/explanation", {"tokenizer": "python-docs-8k", "text": "a" * 20_001}),
        ("/explanation", {"tokenizer": "python-docs-8k", "text": "a", "vocab_size": -1}),
        ("/explanation", {"tokenizer": "python-docs-8k", "text": "a", "vocab_size": 256}),
        ("/comparison", {"text": "x", "tokenizers": ["python-docs-8k"]}),
        ("/comparison", {"text": "x", "tokenizers": ["python-docs-8k"] * 7}),
    ],
)
def test_wrong_values_are_named(client: httpx.Client, path: str, body: object):
    answer = client.post(path, json=body)
    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], str)
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("body", [b"{", b'{"text": "\\ud800"}', b"\xff", b"[" * 100_000])
def test_malformed_json_is_refused(client: httpx.Client, body: bytes):
    answer = client.post("/texts", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)


# Clients that send or read slowly are cut off, and hold nobody else.


def read_all(own: socket.socket) -> bytes:
    return b"".join(iter(lambda: own.recv(65536), b""))


@pytest.mark.parametrize("sent", [b"", b"GET /api/v1/status HTTP/1.1\r\nhost: HOST\r\n"])
def test_headers_that_do_not_end_close_the_connection(url: str, sent: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.2)
    with connected(url, sent) as own:
        assert read_all(own) == b""


def test_the_next_headers_on_a_connection_have_the_same_time(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.2)
    with connected(url, b"GET /api/v1/status HTTP/1.1\r\nhost: HOST\r\n\r\n") as own:
        assert own.recv(65536).startswith(b"HTTP/1.1 200 ")
        own.sendall(b"GET /api")
        assert b"HTTP" not in read_all(own)


def test_a_body_that_does_not_end_is_answered_with_408(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)
    head = b"POST /api/v1/texts HTTP/1.1\r\nhost: HOST\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n"
    with connected(url, head + b'{"text": ') as own:
        answer = read_all(own)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive within" in answer
    assert b"content-security-policy" in answer
    assert get(f"{url}api/v1/status").status_code == 200


class FakeTransport:
    """A transport whose reader takes `n_taken` bytes between two looks."""

    def __init__(self) -> None:
        self.n_unsent, self.n_taken = 100_000, 0
        self.is_aborted = self.is_closed = False

    def get_extra_info(self, _: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        self.n_unsent -= self.n_taken
        return self.n_unsent

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


class FakeLoop:
    """A loop whose timers end when the test says so."""

    def __init__(self) -> None:
        self.timers: dict[Any, tuple[float, Callable[[], None]]] = {}

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        loop = self

        class Timer:
            def cancel(self) -> None:
                loop.timers.pop(self, None)

        timer = Timer()
        self.timers[timer] = seconds, call
        return timer

    def create_task(self, work: Any) -> Any:
        work.close()
        return MagicMock()

    def end(self, seconds: float) -> None:
        ((timer, (_, call)),) = [each for each in self.timers.items() if each[1][0] == seconds]
        del self.timers[timer]
        call()

    @property
    def seconds(self) -> list[float]:
        return [seconds for seconds, _ in self.timers.values()]


@pytest.fixture
def made() -> tuple[Connection, FakeTransport, FakeLoop]:
    """A connection that has just been made."""

    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    transport, loop = FakeTransport(), FakeLoop()
    config = Config(app, log_level="error", ws="none", lifespan="off")
    own = Connection(config, ServerState(), {}, loop)  # type: ignore[arg-type]
    own.connection_made(transport)  # type: ignore[arg-type]
    return own, transport, loop


def test_each_byte_of_the_headers_does_not_prolong_their_time(made: tuple[Connection, Any, FakeLoop]):
    own, transport, loop = made
    for byte in b"GET / HTT":
        own.data_received(bytes([byte]))
    assert loop.seconds == [HEADER_SECONDS]
    loop.end(HEADER_SECONDS)
    assert transport.is_closed


def test_with_complete_headers_their_time_is_over(made: tuple[Connection, Any, FakeLoop]):
    own, _, loop = made
    own.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    assert loop.seconds == []


def test_a_reader_that_takes_nothing_is_cut_off(made: tuple[Connection, FakeTransport, FakeLoop]):
    own, transport, loop = made
    own.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    own.pause_writing()
    transport.n_taken = 10
    for _ in range(3):
        loop.end(READER_SECONDS)
        assert not transport.is_aborted
    transport.n_taken = 0
    loop.end(READER_SECONDS)
    assert transport.is_aborted


def test_a_reader_that_has_taken_all_is_not_watched(made: tuple[Connection, FakeTransport, FakeLoop]):
    own, _, loop = made
    own.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    own.pause_writing()
    own.resume_writing()
    assert loop.seconds == []
    own.pause_writing()
    own.connection_lost(None)
    assert loop.seconds == []


def test_readers_that_read_nothing_hold_no_other_request(url: str, client: httpx.Client):
    model = id_of(client, "runs/first", "models")
    body = b'{"ids": [], "max_tokens": 500, "stop_at_special": false}'
    head = (
        f"POST /api/v1/models/{model}/generate HTTP/1.1\r\nhost: HOST\r\ncontent-type: application/json\r\n"
    )
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connected(url, request))
        answer = client.post(f"/models/{model}/surprisal", json={"text": "The cat"})
        assert answer.status_code == 200


# The built front end: it matches its source, asks nothing of other sites, and is small.


def test_the_built_files_match_their_source():
    names = ["index.html", "package.json", "svelte.config.js", "tsconfig.json", "vite.config.ts"]
    names += [path.relative_to(WEB).as_posix() for path in (WEB / "src").rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\0".encode() + (WEB / name).read_bytes() + b"\0")
    assert (STATIC / "source.sha256").read_text().strip() == digest.hexdigest(), "run make web"


def test_the_types_match_the_server(client: httpx.Client):
    document = client.get("/openapi.json").json()
    types = (WEB / "src" / "lib" / "api-types.ts").read_text(encoding="utf-8")
    for name, schema in document["components"]["schemas"].items():
        own = re.search(
            rf"^        {re.escape(name)}: \{{\n(.*?)^        \}};", types, re.DOTALL | re.MULTILINE
        )
        assert own is not None, f"{name} is missing: run make web"
        found = set(re.findall(r'^            "?(\w+)"?\??:', own[1], re.MULTILINE))
        assert found == set(schema.get("properties", {})), f"{name} differs: run make web"


def test_the_first_view_is_small():
    page = (STATIC / "index.html").read_text()
    scripts = re.findall(r'(?:src|href)="/(assets/[^"]+\.js)"', page)
    assert scripts
    size = sum(len(gzip.compress((STATIC / name).read_bytes())) for name in scripts)
    assert size <= 150_000


def test_versions_of_packages_are_exact():
    package = json.loads((WEB / "package.json").read_text())
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values())
    assert not (WEB / "package-lock.json").exists()


def test_no_script_of_the_page_is_inline_and_none_is_from_elsewhere():
    page = (STATIC / "index.html").read_text()
    assert not re.findall(r"<script(?![^>]*\bsrc=)", page)
    assert not re.findall(r'(?:src|href)="(?!/)', page)
    allowed = ("http://www.w3.org/", "https://svelte.dev/e/")  # name spaces, and addresses in messages
    for path in STATIC.rglob("*.js"):
        for address in re.findall(r"https?://[^\"'`\s)]+", path.read_text(encoding="utf-8")):
            assert address.startswith(allowed), f"{path.name}: {address}"


def test_every_built_file_is_there_and_nothing_else():
    files = {path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file()}
    assert {"index.html", "source.sha256"} <= files
    text = "".join(
        (STATIC / name).read_text(encoding="utf-8")
        for name in files
        if Path(name).suffix in (".js", ".html", ".css")
    )
    for name in files - {"index.html", "source.sha256"}:
        assert Path(name).name in text, f"nothing refers to {name}"
