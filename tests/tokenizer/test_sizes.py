"""Sizes of a tokenizer, `skip_special_tokens`, and unknown ids."""

import pickle
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import bytemill
from bytemill.errors import TokenizerError, UnknownTokenError

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = {byte: bytes([byte]) for byte in range(256)}


def test_vocab_size_is_the_requested_size() -> None:
    tokenizer = bytemill.train_from_iterator(["low low lower lowest"], vocab_size=260, special_tokens=["<e>"])
    assert len(tokenizer) == tokenizer.vocab_size == tokenizer.n_vocab == 260
    assert len(tokenizer) == tokenizer.get_vocab_size()


def test_only_n_vocab_counts_id_gaps() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], {"<e>": 300})
    assert (len(tokenizer), tokenizer.vocab_size, tokenizer.n_vocab) == (257, 257, 301)


def test_special_tokens_are_left_out_of_decoded_text_on_request() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], ["<a>", "<b>"])
    ids = tokenizer.encode("<a>hi<b>é")
    for kind in (ids, tuple(ids), np.array(ids, dtype=np.uint16)):
        assert tokenizer.decode(kind) == "<a>hi<b>é"
        assert tokenizer.decode(kind, skip_special_tokens=True) == "hié"
        assert tokenizer.decode_batch([kind, []], skip_special_tokens=True) == ["hié", ""]


@pytest.mark.parametrize("unknown", [256, -1, 2**32, 2**70])
def test_an_unknown_id_is_named_in_a_tokenizer_error_that_is_a_key_error(unknown: int) -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [])
    calls: list[Callable[[], object]] = [
        lambda: tokenizer.decode([97, unknown]),
        lambda: tokenizer.decode_bytes([unknown]),
        lambda: tokenizer.decode_batch([[unknown]]),
        lambda: tokenizer.decode_tokens_bytes([unknown]),
        lambda: tokenizer.decode_single_token_bytes(unknown),
        lambda: tokenizer.token(unknown),
    ]
    for call in calls:
        with pytest.raises(UnknownTokenError) as caught:
            call()
        assert isinstance(caught.value, TokenizerError)
        assert isinstance(caught.value, KeyError)
        assert str(caught.value) == f"no token has the id {unknown}"
        assert caught.value.token_id == unknown
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
        assert (str(again), again.token_id) == (str(caught.value), unknown)


def test_vocab_and_merges_are_made_once_and_may_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted:
        """The core, with the number of calls of two methods."""

        def __init__(self, core: Any) -> None:
            self.core, self.calls = core, Counter[str]()

        def __getattr__(self, name: str) -> Any:
            self.calls[name] += 1
            return getattr(self.core, name)

    tokenizer = bytemill.train_from_iterator(["low low lower"], vocab_size=259, special_tokens=["<e>"])
    core = Counted(tokenizer.core)
    monkeypatch.setattr(tokenizer, "core", core)
    vocab, merges = tokenizer.vocab, tokenizer.merges
    expected = dict(vocab), list(merges)
    vocab.clear()
    merges.clear()
    for _ in range(3):
        assert (tokenizer.vocab, tokenizer.merges) == expected
    assert (core.calls["vocab"], core.calls["merges"]) == (1, 1)
    monkeypatch.undo()
    copied = pickle.dumps(tokenizer)
    fresh = bytemill.train_from_iterator(["low low lower"], vocab_size=259, special_tokens=["<e>"])
    assert len(copied) == len(pickle.dumps(fresh))
    again = pickle.loads(copied)  # noqa: S301
    assert (again.vocab, again.merges) == expected
