"""Tokenizers that are trimmed: texts without removed tokens keep their segmentation, all texts decode as before."""

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import Tokenizer, TokenizerError, TrainingStoppedEarly, count_tokens, trim
from bytemill.formats.spec import CharacterModel, PretokenShape, TokenizerMetadata, TokenizerSpec

END = "<|endoftext|>"
SAMPLES = (
    "The low lower lowest, slower and slowest; newest widest low low.",
    "for i in range(10_000):\n    print(i ** 2)  # 12345\n\n\tx = [i, i+1]",
    "Жизнь прожить — не поле перейти, жизнь жизни.",
    "今日は、世界。今日は今日は。 안녕하세요 안녕 हिन्दी भाषा हिन्दी",
    "👩‍👩‍👧 😀😀😀 aaaaaaaaaaaa abababab العربية العربية ไทยไทย",
)
documents = st.lists(
    st.sampled_from(SAMPLES) | st.text("ablow ж", max_size=30) | st.text(max_size=20), min_size=1, max_size=4
)


def trained(texts: list[str], n_merges: int, **arguments: Any) -> Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingStoppedEarly)
        return bytemill.train_from_iterator([*texts, "x"], 257 + n_merges, [END], **arguments)


def removed_by_definition(base: Tokenizer, uses: np.ndarray, n_tokens: int, fixed: set[int]) -> list[int]:
    """Remove one leaf after the other, looking for it among all tokens each time."""
    vocab = base.vocab
    ids = {token: i for i, token in vocab.items()}
    merges = list(base.merges)
    uses, removed = uses.copy(), list[int]()
    while len(removed) < n_tokens:
        parts = {part for merge in merges for part in merge}
        leaves = [
            i for i, token in vocab.items()
            if len(token) > 1 and i not in fixed and i not in removed and token not in parts
        ]  # fmt: skip
        if not leaves:
            break
        rank = {ids[left + right]: number for number, (left, right) in enumerate(base.merges)}
        least = min(leaves, key=lambda i: (uses[i], -rank[i]))
        merge = next(merge for merge in merges if merge[0] + merge[1] == vocab[least])
        for part in merge:
            uses[ids[part]] += uses[least]
        merges.remove(merge)
        removed.append(least)
    return removed


@given(
    texts=documents,
    used=documents,
    others=documents,
    n_merges=st.integers(0, 90),
    share=st.floats(0, 1),
    pattern=st.sampled_from(["gpt2", "cl100k", None]),
    special_ids=st.sampled_from(["first", "last"]),
    ignore_merges=st.booleans(),
)
def test_texts_without_removed_tokens_keep_their_segmentation(
    *, texts, used, others, n_merges, share, pattern, special_ids, ignore_merges
) -> None:
    base = trained(texts, n_merges, pattern=pattern, special_ids=special_ids)
    base = Tokenizer.from_spec(replace(base.to_spec(), ignore_merges=ignore_merges))
    uses = count_tokens(base, [*used, "x"])
    n_removed = round(share * len(base.merges))
    trimmed = trim(base, uses, vocab_size=len(base) - n_removed)
    tok, id_map = trimmed.tokenizer, trimmed.id_map

    fixed = set(base.special_tokens.values())
    gone = removed_by_definition(base, uses, n_removed, fixed)
    assert [base.vocab[i] for i in gone] == trimmed.removed
    assert sorted(np.flatnonzero(id_map < 0)) == sorted(gone)
    assert trimmed.n_uses_removed == uses[gone].sum()
    assert list(id_map[id_map >= 0]) == list(range(len(base) - n_removed))
    for old, new in enumerate(id_map):
        if new >= 0:
            assert tok.vocab[int(new)] == base.vocab[old]
    assert {text: int(id_map[i]) for text, i in base.special_tokens.items()} == tok.special_tokens
    for text in [*texts, *used, *others, END.join(others)]:
        before, after = base.encode(text), tok.encode(text)
        if (id_map[before] >= 0).all():
            assert after == list(id_map[before])
        assert tok.decode_bytes(after) == base.decode_bytes(before)


@given(texts=documents, n_merges=st.integers(0, 60), num_threads=st.sampled_from([None, 1, 3]))
def test_counted_tokens_are_those_of_the_encoded_texts(*, texts, n_merges, num_threads) -> None:
    tok = trained(list(SAMPLES), n_merges)
    tok = Tokenizer.from_spec(replace(tok.to_spec(), normalizer=(("NFC",),)))
    texts = [*texts, f"x{END}e\u0301"]
    expected = Counter(i for text in texts for i in tok.encode(text))
    counts = count_tokens(tok, texts, num_threads=num_threads)
    assert {i: n for i, n in enumerate(counts) if n} == expected


@pytest.mark.parametrize("fuses", [False, True])
def test_unknown_characters_are_counted_unless_several_share_an_id(*, fuses: bool) -> None:
    characters = CharacterModel(None, 0, fuse_unk=fuses)
    spec = TokenizerSpec(None, {}, vocab={0: b"<unk>", 1: b"a", 2: b"b"}, merges=[], characters=characters)
    tok = Tokenizer.from_spec(spec)
    if fuses:
        with pytest.raises(TokenizerError, match="several unknown characters"):
            count_tokens(tok, ["axyb"])
    else:
        assert count_tokens(tok, ["axyb"]).tolist() == [2, 1, 1]


def test_kept_words_stay_with_what_they_are_merged_from() -> None:
    base = trained(list(SAMPLES), 80)
    trimmed = trim(base, keep=[" lowest", "low", b"st"])
    tok = trimmed.tokenizer
    assert [int(trimmed.id_map[i]) for i in base.encode(" lowest")] == tok.encode(" lowest")
    needed = {b" lowest"}
    for left, right in reversed(base.merges):
        if left + right in {
            *needed,
            *[base.vocab[i] for i in base.encode(" lowest low")],
            b"low",
            b"st",
        }:
            needed |= {left, right, left + right}
    assert all(left + right in needed for left, right in tok.merges)


def test_tokens_below_a_count_go_until_the_rest_is_used_as_often() -> None:
    base = trained(list(SAMPLES), 80)
    uses = count_tokens(base, list(SAMPLES))
    trimmed = trim(base, uses, min_count=3)
    fixed = set(base.special_tokens.values())
    gone = removed_by_definition(base, uses, len(trimmed.removed), fixed)
    assert [base.vocab[i] for i in gone] == trimmed.removed
    assert 0 < len(gone) < 80
    # The next one would be used three times, counting what has become of the removed ones.
    again = count_tokens(trimmed.tokenizer, list(SAMPLES))
    parts = {part for merge in trimmed.tokenizer.merges for part in merge}
    leaves = [i for i, token in trimmed.tokenizer.vocab.items() if len(token) > 1 and token not in parts]
    assert min(again[i] for i in leaves if i not in trimmed.tokenizer.special_tokens.values()) >= 2


def test_without_counts_the_last_merges_go_first() -> None:
    base = trained(list(SAMPLES), 60)
    for n_tokens in (257, 270, 300):
        assert trim(base, vocab_size=n_tokens).tokenizer.fingerprint == base.truncate(n_tokens).fingerprint


def test_published_vocabularies_are_trimmed(shared_data: Path, tmp_path: Path) -> None:
    base = Tokenizer.load(shared_data / "r50k_base.tiktoken", pattern="gpt2", special_tokens={END: 50256})
    text = (shared_data / "tinyshakespeare.txt").read_text()[:100_000]
    uses = count_tokens(base, [text])
    trimmed = trim(base, uses, vocab_size=12_000)
    used = set(np.flatnonzero(uses).tolist())
    assert not trimmed.n_uses_removed
    assert (trimmed.id_map[sorted(used)] >= 0).all()
    assert trimmed.tokenizer.encode(text) == list(trimmed.id_map[base.encode(text)])
    trimmed.tokenizer.save(tmp_path / "small.json")
    again = Tokenizer.load(tmp_path / "small.json")
    assert again.fingerprint == trimmed.tokenizer.fingerprint
    other = "".join(SAMPLES)
    assert again.to_huggingface().encode(other).ids == trimmed.tokenizer.encode(other)
    assert again.decode(again.encode(other)) == other


def test_the_post_processor_gets_new_ids() -> None:
    base = trained(list(SAMPLES), 40)
    end = base.special_tokens[END]
    processor = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {END: {"id": END, "ids": [end], "tokens": [END]}},
    }
    base = Tokenizer.from_spec(replace(base.to_spec(), metadata=TokenizerMetadata(post_processor=processor)))
    tok = trim(base, vocab_size=270).tokenizer
    assert tok("low")["input_ids"][0] == tok.special_tokens[END] == 269


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "nothing says which tokens to remove"),
        ({"vocab_size": 256}, "vocab_size 256 is too small: .* make 257"),
        ({"vocab_size": 100_000}, "vocab_size 100000 is more than"),
        ({"counts": [1, 2], "min_count": 1}, r"shape \(2,\)"),
        ({"keep": [b"nothing"]}, "cannot keep b'nothing'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        trim(trained(list(SAMPLES), 30), **arguments)


def test_ranks_without_merges_and_other_engines_are_refused() -> None:
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"abcd": 256, b"ab": 257, b"cd": 258}
    ranked = Tokenizer.from_spec(TokenizerSpec(None, {}, ranks=ranks))
    with pytest.raises(TokenizerError, match="ranks without an equivalent list of merges"):
        trim(ranked, vocab_size=257)
    suffix = replace(trained(["low"], 3).to_spec(), shape=PretokenShape(suffix="</w>"))
    with pytest.raises(TokenizerError, match="changes pre-tokens"):
        trim(Tokenizer.from_spec(suffix), vocab_size=258)
