"""Shards made with the real tokenizer hold what `encode` gives for each document, however the text is cut."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bytemill.corpus import read_blocks
from bytemill.errors import CorpusError
from bytemill.shards import TokenShards, encode, encode_to_shards, verify

if TYPE_CHECKING:
    from bytemill import Tokenizer

END = "<|endoftext|>"
MERGES = [
    (b"t", b"h"),
    (b"th", b"e"),
    (b" ", b"the"),
    (b"\xe6", b"\x97"),
    (b"\xe6\x97", b"\xa5"),
    (b"\n", b"\n"),
]


@pytest.fixture(scope="module")
def small_tokenizer() -> "Tokenizer":
    """A few merges, one of them in the middle of a character."""
    from bytemill import Tokenizer

    vocab = {i: bytes([i]) for i in range(256)}
    vocab |= {256 + rank: left + right for rank, (left, right) in enumerate(MERGES)}
    return Tokenizer(vocab, MERGES, special_tokens=[END])


@pytest.fixture(scope="module")
def gpt2(shared_data: Path) -> "Tokenizer":
    from bytemill import Tokenizer

    vocab, merges = shared_data / "gpt2_vocab.json", shared_data / "gpt2_merges.txt"
    return Tokenizer.from_files(vocab, merges, special_tokens=[END])


@pytest.fixture
def blocks_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many bytes of a file are fed to the encoder at a time."""
    return lambda n_bytes: monkeypatch.setattr(
        encode, "read_blocks", lambda source: read_blocks(source, n_bytes)
    )


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(st.sampled_from(["the", " the", " ", "\n", "日", "é", "x", END, "<|end"]), min_size=1).map(
        "".join
    ),
    shard_tokens=st.integers(1, 30),
    block_bytes=st.integers(1, 20),
)
def test_shards_are_the_encoding_wherever_text_and_shards_are_cut(
    tmp_path_factory: pytest.TempPathFactory,
    blocks_of: Callable[[int], None],
    small_tokenizer: "Tokenizer",
    *,
    text: str,
    shard_tokens: int,
    block_bytes: int,
) -> None:
    blocks_of(block_bytes)
    folder = tmp_path_factory.mktemp("cut")
    (folder / "a.txt").write_text(text, "utf-8", newline="")
    encode_to_shards(small_tokenizer, folder / "a.txt", folder / "out", shard_tokens=shard_tokens)
    assert TokenShards(folder / "out")[:].tolist() == small_tokenizer.encode(text)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_real_texts_give_the_same_shards_in_blocks_as_whole(
    tmp_path: Path,
    shared_data: Path,
    gpt2: "Tokenizer",
    blocks_of: Callable[[int], None],
    num_threads: int,
) -> None:
    blocks_of(100_003)
    files = [shared_data / "tinystories_2MiB.txt", shared_data / "wagahai_ja.txt"]
    texts = [file.read_bytes().decode("utf-8", "replace") for file in files]
    manifest = encode_to_shards(
        gpt2,
        files,
        tmp_path / "out",
        shard_tokens=300_000,
        errors="replace",
        document_separator=END,
        num_threads=num_threads,
    )
    expected = np.array([i for text in texts for i in gpt2.encode(text)])
    np.testing.assert_array_equal(TokenShards(tmp_path / "out")[:], expected)
    assert manifest.dtype == "uint16"
    assert manifest.n_bytes == sum(file.stat().st_size for file in files)
    assert manifest.n_documents == sum(text.count(END) for text in texts)
    assert manifest.n_replaced == sum(text.count("\ufffd") for text in texts)
    assert verify(tmp_path / "out") == []


@pytest.mark.parametrize("block_bytes", [1, 4, 1000])
def test_the_offset_of_what_is_not_utf8_counts_from_the_beginning_of_its_file(
    tmp_path: Path, small_tokenizer: "Tokenizer", blocks_of: Callable[[int], None], block_bytes: int
) -> None:
    blocks_of(block_bytes)
    (tmp_path / "good.txt").write_text("the 日 the", "utf-8")
    for data, offset in ((b"the \xe6\x97 the", 4), (b"the the \xff", 8), ("日日".encode()[:-1], 3)):
        (tmp_path / "bad.txt").write_bytes(data)
        with pytest.raises(CorpusError, match=rf"bad\.txt: byte offset {offset} \(0x{data[offset]:02x}\)"):
            encode_to_shards(small_tokenizer, [tmp_path / "good.txt", tmp_path / "bad.txt"], tmp_path / "out")


def test_special_tokens_are_text_or_refused_where_asked(tmp_path: Path, small_tokenizer: "Tokenizer") -> None:
    text = f"the{END}the"
    encode_to_shards(small_tokenizer, iter([text]), tmp_path / "none", allowed_special="none")
    assert TokenShards(tmp_path / "none")[:].tolist() == small_tokenizer.encode_ordinary(text)
    with pytest.raises(ValueError, match="endoftext"):
        encode_to_shards(small_tokenizer, iter([text]), tmp_path / "raise", allowed_special="none_raise")
    assert not (tmp_path / "raise").exists()


def test_a_separator_is_appended_between_files(tmp_path: Path, small_tokenizer: "Tokenizer") -> None:
    manifest = encode_to_shards(
        small_tokenizer,
        iter(["the", f"x{END}"]),
        tmp_path / "out",
        document_separator=END,
        append_separator=True,
    )
    assert TokenShards(tmp_path / "out")[:].tolist() == small_tokenizer.encode(f"the{END}x{END}")
    assert (manifest.n_documents, manifest.fingerprint) == (2, small_tokenizer.fingerprint)
