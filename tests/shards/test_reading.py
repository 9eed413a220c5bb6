"""Reading shards: as one array, and never silently from a folder that is damaged."""

import hashlib
import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Corpus
from bytemill.data.manifest import shard_hashes
from bytemill.errors import ShardError
from bytemill.shards import TokenShards, encode_corpus, read_manifest, verify

from .packed_documents import TOKENIZER

TEXT = "".join(chr(33 + i % 90) for i in range(100))
WHOLE = np.frombuffer(TEXT.encode(), np.uint8).astype(np.uint16)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder of seven shards, 100 tokens in all."""
    return written(tmp_path / "shards")


def written(folder: Path) -> Path:
    encode_corpus(TOKENIZER, Corpus.from_texts([TEXT]), folder, shard_tokens=16, separators=False)
    return folder


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> TokenShards:
    return TokenShards(written(tmp_path_factory.mktemp("module") / "shards"))


@given(start=st.integers(-120, 120), stop=st.integers(-120, 120) | st.none())
def test_slices_are_those_of_one_array(tokens: TokenShards, start: int, stop: int | None) -> None:
    piece = tokens[start:stop]
    assert piece.dtype == np.uint16
    assert piece.tolist() == WHOLE[start:stop].tolist()
    if -100 <= start < 100:
        assert tokens[start] == WHOLE[start]
    else:
        with pytest.raises(IndexError, match=f"token {start} of 100"):
            tokens[start]


def test_tokens_are_read_across_shards_as_copies(tokens: TokenShards) -> None:
    assert (len(tokens), tokens.n_tokens, tokens.dtype) == (100, 100, np.dtype("uint16"))
    for start, stop in ((10, 60), (0, 100), (16, 32), (100, 100)):
        assert tokens.read(start, stop).tolist() == WHOLE[start:stop].tolist()
    piece = tokens.read(0, 5)
    piece[:] = 0
    assert tokens.read(0, 5).tolist() == WHOLE[:5].tolist()
    for n_tokens in (1, 7, 16, 99, 100, 1000):
        blocks = list(tokens.blocks(n_tokens))
        assert np.concatenate(blocks).tolist() == WHOLE.tolist()
        assert all(len(block) == n_tokens for block in blocks[:-1])
    for start, stop in ((-1, 5), (0, 101), (6, 5), (101, 101)):
        with pytest.raises(IndexError, match=f"tokens {start} to {stop} of 100"):
            tokens.read(start, stop)
    with pytest.raises(ValueError, match="step 1, not 2"):
        tokens[::2]


def test_shards_are_mapped_read_only(tokens: TokenShards) -> None:
    assert [len(array) for array in tokens.arrays] == [16] * 6 + [4]
    assert all(isinstance(array, np.memmap) for array in tokens.arrays)
    with pytest.raises(ValueError, match="read-only"):
        tokens.arrays[0][0] = 1


def test_shard_hashes_are_those_of_the_files(tokens: TokenShards, tmp_path: Path) -> None:
    hashes = shard_hashes(tokens.folder)
    assert list(hashes) == [f"shard_{index:05d}.npy" for index in range(7)]
    for name, sha256 in hashes.items():
        assert hashlib.sha256((tokens.folder / name).read_bytes()).hexdigest() == sha256
    with pytest.raises(ShardError, match=r"manifest\.json"):
        shard_hashes(tmp_path)


def test_a_pickle_has_the_path_and_not_the_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    encode_corpus(TOKENIZER, Corpus.from_texts([TEXT * 10_000]), "shards", shard_tokens=400_000)
    tokens = TokenShards("shards")
    data = pickle.dumps(tokens)
    assert len(data) < 10_000
    monkeypatch.chdir("/")  # as a worker elsewhere
    again = pickle.loads(data)  # noqa: S301
    assert "arrays" not in vars(again)  # the worker that reads maps the files
    assert again[399_990:400_010].tolist() == tokens[399_990:400_010].tolist()
    assert isinstance(again.arrays[0], np.memmap)


def damage(path: Path, offset: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("break_it", "problems", "opens"),
    [
        (Path.unlink, [r"shard_00002.npy is missing"], False),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-2]),
            ["has 158 bytes, the manifest says 160", "has sha256", "158 bytes; 16 ids .* 160"],
            False,
        ),
        (lambda path: damage(path, 130, b"\0"), ["has sha256 .*, the manifest says"], True),
        (lambda path: damage(path, 0, b"X"), ["has sha256", "is not a valid .npy file"], False),
        (lambda path: np.save(path, np.zeros(16, np.int16)), ["has sha256", "holds int16"], False),
        (
            lambda path: np.save(path, np.zeros((4, 4), np.uint16)),
            ["has sha256", r"has shape \(4, 4\).* \(the manifest says 16 tokens of uint16\)"],
            False,
        ),
    ],
)
def test_a_damaged_shard_is_found(
    shards: Path, break_it: Callable[[Path], None], problems: list[str], opens: bool
) -> None:
    assert verify(shards) == []
    break_it(shards / "shard_00002.npy")
    found = verify(shards)
    for sentence, pattern in zip(found, problems, strict=True):
        assert re.search(pattern, sentence)
        assert sentence.startswith("shard_00002.npy")
    if opens:
        TokenShards(shards)
    else:
        with pytest.raises(ShardError, match=r"are damaged: shard_00002\.npy"):
            TokenShards(shards)


def test_folders_without_a_manifest_say_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name, message in (
        ("", r"contains no manifest\.json"),
        ("absent", "there is no folder"),
        ("file", "is a file, not a folder of shards"),
    ):
        with pytest.raises(ShardError, match=message):
            read_manifest(tmp_path / name)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("format", "other", "format is 'other'; it must be 'bytemill-shards'"),
        ("version", "1", "version is '1'; it must be a valid integer"),
        ("version", 4, "has format version 4; this version of bytemill reads 3"),
        ("version", 2, "has format version 2; this version of bytemill reads 3"),
        ("n_tokens", ..., "n_tokens is missing"),
        ("n_tokens", 99, "its shards have 100 tokens in total, but n_tokens is 99"),
        ("n_bytes", -1, "n_bytes is -1; it must be greater than or equal to 0"),
        ("n_documents", True, "n_documents is True; it must be a valid integer"),
        ("n_vocab", 257.0, "n_vocab is 257.0"),
        ("dtype", "int64", "dtype is 'int64'"),
        ("fingerprint", None, "fingerprint is None"),
        ("shards", {}, "shards is {}; it must be a list"),
        ("shards 1", "x", "shards[1] is 'x'; it must be a JSON object"),
        ("shards 1 sha256", ..., "shards[1].sha256 is missing"),
        ("shards 0 file", "../shard_00000.npy", "shards[0].file is '../shard_00000.npy'"),
        ("shards 0 n_tokens", "16", "shards[0].n_tokens is '16'"),
        ("sources 0 name", ..., "sources[0].name is missing"),
        ("settings", ..., "settings is missing"),
        ("settings errors", "ignore", "settings.errors is 'ignore'"),
        ("settings allowed_special", 5, "settings.allowed_special is 5"),
        ("settings document_separator", 5, "settings.document_separator is 5"),
        ("settings append_separator", 0, "settings.append_separator is 0; it must be a valid boolean"),
        ("settings validation_fraction", 1.5, "settings.validation_fraction is 1.5; it must be less than 1"),
        ("documents", {"file": "x"}, "documents.file is 'x'; it must be the file name of a document index"),
    ],
)
def test_a_damaged_manifest_is_named_by_its_field(shards: Path, path: str, value: object, says: str) -> None:
    manifest = shards / "manifest.json"
    document = json.loads(manifest.read_text("utf-8"))
    *keys, last = [int(key) if key.isdigit() else key for key in path.split()]
    place = document
    for key in keys:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    manifest.write_text(json.dumps(document), "utf-8")
    for read in (read_manifest, verify, TokenShards):
        with pytest.raises(ShardError) as caught:
            read(shards)
        assert says in str(caught.value)
        assert str(manifest) in str(caught.value)
        assert caught.value.hint
        assert value != 4 or caught.value.hint == "update bytemill"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": "bytemill-shards"'])
def test_what_is_no_json_object_is_a_damaged_manifest(shards: Path, corpus: Path, data: bytes) -> None:
    (shards / "manifest.json").write_bytes(data)
    with pytest.raises(ShardError, match=r"manifest\.json is damaged"):
        read_manifest(shards)
    with pytest.raises(ShardError, match=r"manifest\.json is damaged"):
        encode_corpus(TOKENIZER, corpus / "a.txt", shards, separators=False)
    encode_corpus(TOKENIZER, corpus / "a.txt", shards, overwrite=True, separators=False)
    assert verify(shards) == []


def test_unknown_keys_are_ignored(shards: Path) -> None:
    """A later version of bytemill may add keys to the same format version."""
    before = read_manifest(shards)
    manifest = shards / "manifest.json"
    document = json.loads(manifest.read_bytes())
    for part in (document, document["settings"], document["shards"][0]):
        part["added_later"] = 1
    manifest.write_text(json.dumps(document), "utf-8")
    assert read_manifest(shards) == before


def test_source_names_that_are_not_utf8_come_back(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / name).write_text("text")
    encoded = encode_corpus(TOKENIZER, tmp_path / name, tmp_path / "out", separators=False)
    assert read_manifest(tmp_path / "out") == encoded
    assert encoded.sources[0].name == str(tmp_path / name)
