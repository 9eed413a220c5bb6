"""Property: randomly damaged tokenizer files are read or refused with `TokenizerFileError`."""

import json
import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from bytemill import BytemillError, Tokenizer
from bytemill.formats import gpt2, minbpe, tiktoken
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.spec import TokenizerSpec

MakeSpec = Callable[..., TokenizerSpec]

ODD_VALUES: list[Any] = [
    *(None, True, 0, -1, 1, 255, 256, 257, 2**31, 2**32, 2**64, 10**400, 1.5, 1e308, "", "a", "ab", "Ġ", "é"),
    *("\ud800", "\x00", [], {}, [[]], ["a", "b"], "a b", "a b c", {"a": 1}, "BPE", "Split", "ByteLevel"),
]
ODD_BYTES = b'{}[]",:0129-.eE \\untrue\x00\xff\xed\xa0\x80\n='


def places_of(document: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a JSON document but itself, few of them inside long lists and tables."""
    if not isinstance(document, dict | list):
        return []
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    places: list[tuple[Any, ...]] = []
    for key in keys[:6] + keys[-8:]:
        places += [(*place, key), *places_of(document[key], (*place, key))]
    return places


def mutate(document: Any, chance: random.Random) -> None:
    """Replaces, removes, repeats or moves something."""
    place = chance.choice(places_of(document))
    parent = document
    for key in place[:-1]:
        parent = parent[key]
    key = place[-1]
    match chance.randrange(5):
        case 0 | 1:
            parent[key] = deepcopy(chance.choice(ODD_VALUES))
        case 2:
            del parent[key]
        case 3 if isinstance(parent, list):
            parent.insert(key, deepcopy(parent[key]))
        case 3:
            parent[chance.choice(["a", "Ġab", "type", "vocab", "zz", "\x00", "é"])] = parent[key]
        case _:
            other = document
            for step in chance.choice(places_of(document)):
                other = other[step]
            parent[key] = deepcopy(other)


def damage(data: bytes, chance: random.Random) -> bytes:
    """Changes, takes out, doubles or cuts off a few bytes."""
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(damaged) + 1)
        match chance.randrange(4):
            case 0:
                damaged[at : at + 1] = bytes([chance.choice(ODD_BYTES)])
            case 1:
                del damaged[at : at + chance.randint(1, 40)]
            case 2:
                damaged[at:at] = damaged[at : at + chance.randint(1, 40)]
            case _:
                del damaged[max(at, len(damaged) // 2) :]
    return bytes(damaged)


def read_or_refused(path: Path, **options: Any) -> bool:
    """Loads the file; where that succeeds the tokenizer must encode and give the text back.

    A file that Hugging Face's library runs must give the library's ids, whatever they are.
    """
    try:
        tokenizer = Tokenizer.load(path, **options)
    except BytemillError:
        return False
    text = "abab é ab\n<|endoftext|>"
    if tokenizer.engine != "core":
        library = tokenizers.Tokenizer.from_file(str(path))
        library.no_truncation()
        if isinstance(library.model, tokenizers.models.BPE):
            library.model.dropout = None  # encoding is not random
        try:
            ids = tokenizer.encode(text)
        except BytemillError:  # the library panics
            return False
        assert ids == library.encode(text, add_special_tokens=False).ids
        return True
    decoded = tokenizer.decode(tokenizer.encode(text))
    if "Metaspace" in (tokenizer.normalizer or ""):  # add_prefix_space
        decoded = decoded.removeprefix(" ")
    if b'"lstrip": true' in path.read_bytes():  # the token takes the white space before it
        text = text.replace("\n<", "<" if "\n<" not in decoded else "\n<")
    assert decoded == text
    return True


def try_mutants(
    path: Path, mutants: Callable[[random.Random], bytes], n_mutants: int, **options: Any
) -> None:
    n_read = 0
    for seed in range(n_mutants):
        data = mutants(random.Random(seed))
        path.write_bytes(data)
        try:
            n_read += read_or_refused(path, **options)
        except BaseException as error:
            error.add_note(f"seed {seed}: {data!r}")
            raise
    assert 0 < n_read < n_mutants, "the damage is neither always harmless nor always found"


@pytest.fixture(params=[600, pytest.param(15_000, marks=pytest.mark.slow)])
def n_mutants(request: pytest.FixtureRequest) -> int:
    return request.param


def test_tokenizer_json_with_other_values_and_keys(
    make_spec: MakeSpec, tmp_path: Path, n_mutants: int
) -> None:
    original = json.loads(huggingface.write(make_spec(ties="bytes", merge_counts=[5, 4, 3, 2, 1])))

    def mutant(chance: random.Random) -> bytes:
        document = deepcopy(original)
        for _ in range(chance.randint(1, 2)):
            mutate(document, chance)
        return json.dumps(document).encode()

    try_mutants(tmp_path / "tokenizer.json", mutant, n_mutants)


def test_tokenizer_json_with_other_bytes(make_spec: MakeSpec, tmp_path: Path, n_mutants: int) -> None:
    original = huggingface.write(make_spec())
    data = original.encode() if isinstance(original, str) else original
    try_mutants(tmp_path / "tokenizer.json", lambda chance: damage(data, chance), n_mutants)


def test_rank_files_with_other_bytes(make_spec: MakeSpec, tmp_path: Path, n_mutants: int) -> None:
    spec = make_spec()
    written = tiktoken.write(spec)
    data = written.encode() if isinstance(written, str) else written
    # Only the last lines: most damage to the 256 bytes is the same.
    head, tail = data[:-400], data[-400:]
    options = {"pattern": "gpt2", "special_tokens": {"<|endoftext|>": 999}}
    try_mutants(tmp_path / "x.tiktoken", lambda chance: head + damage(tail, chance), n_mutants, **options)


def test_gpt2s_files_with_other_bytes(make_spec: MakeSpec, tmp_path: Path, n_mutants: int) -> None:
    vocab_json, merges_txt = gpt2.write(make_spec())
    vocab, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    vocab.write_text(vocab_json, encoding="utf-8")
    merges.write_text(merges_txt, encoding="utf-8")
    try_mutants(merges, lambda chance: damage(merges_txt.encode(), chance), n_mutants)
    merges.write_text(merges_txt, encoding="utf-8")
    head, tail = vocab_json[:-200].encode(), vocab_json[-200:].encode()
    try_mutants(vocab, lambda chance: head + damage(tail, chance), n_mutants)


def test_vocab_json_with_other_values_and_keys(make_spec: MakeSpec, tmp_path: Path, n_mutants: int) -> None:
    vocab_json, merges_txt = gpt2.write(make_spec())
    (tmp_path / "merges.txt").write_text(merges_txt, encoding="utf-8")
    original = json.loads(vocab_json)

    def mutant(chance: random.Random) -> bytes:
        document = dict(original)
        mutate(document, chance)
        return json.dumps(document).encode()

    try_mutants(tmp_path / "vocab.json", mutant, n_mutants)


def test_models_with_other_bytes(make_spec: MakeSpec, tmp_path: Path, n_mutants: int) -> None:
    data = minbpe.write(make_spec(special_tokens={"<|endoftext|>": 1000, "<a>": 1001})).encode()
    try_mutants(tmp_path / "t.model", lambda chance: damage(data, chance), n_mutants)


def test_rank_settings_with_other_bytes(make_spec: MakeSpec, tmp_path: Path, n_mutants: int) -> None:
    rank_file, settings = tmp_path / "t.tiktoken", tmp_path / "t.tiktoken.json"
    rank_file.write_text(tiktoken.write(make_spec()))
    data = tiktoken.settings_text(make_spec(), "t").encode()
    n_read = 0
    for seed in range(n_mutants):
        settings.write_bytes(damage(data, random.Random(seed)))
        n_read += read_or_refused(rank_file)
    assert 0 < n_read < n_mutants


@pytest.mark.parametrize("written_format", ["tiktoken", "gpt2", "minbpe"])
def test_a_file_that_ends_at_any_byte_is_whole_or_refused(
    make_spec: MakeSpec, tmp_path: Path, written_format: Any
) -> None:
    """No file but a whole one is read, except for what a line less of it says."""
    whole = Tokenizer.from_spec(make_spec())
    whole.save(tmp_path / "t", format=written_format)
    said: list[str] = []
    files = sorted((tmp_path / "t").iterdir()) if (tmp_path / "t").is_dir() else [tmp_path / "t"]
    for file in files:
        data = file.read_bytes()
        for length in [*range(0, len(data), 7), *range(max(0, len(data) - 300), len(data))]:
            file.write_bytes(data[:length])
            try:
                tokenizer = Tokenizer.load(tmp_path / "t")
            except BytemillError as error:
                said.append(str(error))
                continue
            is_whole = tokenizer.fingerprint == whole.fingerprint
            assert is_whole or (written_format == "minbpe" and data[:length].endswith(b"\n")), (file, length)
            n_merges = len(tokenizer.merges)
            assert tokenizer.merges == whole.merges[:n_merges]
        file.write_bytes(data)
    assert said
    assert all(str(tmp_path) in message for message in said)
