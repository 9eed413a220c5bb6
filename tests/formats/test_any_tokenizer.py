"""Property: any tokenizer survives a round trip through every format, byte for byte."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bytemill import Tokenizer, TokenizerError, train_from_iterator
from bytemill._core import NAMED_PATTERNS
from bytemill.formats.registry import render
from bytemill.formats.spec import TokenizerSpec
from bytemill.tokenizer.conversion import _prove, _reload

PATTERNS = [*NAMED_PATTERNS.values(), None, r" ?\p{L}+|\P{L}", " ?\\S+|\\s ", r"[\s\S]+", "a\\\\|\n|[^a]"]
SPECIAL = [
    "<|endoftext|>", "<x>", "<x>y", "two words", " ", "\n", "ab", "a", "Ġ", "é", "日", '"', "\\", "[1] 2",
    "\x7f",
]  # fmt: skip


@st.composite
def specs(draw: st.DrawFn) -> TokenizerSpec:
    """A tokenizer with any ids, with merges that never happen, with tokens that no merge makes."""
    parts = [b"a", b"b", b" ", b"\n", b"\xc3", b"\xa9", b'"', b"\\", b"\xff"]
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(draw(st.integers(0, 10))):
        merge = draw(st.sampled_from(parts)), draw(st.sampled_from(parts))
        if merge[0] + merge[1] not in parts:
            merges.append(merge)
            parts.append(merge[0] + merge[1])
    tokens = [bytes([byte]) for byte in range(256)] + [left + right for left, right in merges]
    tokens += [b"orphan"] * draw(st.booleans())
    texts = draw(st.lists(st.sampled_from(SPECIAL), unique=True, max_size=4))
    ids = list(range(len(tokens) + len(texts) + 3))
    if draw(st.booleans()):
        ids = list(draw(st.permutations(ids)))
    vocab = dict(zip(ids, tokens, strict=False))
    by_token = {token: token_id for token_id, token in vocab.items()}
    special = {
        text: by_token.get(text.encode(), ids[len(tokens) + place]) for place, text in enumerate(texts)
    }
    return TokenizerSpec(
        pattern=draw(st.sampled_from(PATTERNS)),
        special_tokens=special,
        vocab=vocab,
        merges=merges,
        ignore_merges=draw(st.booleans()),
    )


def comes_back(spec: TokenizerSpec, written_format: Any, folder: Path) -> bool:
    """Whether the format can say `spec`; fails where it comes back as something else."""
    try:
        tokenizer = Tokenizer.from_spec(spec)
    except TokenizerError:
        assume(False)
        raise
    place = folder / "t"
    try:
        files = render(tokenizer.to_spec(), place, written_format)
    except TokenizerError:
        return False
    assert _prove(tokenizer, tokenizer.to_spec(), files, written_format) in ("fingerprint", "ids")
    for file, data in files.items():
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
    again = _reload(place, tokenizer.to_spec(), written_format)
    assert render(again.to_spec(), folder / "t", written_format) == files
    for file in files:
        file.unlink()
    return True


@pytest.mark.parametrize("written_format", ["huggingface", "tiktoken", "gpt2", "minbpe"])
def test_any_tokenizer_survives_a_round_trip_through_every_format(
    tmp_path: Path, written_format: str
) -> None:
    @given(specs())
    def check(spec: TokenizerSpec) -> None:
        comes_back(spec, written_format, tmp_path)

    check()


@pytest.mark.parametrize("written_format", ["huggingface", "tiktoken", "gpt2", "minbpe"])
@pytest.mark.filterwarnings("ignore::bytemill.TrainingStoppedEarly")
def test_tokenizers_trained_with_gpt2s_pattern_can_be_written_in_every_format(
    tmp_path: Path, written_format: str
) -> None:
    @given(
        st.text("aab \né日", min_size=1, max_size=80), st.sampled_from([[], ["<x>"], ["<x>", "<x>y", "[1]"]])
    )
    def check(text: str, special_tokens: list[str]) -> None:
        tokenizer = train_from_iterator([text], 256 + 12 + len(special_tokens), special_tokens)
        assert comes_back(tokenizer.to_spec(), written_format, tmp_path)

    check()
