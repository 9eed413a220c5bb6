"""Property: the core reads of a file what the readers in Python read of it, or leaves the file to them."""

import base64
import json
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill import BytemillError, Tokenizer, _core
from bytemill._core import piece_merges
from bytemill.formats import gguf_metadata, gpt2, sentencepiece, tekken
from bytemill.formats.byte_level import ALPHABET
from bytemill.formats.encoder import Loaded, build_file
from bytemill.formats.gguf_models import model_file
from bytemill.formats.registry import Content
from bytemill.formats.spec import TokenizerSpec

TEXTS = st.text(st.sampled_from("ab c▁é日\0"), max_size=5) | st.text(max_size=3)


class Nothing:
    """`StringArray` that reads no block."""

    @staticmethod
    def read(*_: object) -> None:
        return None

    def __new__(cls, texts: list[str]) -> Any:
        return _core.StringArray(texts)


def outcome(read: Callable[[], object]) -> object:
    try:
        return read()
    except BytemillError as error:
        return str(error)


def damaged(data: bytes, changes: list[tuple[int, int]], n_cut: int) -> bytes:
    changed = bytearray(data)
    for at, byte in changes:
        if changed:
            changed[at % len(changed)] = byte
    return bytes(changed[: len(changed) - n_cut % (len(changed) + 1)])


DAMAGE = st.just(([], 0)) | st.tuples(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3), st.integers(0, 20)
)
PIECES = st.lists(
    st.tuples(TEXTS, st.sampled_from([0.0, -0.0, -1.0, -2.5, 1e30]), st.integers(1, 7)), max_size=12
)


@given(PIECES, DAMAGE)
def test_models_of_sentencepiece(
    pieces: list[tuple[str, float, int]], damage: tuple[list[tuple[int, int]], int]
) -> None:
    texts, scores, kinds = (list(column) for column in zip(*pieces, strict=True)) if pieces else ([], [], [])
    data = model_file(sentencepiece.Model(texts, scores, kinds, {3: 2, 35: 1}, {2: b"", 3: 1, 4: 0}))
    data = damaged(data, *damage)
    found = outcome(lambda: sentencepiece._parse(data, "m"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentencepiece, "read_pieces", lambda _: None)
        assert repr(outcome(lambda: sentencepiece._parse(data, "m"))) == repr(
            found
        )  # also where a score is nan


def merges_of(pieces: dict[int, str], scores: dict[int, float]) -> tuple[list[tuple[str, str]], list[int]]:
    """Reference of `piece_merges`: all splits of a piece into pieces or single characters, and their ranks."""
    known = {*pieces.values(), *(character for text in pieces.values() for character in text)}
    order = sorted(pieces, key=lambda index: (-scores[index], index))
    splits = {index: [pieces[index][:at] for at in range(1, len(pieces[index]))] for index in order}
    made = [
        (scores[index], left, right)
        for index in order
        for left in splits[index]
        if left in known and (right := pieces[index][len(left) :]) in known
    ]
    ranks = [0] * len(made)
    for at, (one, other) in enumerate(pairwise(made), 1):
        ranks[at] = ranks[at - 1] + (one[0] != other[0])
    return [(left, right) for _, left, right in made], ranks


@given(st.lists(st.text("abé日", min_size=1, max_size=5), unique=True, max_size=15), st.data())
def test_merges_behind_scores(texts: list[str], data: st.DataObject) -> None:
    pieces = dict(enumerate(texts, 3))
    scores = {index: data.draw(st.sampled_from([0.0, -0.0, -1.0, -2.0, -3.5])) for index in pieces}
    merges, ranks = piece_merges({index: text.encode() for index, text in pieces.items()}, scores)
    expected, expected_ranks = merges_of(pieces, scores)
    assert [(left.decode(), right.decode()) for left, right in merges] == expected
    results = dict(zip(("".join(merge) for merge in expected), expected_ranks, strict=True))
    assert ranks == (expected_ranks if len(set(results.values())) < len(results) else None)


@given(st.lists(TEXTS, max_size=8), st.lists(TEXTS, max_size=4), st.booleans(), DAMAGE)
def test_arrays_of_gguf(
    tokens: list[str], others: list[str], is_big_endian: bool, damage: tuple[list[tuple[int, int]], int]
) -> None:
    order = ">" if is_big_endian else "<"

    def string(text: str) -> bytes:
        return struct.pack(order + "Q", len(text.encode())) + text.encode()

    def key(name: str, texts: list[str]) -> bytes:
        return string(name) + struct.pack(order + "IIQ", 9, 8, len(texts)) + b"".join(map(string, texts))

    data = (
        b"GGUF"
        + struct.pack(order + "IQQ", 3, 0, 3)
        + key("a", tokens)
        + key("skipped", others)
        + key("b", others)
    )
    data = damaged(data, *damage)

    def read() -> object:
        from io import BytesIO

        values = gguf_metadata.read_metadata(BytesIO(data), len(data), "g", ("a", "b"))
        return {
            name: value.texts() if isinstance(value, _core.StringArray) else value
            for name, value in values.items()
        }

    found = outcome(read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf_metadata, "StringArray", Nothing)
        assert outcome(read) == found


def same(loaded: Loaded | None, read: Callable[[], TokenizerSpec]) -> bool:
    """Compare what the core has loaded with the reader in Python; False if the core has left the file to it."""
    if loaded is None:
        return False
    ours, reference = Tokenizer._from_loaded(loaded), Tokenizer._from_loaded(build_file(read(), "f"))
    assert ours.to_spec() == reference.to_spec()
    assert ours.fingerprint == reference.fingerprint
    return True


CHAINS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=12)


def grown(chains: list[tuple[int, int]], n_bytes: int = 256) -> list[bytes]:
    """The bytes and what merges of earlier tokens make, each once."""
    tokens = [bytes([byte]) for byte in range(n_bytes)]
    for left, right in chains:
        token = tokens[left % len(tokens)] + tokens[right % len(tokens)]
        if token not in tokens:
            tokens.append(token)
    return tokens


@given(CHAINS, st.integers(0, 2), st.integers(0, 3), st.sampled_from(["", "rank", "token_bytes", "twice"]))
def test_tekken(chains: list[tuple[int, int]], n_more: int, n_special: int, fault: str) -> None:
    tokens = grown(chains)
    entries: list[dict[str, Any]] = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    if fault == "twice":
        entries.append(entries[-1])
    elif fault:
        entries[-1][fault] = "?"
    config = {
        "pattern": r"\p{L}+|.",
        "default_vocab_size": len(tokens) - n_more + n_special,
        "default_num_special_tokens": n_special,
    }
    data = json.dumps({"config": config, "vocab": entries}).encode()
    content = Content(data, "tekken.json")
    loaded = outcome(lambda: tekken.load(content))
    if isinstance(loaded, str):
        loaded = None
    assert loaded is None or isinstance(loaded, Loaded)
    # A fault may be among the tokens that do not count, which Python does not read.
    if not same(loaded, lambda: tekken.read(content)) and not fault:
        assert isinstance(outcome(lambda: build_file(tekken.read(content), "f")), str)


@given(
    CHAINS,
    st.sampled_from(["", "#version: 0.2\n", "\n\n"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.booleans(),
)
def test_the_two_files_of_gpt2(
    tmp_path_factory: pytest.TempPathFactory,
    chains: list[tuple[int, int]],
    head: str,
    line_end: str,
    has_special: bool,
    has_gap: bool,
) -> None:
    folder = tmp_path_factory.mktemp("gpt2")
    texts, merges = list(ALPHABET), list[str]()
    for left, right in ((texts[a % len(texts)], texts[b % len(texts)]) for a, b in chains):
        if left + right not in texts:
            texts.append(left + right)
            merges.append(f"{left} {right}")
    texts += ["<|endoftext|>", "[x]"] if has_special else []
    ids = {text: index + (index > 200 and has_gap) for index, text in enumerate(texts)}
    vocab, lines = folder / "vocab.json", folder / "merges.txt"
    vocab.write_text(json.dumps(ids), encoding="utf-8")
    lines.write_text(head + "".join(merge + line_end for merge in merges), encoding="utf-8", newline="")
    loaded = gpt2.load_in_folder(vocab, lines, ..., None)
    # The core reads vocabularies without gaps. Both reject an empty file.
    assert same(loaded, lambda: gpt2.read_in_folder(vocab, lines, ..., None)) == (
        not has_gap and bool(head.strip() or merges)
    )
