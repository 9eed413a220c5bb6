"""Shards made with the real tokenizer hold what `encode` gives for each document, however the text is cut."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Corpus
from bytemill.errors import SpecialTokenError
from bytemill.shards import TokenShards, encode_corpus, verify

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


@given(
    text=st.lists(st.sampled_from(["the", " the", " ", "\n", "日", "é", "x", END, "<|end"]), min_size=1).map(
        "".join
    ),
    shard_tokens=st.integers(1, 30),
    batch_chars=st.integers(1, 20),
)
def test_shards_are_the_encoding_wherever_text_and_shards_are_cut(
    tmp_path_factory: pytest.TempPathFactory,
    make_documents: Callable[..., Any],
    small_tokenizer: "Tokenizer",
    *,
    text: str,
    shard_tokens: int,
    batch_chars: int,
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    documents = make_documents([text], batch_chars)
    encode_corpus(small_tokenizer, documents, folder / "out", shard_tokens=shard_tokens, separators=False)
    assert TokenShards(folder / "out")[:].tolist() == small_tokenizer.encode(text)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_real_texts_give_the_same_shards_in_batches_as_whole(
    tmp_path: Path,
    shared_data: Path,
    gpt2: "Tokenizer",
    make_documents: Callable[..., Any],
    num_threads: int,
) -> None:
    files = [shared_data / "tinystories.txt", shared_data / "wagahai_ja.txt"]
    texts = [file.read_bytes().decode("utf-8", "replace") for file in files]
    manifest = encode_corpus(
        gpt2,
        make_documents(texts, 100_003),
        tmp_path / "out",
        shard_tokens=100_000,
        document_index=True,
        num_threads=num_threads,
        separators=False,
    )
    ids = [gpt2.encode(text) for text in texts]
    shards = TokenShards(tmp_path / "out")
    np.testing.assert_array_equal(shards[:], np.concatenate(ids))
    ends = shards.document_ends()
    assert ends is not None
    assert ends.tolist() == [len(ids[0]), len(ids[0]) + len(ids[1])]
    assert manifest.dtype == "uint16"
    assert manifest.n_bytes == sum(len(text.encode()) for text in texts)
    assert verify(tmp_path / "out") == []


def test_special_tokens_are_text_or_refused_where_asked(tmp_path: Path, small_tokenizer: "Tokenizer") -> None:
    text = f"the{END}the"
    encode_corpus(
        small_tokenizer,
        Corpus.from_texts([text]),
        tmp_path / "none",
        allowed_special="none",
        separators=False,
    )
    assert TokenShards(tmp_path / "none")[:].tolist() == small_tokenizer.encode_ordinary(text)
    with pytest.raises(
        SpecialTokenError, match=r"<texts>: special token .*endoftext.* at byte 3 of a document"
    ):
        encode_corpus(
            small_tokenizer,
            Corpus.from_texts([text]),
            tmp_path / "raise",
            allowed_special="none_raise",
            separators=False,
        )
    assert not (tmp_path / "raise").exists()


def test_a_separator_is_appended_between_files(tmp_path: Path, small_tokenizer: "Tokenizer") -> None:
    manifest = encode_corpus(
        small_tokenizer,
        Corpus.from_texts(["the", f"x{END}"]),
        tmp_path / "out",
        documents=END,
    )
    assert TokenShards(tmp_path / "out")[:].tolist() == small_tokenizer.encode(f"the{END}x{END}")
    assert (manifest.n_documents, manifest.fingerprint) == (2, small_tokenizer.fingerprint)
