"""Azure Blob Storage, as its emulator Azurite has it: npm install -g azurite, then pytest -m azure."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from uuid import uuid4

import pytest

import bytemill as bm
from bytemill.cluster import encode_corpus, open_executor
from bytemill.data.convert import convert_shards
from bytemill.errors import StorageError
from bytemill.storage import StoreFolder

pytestmark = pytest.mark.azure

ACCOUNT = "devstoreaccount1"
# Every emulator has this key: https://learn.microsoft.com/azure/storage/common/storage-use-azurite
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    program = shutil.which("azurite-blob")
    assert program is not None, "Azurite is not installed: npm install -g azurite"
    with socket.create_server(("127.0.0.1", 0)) as free:
        found: int = free.getsockname()[1]
    place = ["--location", str(tmp_path_factory.mktemp("azurite"))]
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(found), *place, "--skipApiVersionCheck"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            assert process.poll() is None, "Azurite has ended"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", found), timeout=1):
                break
            time.sleep(0.1)
        yield found
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def url(port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new container."""
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{port}")
    name = f"container-{uuid4().hex[:12]}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    # https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
    named = "".join(f"{key}:{value}\n" for key, value in headers.items())
    signed = "PUT" + "\n" * 12 + f"{named}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port)
    with contextlib.closing(connection):
        connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
    return f"az://{name}/some/folder"


def test_objects(url: str, tmp_path: Path):
    folder = StoreFolder(url)
    assert (folder.get("a"), folder.size("a"), folder.list()) == (None, None, {})
    folder.put("a", b"one")
    folder.put("within/b", b"")
    assert folder.list() == {"a": 3, "within/b": 0}
    assert folder.read("a", 1, 2) == b"ne"
    folder.delete(["absent", "a"])
    assert folder.list() == {"within/b": 0}
    with pytest.raises(StorageError, match=f"there is no {url}/a"):
        folder.read("a", 0, 1)
    for n_bytes in (0, 100_000, 40_000_003):
        (tmp_path / "there").write_bytes(data := os.urandom(n_bytes))
        folder.upload("file", tmp_path / "there")
        folder.download("file", tmp_path / "back", hashlib.sha256(data).hexdigest())
        assert (tmp_path / "back").read_bytes() == data


def test_of_several_writers_the_first_wins(url: str):
    folder = StoreFolder(url)
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: folder.create("manifest", b"%d" % number), range(8)))
    assert sum(won) == 1
    first = folder.get("manifest")
    assert first is not None
    assert first.data == b"%d" % won.index(True)
    assert folder.replace("manifest", b"next", first.version)
    assert not folder.replace("manifest", b"late", first.version)
    assert not folder.create("manifest", b"late")
    last = folder.get("manifest")
    assert last is not None
    assert last.data == b"next"


def test_a_corpus_a_tokenizer_and_shards(url: str, tmp_path: Path):
    store = StoreFolder(url)
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"text {number} 日本\n" * 900, encoding="utf-8")
        store.upload(f"texts/{number}.txt", tmp_path / f"{number}.txt")
    tok = bm.train([f"{url}/texts/*.txt"], vocab_size=265)
    tok.save(f"{url}/tokenizer.json")
    tok = bm.Tokenizer.load(f"{url}/tokenizer.json")
    texts = [tmp_path / f"{number}.txt" for number in range(4)]
    bm.encode_corpus(tok, texts, tmp_path / "here", shard_tokens=900, document_index=True)
    bm.encode_corpus(tok, f"{url}/texts/*.txt", f"{url}/one", shard_tokens=900, document_index=True)
    with open_executor("local", num_workers=2) as executor:
        encode_corpus(
            executor,
            tok,
            f"{url}/texts/*.txt",
            f"{url}/several",
            unit_bytes=5000,
            shard_tokens=900,
            document_index=True,
        )
    convert_shards(f"{url}/one", f"{url}/converted", layout="npy")
    here = bm.shards.read_manifest(tmp_path / "here")
    for name in ("one", "several", "converted"):
        manifest = bm.shards.read_manifest(f"{url}/{name}")
        assert bm.shards.verify(f"{url}/{name}") == []
        assert [shard.sha256 for shard in manifest.shards] == [shard.sha256 for shard in here.shards]
