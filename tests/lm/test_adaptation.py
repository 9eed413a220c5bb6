"""A model that moves to another tokenizer: what both have stays, new rows are made of old ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import Tokenizer, TokenizerError
from bytemill.errors import ModelConfigError, OutputError
from bytemill.formats.spec import CharacterModel, TokenizerSpec
from bytemill.lm.adaptation import adapt, adapt_saved_model, adapted_size, new_rows, row_sources
from bytemill.lm.adaptation_report import parts_of, score_parts
from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.lm.quantization import model_tensors, quantize_model
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.saved_model import load_trained, write_model_folder
from bytemill.lm.training.trainer import train

END = "<|endoftext|>"
TEXTS = ["The low lower lowest slower slowest, the newest widest. ", "Жизнь прожить — не поле перейти. "]

OLD = bytemill.train_from_iterator(TEXTS, 290, [END])
EXTENDED = bytemill.extend_from_iterator(OLD, ["slowly lowering wider " * 3], 12)
TRIMMED = bytemill.trim(OLD, vocab_size=275).tokenizer
OTHER = bytemill.train_from_iterator(
    ["something else entirely, of widest range"], 280, ["<s>", END], special_ids="first"
)


def a_model(vocab_size: int, **changes: Any) -> TransformerLM:
    sizes: dict[str, Any] = {"context_length": 32, "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32}
    return TransformerLM(ModelConfig(vocab_size=vocab_size, **sizes, **changes), seed=1).eval()


@pytest.mark.parametrize("new", [EXTENDED, TRIMMED, OTHER], ids=["extended", "trimmed", "other"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("padding", [0, 30])
@pytest.mark.parametrize("how", ["mean", "weighted", "zero", "random"])
def test_logits_of_what_both_have_are_equal(new: Tokenizer, tied: bool, padding: int, how: Any) -> None:
    model = a_model(OLD.n_vocab + padding, tied_embeddings=tied)
    adapted = adapt(model, OLD, new, how)
    sources = row_sources(OLD, new)
    kept = [i for i, is_kept in enumerate(sources.is_kept) if is_kept]
    old_ids = [sources.old_ids[i][0] for i in kept]
    generator = torch.Generator().manual_seed(0)
    at = torch.randint(len(kept), (3, 20), generator=generator)
    ours = adapted(torch.tensor(kept)[at])[..., kept]
    theirs = model(torch.tensor(old_ids)[at])[..., old_ids]
    assert torch.equal(ours, theirs)


@given(seed=st.integers(0, 99), how=st.sampled_from(["mean", "weighted", "zero", "random"]))
def test_new_rows_are_what_their_definition_says(seed: int, how: Any) -> None:
    rows = torch.randn(OLD.n_vocab, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    sources = row_sources(OLD, EXTENDED)
    made = new_rows(rows.float(), sources, EXTENDED.n_vocab, how, OLD, seed=seed)
    old_vocab = OLD.vocab
    for token_id, token in EXTENDED.vocab.items():
        parts = OLD.own_core("testing").encode_pretoken(token, look_up=True)
        if token_id in OLD.vocab:
            expected = rows[token_id]
        elif how == "zero":
            expected = torch.zeros(5, dtype=torch.float64)
        elif how == "weighted":
            expected = sum(len(old_vocab[i]) * rows[i] for i in parts) / len(token)  # type: ignore[assignment]
        elif how == "mean":
            expected = sum(rows[i] for i in parts) / len(parts)  # type: ignore[assignment]
        else:
            assert (made[token_id] - rows.float().mean(dim=0)).abs().max() < 6 * rows.std()
            continue
        torch.testing.assert_close(made[token_id], torch.as_tensor(expected).float())
    assert torch.equal(made, new_rows(rows.float(), sources, EXTENDED.n_vocab, how, OLD, seed=seed))


def test_special_tokens_are_known_by_their_text_and_others_by_their_bytes() -> None:
    sources = row_sources(OLD, OTHER)
    assert sources.old_ids[OTHER.special_tokens[END]] == [OLD.special_tokens[END]]
    assert sources.old_ids[OTHER.special_tokens["<s>"]] == OLD.encode_ordinary("<s>")
    for token_id, token in OTHER.vocab.items():
        if len(token) == 1:
            assert OLD.vocab[sources.old_ids[token_id][0]] == token
    # The text of a special token as ordinary bytes is another token.
    words = bytemill.add_words(OLD, ["pad"]).tokenizer
    special = OLD.with_special_tokens(["pad"])
    assert not row_sources(words, special).is_kept[special.special_tokens["pad"]]


def test_padded_sizes_stay_padded() -> None:
    n_old = OLD.n_vocab  # 290
    assert adapted_size(n_old, OLD, EXTENDED) == EXTENDED.n_vocab
    assert adapted_size(320, OLD, EXTENDED) == 320
    assert adapted_size(292, OLD, EXTENDED) == EXTENDED.n_vocab + -EXTENDED.n_vocab % 4
    assert adapted_size(320, OLD, TRIMMED) == 320
    assert adapted_size(512, OLD, TRIMMED) == 384


def test_a_run_is_adapted_scored_and_trained_further(
    settings: Callable[..., Resolved], corpus: Any, tmp_path: Path
) -> None:
    train(settings(training__steps=4))
    tok = bytemill.extend_from_iterator(corpus.tokenizer, ["zebras liked zebras " * 5], 6)
    adapted = adapt_saved_model(tmp_path / "run", tok, tmp_path / "adapted")
    assert (adapted.n_kept, adapted.n_new, adapted.n_dropped) == (300, 6, 0)
    assert any("optimizer" in note for note in adapted.notes)
    before, after = load_trained(tmp_path / "run"), load_trained(tmp_path / "adapted")
    assert after.tokenizer.fingerprint == tok.fingerprint
    # Without new tokens in the text, nothing changes.
    parts = parts_of(["The cat saw the dog.\n" * 30], 5)
    assert len(parts) == 5
    old, new = score_parts(before, parts), score_parts(after, parts)
    assert new.n_tokens == old.n_tokens
    assert new.n_bytes == old.n_bytes == sum(len(part.encode()) for part in parts)
    # New rows take a part of the probability.
    assert all(a > b for a, b in zip(new.bits_per_byte, old.bits_per_byte, strict=True))
    with pytest.raises(OutputError, match="not empty"):
        adapt_saved_model(tmp_path / "run", tok, tmp_path / "adapted")


def test_parts_are_the_text_whatever_its_lines() -> None:
    for text in ("a" * 1000, "line\n" * 77, "x", "é\n" * 3 + "y" * 500):
        assert "".join(parts_of([text], 7)) == text
    with pytest.raises(bytemill.CorpusError, match="empty"):
        parts_of([""])


def test_what_cannot_be_adapted_is_refused(tmp_path: Path) -> None:
    characters = Tokenizer.from_spec(
        TokenizerSpec(None, {}, vocab={0: b"<unk>", 1: b"a"}, merges=[], characters=CharacterModel(None, 0))
    )
    with pytest.raises(TokenizerError, match="byte-level BPE"):
        row_sources(OLD, characters)
    with pytest.raises(ModelConfigError, match="has 289 rows, but the tokenizer 290 ids"):
        adapt(a_model(OLD.n_vocab - 1), OLD, EXTENDED)
    model = a_model(OLD.n_vocab)
    config = model.config.model_copy(update={"d_model": 32, "d_ff": 64})
    wide = TransformerLM(config, seed=0)
    write_model_folder(
        tmp_path / "int8", config, model_tensors(quantize_model(wide, 8)), OLD, source="a test", bits=8
    )
    with pytest.raises(ModelConfigError, match="quantized to 8 bits"):
        adapt_saved_model(tmp_path / "int8", EXTENDED, tmp_path / "out")
