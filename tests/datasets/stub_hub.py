"""A hub on this machine: repositories in memory, behind the part of its interface that up- and downloads use."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.datasets.conftest import point_hub_at

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories in memory."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.messages: list[str] = []
        self.status = 200
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if hub.status != 200:
                    self.answer(hub.status, {"error": "Invalid username or password."})
                    return
                self.answer(200, hub.post(self.path, body))

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                found = hub.file(self.path)
                if found is None:
                    self.send_response(404)
                    self.send_header("X-Error-Code", "EntryNotFound")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(200)
                self.send_header("ETag", f'"{abs(hash(found))}"')
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(found)

            def answer(self, status: int, document: object) -> None:
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def post(self, path: str, body: bytes) -> object:
        if path == "/api/repos/create":
            wanted = json.loads(body)
            name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
            self.repositories.setdefault(name, {})
            if wanted.get("private") or wanted.get("visibility") == "private":
                self.private.add(name)
            return {"url": f"{self.url}/{name}"}
        if path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            return {
                "files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]
            }
        if path.endswith("/commit/main"):
            name = path.removeprefix("/api/models/").removesuffix("/commit/main")
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "header":
                    self.messages.append(line["value"]["summary"])
                elif line["key"] == "file":
                    self.repositories[name][line["value"]["path"]] = base64.b64decode(
                        line["value"]["content"]
                    )
            return {"commitUrl": f"{self.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT}
        return {"errors": [], "warnings": []}  # /api/validate-yaml

    def file(self, path: str) -> bytes | None:
        name, _, rest = path.lstrip("/").partition("/resolve/")
        return self.repositories.get(name, {}).get(rest.partition("/")[2])


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    point_hub_at(hub.url, tmp_path, monkeypatch)
    thread = threading.Thread(target=hub.server.serve_forever)
    thread.start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()
