"""Files of a store as files of this machine."""

import json
from pathlib import Path

import pytest

import bytemill as bm
from bytemill.datasets import DECLARATION
from bytemill.errors import CorpusError, StorageError
from bytemill.storage import StoreFolder, exists, local_input, local_output
from bytemill.training.counts import load, save
from tests.support.s3_server import S3Server


@pytest.fixture(scope="module")
def tok() -> bm.Tokenizer:
    return bm.train_from_iterator([DECLARATION.joinpath("udhr_eng.txt").read_text()], 280, ["<|end|>"])


def test_a_copy_is_made_once_for_each_version(s3: S3Server):
    store = StoreFolder(s3.bucket())
    store.put("a.json", b"1")
    store.put("b.json", b"2")
    path = local_input(f"{store}/a.json", ["b.json", "c.json"])
    assert (path.read_bytes(), (path.parent / "b.json").read_bytes()) == (b"1", b"2")
    s3.requests.clear()
    assert local_input(f"{store}/a.json", ["b.json", "c.json"]) == path
    assert {request.method for request in s3.requests} == {"HEAD"}
    store.put("a.json", b"three")
    again = local_input(f"{store}/a.json", ["b.json", "c.json"])
    assert again.read_bytes() == b"three"
    assert not path.exists()
    with pytest.raises(StorageError, match="there is no"):
        local_input(f"{store}/nothing")
    assert local_input("here.json") == Path("here.json")


def test_folders(s3: S3Server):
    url = s3.bucket()
    with local_output(f"{url}/a/model") as folder:
        (folder / "within").mkdir(parents=True)
        (folder / "within" / "x").write_bytes(b"x")
        (folder / ".hidden").write_bytes(b"")
    assert StoreFolder(url).list() == {"a/model/within/x": 1}
    assert (local_input(f"{url}/a/model") / "within" / "x").read_bytes() == b"x"
    assert not exists(f"{url}/a/model")
    assert exists(f"{url}/a/model/within/x")


def test_nothing_is_uploaded_after_an_error(s3: S3Server):
    url = s3.bucket()

    def fail() -> None:
        with local_output(f"{url}/a") as path:
            path.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert StoreFolder(url).list() == {}


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("tokenizer.json", "huggingface"),
        ("own/", "huggingface"),
        ("own.tiktoken", "tiktoken"),
        ("g/vocab.json", "gpt2"),
    ],
)
def test_tokenizers(tok: bm.Tokenizer, s3: S3Server, name: str, format_name: str):
    url = f"{s3.bucket()}/{name}"
    tok.save(url, format=format_name)
    found = bm.Tokenizer.load(url)
    assert found.encode("lower newer") == tok.encode("lower newer")
    assert found.special_tokens.keys() <= tok.special_tokens.keys()
    if name == "own/":
        assert found.to_spec().metadata is not None


def test_counts(s3: S3Server, tmp_path: Path):
    (tmp_path / "a.txt").write_text("low lower lowest " * 50)
    url = f"{s3.bucket()}/counts"
    first = bm.train([tmp_path / "a.txt"], 258, counts=url)
    assert load(url).info.n_bytes == 850
    assert bm.train([tmp_path / "a.txt"], 258, counts=url).merges == first.merges
    with pytest.raises(CorpusError, match=f"^{url} was counted with the pattern"):
        bm.train([tmp_path / "a.txt"], 258, counts=url, pattern="cl100k")
    save(load(url), tmp_path / "here")
    assert StoreFolder(url.rpartition("/")[0]).size("counts") == (tmp_path / "here").stat().st_size


def test_reports(tok: bm.Tokenizer, s3: S3Server, tmp_path: Path):
    (tmp_path / "a.txt").write_text("low lower lowest " * 50)
    url = f"{s3.bucket()}/report.json"
    bm.compare([tok, tok.truncate(270)], [tmp_path / "a.txt"]).save(url)
    assert json.loads(local_input(url).read_text())
