"""Attacks on a running studio."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from bytemill.studio.library import Library
from bytemill.studio.security import MAX_BODY_BYTES, Access
from bytemill.studio.server import Address, listen, running
from tests.studio.conftest import HOSTILE, id_of


def raw(url: str, request: bytes) -> bytes:
    """Send bytes, and return the answer."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as own:
        own.sendall(request)
        answer = b""
        while data := own.recv(65536):
            answer += data
            if b"\r\n\r\n" in answer and b"connection: close" not in answer.lower():
                break
        return answer


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil.example:80",
        "",
        "127.0.0.1:8080@evil.example",
    ],
)
def test_another_host_is_refused(url: str, host: str):
    assert httpx.get(url, headers={"host": host}, trust_env=False).status_code == 421
    answer = httpx.get(f"{url}api/v1/status", headers={"host": host}, trust_env=False)
    assert answer.status_code == 421


def test_no_host_at_all_is_refused(url: str):
    assert b" 421 " in raw(url, b"GET /api/v1/status HTTP/1.0\r\n\r\n").partition(b"\r\n")[0]


def test_two_hosts_are_refused(url: str):
    own = urlsplit(url).netloc.encode()
    answer = raw(url, b"GET /api/v1/status HTTP/1.1\r\nhost: " + own + b"\r\nhost: evil.example\r\n\r\n")
    assert answer.split(b" ")[1] in (b"400", b"421")


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


def test_a_link_from_another_site_opens_the_page_but_no_data(url: str):
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert httpx.get(url, headers=headers, trust_env=False).status_code == 200
    assert httpx.get(f"{url}api/v1/sources", headers=headers, trust_env=False).status_code == 403


def test_the_page_itself_is_served(client: httpx.Client, url: str):
    headers = {"origin": url.rstrip("/"), "sec-fetch-site": "same-origin"}
    assert client.post("/texts", json={"text": "a"}, headers=headers).status_code == 200


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
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/assets/..%2f..%2f..%2fapp.py",
        "//etc/passwd",
        "/assets/%00",
        "/source.sha256/..",
        "/..\\..\\app.py",
    ],
)
def test_no_path_reaches_the_file_system(url: str, path: str):
    answer = raw(url, f"GET {path} HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\n\r\n".encode())
    assert b" 404 " in answer.partition(b"\r\n")[0]
    assert b"root:" not in answer
    assert b"import" not in answer


@pytest.mark.parametrize(
    "name", ["../tokenizer.json", "/etc/passwd", "tokenizer.json", "%2e%2e", "x" * 5000, "\x00"]
)
def test_an_unknown_id_leads_nowhere(client: httpx.Client, root: Path, name: str):
    from urllib.parse import quote

    own = quote(name, safe="")
    assert client.get(f"/tokenizers/{own}/vocabulary").status_code == 404
    assert client.get(f"/runs/{own}/metrics").status_code == 404
    assert client.get(f"/studies/{own}").status_code == 404
    assert client.post("/texts", json={"source": name}).status_code in (404, 422)
    assert client.post(f"/models/{own}/surprisal", json={"text": "a"}).status_code in (404, 405)


def test_links_to_elsewhere_are_not_followed(tmp_path: Path, root: Path):
    own = tmp_path / "own"
    own.mkdir()
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (own / "link.txt").symlink_to(secret)
    (own / "tokenizer.json").symlink_to(root / "tokenizer.json")
    (own / "folder").symlink_to(root)
    shelf = Library(own).shelf()
    assert not [entry for entry in shelf.texts.values() if entry.origin == "found"]
    assert not [entry for entry in shelf.tokenizers.values() if entry.origin == "found"]
    assert not shelf.runs


def test_answers_name_no_folder_above_the_root(client: httpx.Client, root: Path):
    broken = root / "broken.json"
    broken.write_text('{"added_tokens": [], "model": {"type": "Unigram"}}')
    try:
        import time

        time.sleep(2.1)  # the folder is searched every two seconds
        answer = client.get(f"/tokenizers/{id_of(client, 'broken')}")
        assert answer.status_code == 422
        assert "broken.json" in answer.json()["detail"]
        everything = answer.text + client.get("/sources").text + client.get("/models").text
        assert str(root.parent) not in everything
    finally:
        broken.unlink()


def test_every_answer_forbids_what_the_page_does_not_need(client: httpx.Client, url: str):
    script = next(part for part in httpx.get(url, trust_env=False).text.split('"') if part.endswith(".js"))
    answers = [
        httpx.get(url, trust_env=False),
        httpx.get(url + script.lstrip("/"), trust_env=False),
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


class TestWithToken:
    """A server that listens for others."""

    @pytest.fixture
    def address(self, root: Path) -> Iterator[str]:
        own = listen(port=0)
        access = Access.of("0.0.0.0", own.socket.getsockname()[1])  # noqa: S104 - what is attacked
        with running(Library(root), Address(own.socket, f"{own.url}?token={access.token}", access)) as url:
            yield url

    def test_without_the_token_there_is_nothing(self, address: str):
        own, _, token = address.partition("?token=")
        assert len(token) >= 32
        for path in (
            "",
            "api/v1/status",
            "api/v1/sources",
            "?token=",
            "?token=wrong",
            f"api/v1/status?token={token}",
        ):
            assert httpx.get(own + path, trust_env=False).status_code == 401
        name = f"bytemill_studio_{urlsplit(own).port}"
        forged = {"cookie": f"{name}=forged"}
        assert httpx.get(own, headers=forged, trust_env=False).status_code == 401
        nonsense = {b"cookie": f"{name}=\xff".encode("latin-1")}
        assert httpx.get(own, headers=nonsense, trust_env=False).status_code == 401

    def test_the_token_becomes_a_cookie_that_scripts_do_not_see(self, address: str):
        own = address.partition("?")[0]
        answer = httpx.get(address, trust_env=False)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        name, _, value = cookie.partition(";")[0].partition("=")
        assert httpx.get(f"{own}api/v1/status", cookies={name: value}, trust_env=False).status_code == 200

    def test_on_this_machine_alone_no_token_is_needed(self, url: str):
        assert "token" not in url
        assert httpx.get(url, trust_env=False).status_code == 200


def test_the_answers_are_the_documented_ones(client: httpx.Client):
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    assert "/api/v1/texts/{text_id}" in document["paths"]
    assert json.dumps(document).count("/api/v1/") >= 15
