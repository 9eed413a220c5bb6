"""The cache of compiled vocabularies: the same tokenizer as from the file, whatever became of the cache."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill import Tokenizer
from bytemill._core import Encoder, TokenizerJson
from bytemill.datasets import DECLARATION
from bytemill.errors import TokenizerFileError
from bytemill.formats import compiled_cache
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.registry import FORMATS, TokenizerFormat, register_tokenizer_format

TEXT = "Hello <|end|> world 123, héllo — naïve 日本 <pad>\n\n  x"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the entries; files of any size have one."""
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled_cache, "MIN_BYTES", 1)
    return tmp_path / "cache" / "vocabularies"


@pytest.fixture(params=["bytes", "characters"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = saved(tmp_path / "tokenizer.json")
    if request.param == "characters":
        path.write_text(json.dumps(of_characters(json.loads(path.read_text()))))
    return path


def of_characters(document: dict[str, Any]) -> dict[str, Any]:
    """Replace the vocabulary of a tokenizer.json by 400 tokens of bytes, characters and words."""
    words = ["Hello", "▁world", "▁he", "本"]
    starts = {word[:end] for word in words for end in range(2, len(word) + 1)}
    merges = [[text[:-1], text[-1]] for text in sorted(starts, key=len)]
    texts = [
        "<|end|>",
        "<pad>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *sorted(starts | set("".join(words))),
    ]
    texts += [chr(0x5000 + index) for index in range(400 - len(texts))]
    vocab = {text: token_id for token_id, text in enumerate(texts)}
    added = [entry | {"id": vocab[entry["content"]]} for entry in document["added_tokens"]]
    model = {"type": "BPE", "byte_fallback": True, "vocab": vocab, "merges": merges}
    steps = [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]
    return document | {
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
            ],
        },
        "model": model,
    }


@pytest.fixture
def no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, only entries are read."""

    def fail(data: bytes) -> None:
        pytest.fail(f"a file of {len(data)} bytes was parsed")

    monkeypatch.setattr(tokenizer_json, "_parse", fail)


def saved(path: Path, vocab_size: int = 400) -> Path:
    texts = [*sorted(DECLARATION.glob("*.txt"))[:4]]
    tokenizer = bytemill.train(texts, vocab_size, special_tokens=["<|end|>", "<pad>"])
    tokenizer.save(path)
    return path


def facts(tokenizer: Tokenizer) -> tuple[object, ...]:
    return (
        tokenizer.encode(TEXT),
        tokenizer.encode_ordinary(TEXT),
        tokenizer.fingerprint,
        tokenizer.special_tokens_set,
        tokenizer.pattern,
        tokenizer.metadata,
        [tokenizer.decode_bytes([token]) for token in range(tokenizer.vocab_size)],
        [tokenizer.token_to_id(token) for token in ("Hello", "<pad>", "nothing at all")],
    )


def only(folder: Path) -> Path:
    (entry,) = folder.iterdir()
    return entry


def test_the_second_load_parses_nothing(folder: Path, path: Path, request: pytest.FixtureRequest):
    first = Tokenizer.load(path)
    entry = only(folder)
    request.getfixturevalue("no_parser")
    assert facts(Tokenizer.load(path)) == facts(first)
    assert only(folder) == entry


def test_settings_beside_the_file_are_read_again(folder: Path, path: Path):
    metadata = Tokenizer.load(path).metadata
    assert metadata is None or metadata.config is None
    (path.parent / "tokenizer_config.json").write_text('{"model_max_length": 77}')
    metadata = Tokenizer.load(path).metadata
    assert metadata is not None
    assert metadata.config == {"model_max_length": 77}


def test_another_content_is_another_entry(folder: Path, path: Path):
    first = Tokenizer.load(path)
    saved(path, 450)
    second = Tokenizer.load(path)
    assert (first.vocab_size, second.vocab_size) == (400, 450)
    assert len(list(folder.iterdir())) == 2


def damages(block: bytes) -> Iterator[bytes]:
    yield b""
    yield b"bytemill"
    yield block[: len(block) // 2]
    yield block + b"\0"
    yield block.replace(b"bytemill vocab 2", b"bytemill vocab 0")
    for at in range(0, len(block), len(block) // 40):
        yield block[:at] + bytes([block[at] ^ 0x40]) + block[at + 1 :]


def test_damaged_entries_are_replaced(folder: Path, path: Path):
    expected = facts(Tokenizer.load(path))
    entry = only(folder)
    block = entry.read_bytes()
    for damaged in damages(block):
        entry.write_bytes(damaged)
        assert facts(Tokenizer.load(path)) == expected
        assert TokenizerJson.read_compiled(entry.read_bytes()[len(entry.name) :]) is not None


def test_an_entry_of_another_file_does_not_pass(folder: Path, path: Path, tmp_path: Path):
    other = saved(tmp_path / "other.json", 450)
    Tokenizer.load(other)
    foreign = only(folder).read_bytes()
    only(folder).unlink()
    expected = facts(Tokenizer.load(path))
    only(folder).write_bytes(foreign)
    assert facts(Tokenizer.load(path)) == expected
    # A block that is whole, but whose special tokens are not those of the rest of its file.
    name, block = only(folder).name.encode(), only(folder).read_bytes()
    loaded = tokenizer_json.load_tokenizer_json(path.read_bytes(), "t")
    assert loaded is not None
    assert isinstance(loaded.core, Encoder)
    rest = json.dumps(json.loads(path.read_text()) | {"added_tokens": []})
    changed = loaded.core.compiled(rest, 400, 142)
    assert len(changed) != len(block)
    only(folder).write_bytes(name + changed)
    assert facts(Tokenizer.load(path)) == expected


def test_a_folder_that_cannot_be_written_is_no_error(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(compiled_cache, "MIN_BYTES", 1)
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "file" / "cache"))
    assert Tokenizer.load(path).vocab_size == 400


def test_small_files_have_no_entry(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "cache"))
    Tokenizer.load(path)
    assert not (tmp_path / "cache").exists()


def test_only_the_last_entries_are_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiled_cache, "MAX_ENTRIES", 3)
    files = [saved(tmp_path / f"{size}.json", size) for size in range(300, 305)]
    for number, file in enumerate(files):
        Tokenizer.load(file)
        for entry in folder.iterdir():
            os.utime(entry, (entry.stat().st_atime, number))
        Tokenizer.load(files[0])  # used again each time
    kept = {entry.name.split(".")[0] for entry in folder.iterdir()}
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    assert len(kept) == 3
    assert {digests[0], digests[-1]} <= kept


def test_arguments_and_registered_formats_pass_the_cache_by(
    folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch
):
    Tokenizer.load(path)
    with pytest.raises(TokenizerFileError, match="pattern"):
        Tokenizer.load(path, pattern="gpt2")
    monkeypatch.setattr("bytemill.formats.registry.FORMATS", dict(FORMATS))
    spec = Tokenizer.load(saved(path.parent / "other.json", 300)).to_spec()
    own = TokenizerFormat("own", "own files", (".own",), lambda _: True, lambda *_: spec)
    register_tokenizer_format(own)
    assert Tokenizer.load(path).vocab_size == 300


def test_several_processes_fill_the_cache_at_once(folder: Path, path: Path):
    code = (
        "import sys; from bytemill.formats import compiled_cache; compiled_cache.MIN_BYTES = 1\n"
        "from bytemill import Tokenizer\n"
        "for _ in range(20): print(Tokenizer.load(sys.argv[1]).vocab_size)"
    )
    command = [sys.executable, "-c", code, str(path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    # Meanwhile entries disappear and are damaged.
    while any(process.poll() is None for process in running):
        for entry in folder.glob("*.1"):
            entry.write_bytes(b"damaged")
            entry.unlink(missing_ok=True)
    for process in running:
        assert process.stdout is not None
        assert process.stdout.read().split() == ["400"] * 20
        process.stdout.close()
        assert process.returncode == 0
    assert not list(folder.glob("*.tmp"))
