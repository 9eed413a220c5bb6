"""Commands that read from an object store and write to it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.s3_server import SECRET, S3Server
from tests.support.stored_shards import assert_stored

from bytemill.storage import StoreFolder

Run = Callable[..., Any]

LOCAL = ("--executor", "local", "--num-workers", "2", "--unit-size", "2kB")


@pytest.mark.parametrize("processes", [(), LOCAL], ids=["one process", "several"])
def test_a_tokenizer_and_shards(work: Path, run: Run, s3: S3Server, processes: tuple[str, ...]):
    url = s3.bucket()
    train = ("tokenizer", "train", "corpus.txt", "--vocab-size", "300", "--special-token", "<|endoftext|>")
    assert run(*train, "-o", "here.json").status == 0
    trained = run(*train, "-o", f"{url}/tokenizer.json", *processes)
    assert trained.status == 0, trained.err
    assert f"{url}/tokenizer.json: " in trained.out
    assert f'See it: bytemill tokenizer inspect {url}/tokenizer.json "Some text"' in trained.out
    store = StoreFolder(url)
    assert store.list() == {"tokenizer.json": Path("here.json").stat().st_size}
    refused = run(*train, "-o", f"{url}/tokenizer.json", *processes)
    assert (refused.status, f"{url}/tokenizer.json already exists" in refused.err) == (1, True)
    assert run(*train, "-o", f"{url}/tokenizer.json", "--overwrite", *processes).status == 0

    options = ("corpus.txt", "--shard-tokens", "300", "--documents", "line")
    options += ("--validation-fraction", "0.4", "--split-seed", "3")
    encode = ("data", "encode", f"{url}/tokenizer.json", *options)
    assert run(*encode, "-o", "shards").status == 0
    encoded = run(*encode, "-o", f"{url}/shards", *processes)
    assert encoded.status == 0, encoded.err
    assert f"{url}/shards" in encoded.out
    assert_stored(f"{url}/shards", work / "copy", work / "shards")
    again = run(*encode, "-o", f"{url}/shards", *processes)
    assert again.status == 0
    if not processes:
        assert f"note: {url}/shards already contains these shards: nothing to do\n" in again.err

    shown = run(f"data info {url}/shards --verify")
    assert shown.status == 0, shown.err
    assert "verified: every shard matches the manifest" in shown.out
    store.put("shards/train/shard_00000.0123456789ab.npy", b"left")
    noted = run(f"data info {url}/shards")
    # Stores count in seconds. An object of the manifest's second is left over, a younger one may be of another run.
    removed = "note: removed 1 object that an encoding left"
    assert (
        removed in noted.err
        or f"note: {url}/shards/train has 1 file more (4 bytes), of an encoding" in noted.err
    )
    found = json.loads(run(f"data info {url}/shards --json").out)
    assert found["parts"]["train"]["folder"] == f"{url}/shards/train"
    name = next(name for name in store.list() if name.startswith("shards/train/shard_00001"))
    store.put(name, bytes(store.size(name) or 0))
    damaged = run(f"data info {url}/shards --verify")
    assert damaged.status == 1
    assert f"{Path(name).name} has sha256 " in damaged.err


def test_conversions(work: Path, run: Run, s3: S3Server, tokenizer_file: str):
    url = s3.bucket()
    Path("here/gpt2").mkdir(parents=True)
    for name in ("mine.tiktoken", "tokenizer.json", "gpt2/vocab.json", "folder", "mine.vocab"):
        here = run(f"tokenizer convert tokenizer.json here/{name}")
        assert here.status == 0, here.err
        outcome = run(f"tokenizer convert tokenizer.json {url}/{name}")
        assert outcome.status == 0, outcome.err
        assert outcome.out.startswith(f"{url}/{name}")
    store = StoreFolder(url)
    here = {path.relative_to("here").as_posix() for path in Path("here").rglob("*") if path.is_file()}
    assert set(store.list()) == here
    for name in here:
        found = store.get(name)
        assert found is not None
        assert found.data == Path("here", name).read_bytes(), name
    refused = run(f"tokenizer convert tokenizer.json {url}/folder")
    assert (refused.status, f"error: {url}/folder/merges.txt already exists" in refused.err) == (1, True)
    assert run(f"tokenizer convert tokenizer.json {url}/folder --overwrite").status == 0
    found = json.loads(run(f"tokenizer convert {url}/tokenizer.json {url}/b.json --json").out)
    assert (found["input"], found["output"]) == (f"{url}/tokenizer.json", [f"{url}/b.json"])

    assert run("data encode tokenizer.json corpus.txt -o shards").status == 0
    outcome = run(f"data convert shards {url}/bin --layout bin")
    assert outcome.status == 0, outcome.err
    assert f"{url}/bin" in outcome.out
    assert run(f"data info {url}/bin --verify").status == 0


def test_errors_are_one_line_and_a_hint(work: Path, run: Run, s3: S3Server, tokenizer_file: str):
    for arguments, message in [
        (("data", "info", "s3://no-such-bucket/x"), "there is no bucket for s3://no-such-bucket/x"),
        (("data", "info", f"{s3.bucket()}/x"), "contains no manifest.json"),
        (("tokenizer", "inspect", "s3://no-such-bucket/t.json", "a"), "there is no bucket"),
        (("data", "encode", tokenizer_file, "corpus.txt", "-o", "ftp://host/x"), "ftp:// names no store"),
        (("data", "encode", tokenizer_file, "corpus.txt", "-o", "https://host/x"), "cannot be written"),
    ]:
        outcome = run(*arguments)
        assert outcome.status == 1, outcome
        assert message in outcome.err
        assert "hint: " in outcome.err
        assert len(outcome.err.splitlines()) <= 4
    url = s3.bucket()
    with s3.fault(lambda _: "403"):
        outcome = run(f"data encode tokenizer.json corpus.txt -o {url}")
    assert outcome.status == 1
    assert SECRET not in outcome.err
    assert "credentials" in outcome.err
