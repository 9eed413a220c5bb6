"""Tokenizers that are extended: the base stays, and new merges are those of the reference implementation."""

import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import tiktoken
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.oracles import huggingface_merges, huggingface_tokenizer, read_ranks

import bytemill
from bytemill import Tokenizer, TokenizerError, TrainingStoppedEarly, add_words, reference
from bytemill.errors import CorpusError
from bytemill.formats.registry import render
from bytemill.formats.spec import CharacterModel, PretokenShape, TokenizerSpec
from bytemill.tokenizer.surgery.extension import read_words
from bytemill.training import counts
from bytemill.training.work_folder import WorkFolder

END = "<|endoftext|>"
SAMPLES: tuple[str, ...] = (
    "The low lower lowest, slower and slowest; newest widest low low.",
    "for i in range(10_000):\n    print(i ** 2)  # 12345\n\n\tx = [i, i+1]",
    "Жизнь прожить — не поле перейти, жизнь жизни.",
    "今日は、世界。今日は今日は。 안녕하세요 안녕",
    "हिन्दी भाषा हिन्दी naïve cafe\u0301 café ﬁ Å Å",
    "👩‍👩‍👧 😀😀😀 aaaaaaaaaaaa abababab",
    "العربية العربية עברית ไทยไทย",
)

documents = st.lists(
    st.sampled_from(SAMPLES) | st.text("ab é\u0301ж", max_size=30) | st.text(max_size=20),
    min_size=1,
    max_size=5,
)
patterns = st.sampled_from(["gpt2", "cl100k", "o200k", None])


def quiet_train(texts: list[str], n_merges: int, special: list[str], **arguments: Any) -> Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingStoppedEarly)
        texts = texts if any(texts) else [*texts, "x"]
        return bytemill.train_from_iterator(texts, 256 + len(special) + n_merges, special, **arguments)


def extended(base: Tokenizer, texts: list[str], n_tokens: int, **arguments: Any) -> Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingStoppedEarly)
        texts = texts if any(texts) else [*texts, "x"]
        return bytemill.extend_from_iterator(base, texts, n_tokens, **arguments)


def without(tok: Tokenizer, base: Tokenizer) -> Tokenizer:
    """The extended tokenizer without its new merges and tokens."""
    spec, n_merges = tok.to_spec(), len(base.merges)
    old = base.to_spec()
    return Tokenizer.from_spec(
        replace(
            spec,
            vocab={i: token for i, token in spec.vocab.items() if i in old.vocab},
            merges=(spec.merges or [])[:n_merges],
            merge_counts=spec.merge_counts and spec.merge_counts[:n_merges],
        )
    )


def in_old_tokens(tok: Tokenizer, base: Tokenizer, ids: list[int]) -> list[int]:
    """Ids with each new token replaced by the two that its merge joins, until all are old."""
    vocab, old_vocab = tok.vocab, base.vocab
    ids_of = {token: i for i, token in vocab.items()}
    parts = {left + right: (left, right) for left, right in tok.merges[len(base.merges) :]}
    old: list[int] = []
    pending = ids[::-1]
    while pending:
        i = pending.pop()
        if vocab[i] in parts and i not in old_vocab:
            left, right = parts[vocab[i]]
            pending += [ids_of[right], ids_of[left]]
        else:
            old.append(i)
    return old


@given(
    first=documents,
    more=documents,
    n_first=st.integers(0, 80),
    n_more=st.integers(1, 60),
    pattern=patterns,
    ties=st.sampled_from(["bytes", "huggingface"]),
    min_frequency=st.integers(1, 3),
    num_threads=st.sampled_from([None, 1, 3]),
    is_nfc=st.booleans(),
    ignore_merges=st.booleans(),
    special_ids=st.sampled_from(["first", "last"]),
    texts=documents,
)
def test_new_merges_equal_the_reference_and_expand_to_the_ids_of_the_base(
    *,
    first,
    more,
    n_first,
    n_more,
    pattern,
    ties,
    min_frequency,
    num_threads,
    is_nfc,
    ignore_merges,
    special_ids,
    texts,
) -> None:
    trained = quiet_train(first, n_first, [END], pattern=pattern, ties=ties, special_ids=special_ids)
    spec = replace(trained.to_spec(), normalizer=(("NFC",),) if is_nfc else (), ignore_merges=ignore_merges)
    base = Tokenizer.from_spec(spec)
    tok = extended(base, more, n_more, min_frequency=min_frequency, num_threads=num_threads)

    normalized = [unicodedata.normalize("NFC", text) if is_nfc else text for text in more]
    counted = Counter(reference.corpus_pretokens(normalized, [END], pattern))
    expected, pair_counts = reference.learn_merges(counted, n_more, ties, min_frequency, base=base.merges)
    assert tok.merges == base.merges + expected
    assert tok.merge_counts == [*(base.merge_counts or []), *pair_counts]

    assert tok.special_tokens == base.special_tokens
    assert base.vocab.items() <= tok.vocab.items()
    assert sorted(tok.vocab.keys() - base.vocab.keys()) == list(
        range(base.n_vocab, base.n_vocab + len(expected))
    )
    assert without(tok, base).to_spec() == base.to_spec()
    path = Path("tokenizer.json")
    assert render(without(tok, base).to_spec(), path, "huggingface") == render(
        base.to_spec(), path, "huggingface"
    )
    for text in [*texts, *more]:
        ids = tok.encode(text)
        assert in_old_tokens(tok, base, ids) == base.encode(text)
        assert tok.decode(ids) == base.decode(base.encode(text))


@given(
    texts=documents,
    n_first=st.integers(0, 60),
    n_more=st.integers(1, 60),
    ties=st.sampled_from(["bytes", "huggingface"]),
)
def test_extending_on_the_same_text_is_training_at_once(*, texts, n_first, n_more, ties) -> None:
    base = quiet_train(texts, n_first, [END], ties=ties)
    assume(len(base.merges) == n_first)
    tok = extended(base, texts, n_more)
    assert tok.merges == quiet_train(texts, n_first + n_more, [END], ties=ties).merges


def test_extending_continues_hugging_faces_trainer() -> None:
    texts = list(SAMPLES)
    merges = huggingface_merges(huggingface_tokenizer(texts, 256 + 70, []))
    base = quiet_train(texts, 30, [], ties="huggingface")
    assert extended(base, texts, 40).merges == merges


@pytest.fixture(scope="module")
def ranked(shared_data: Path) -> Callable[[str], Tokenizer]:
    files = {"gpt2": "r50k_base", "cl100k": "cl100k_base", "o200k": "o200k_base"}

    def load(name: str) -> Tokenizer:
        special = {END: 50256} if name == "gpt2" else {END: 100257} if name == "cl100k" else {END: 199999}
        return Tokenizer.load(shared_data / f"{files[name]}.tiktoken", pattern=name, special_tokens=special)

    return load


@pytest.mark.parametrize("name", ["gpt2", "cl100k", pytest.param("o200k", marks=pytest.mark.slow)])
def test_published_vocabularies_are_extended_and_tiktoken_agrees(
    ranked: Callable[[str], Tokenizer], shared_data: Path, tmp_path: Path, name: str
) -> None:
    base = ranked(name)
    text = (shared_data / "tinyshakespeare.txt").read_text()[:20_000] + "".join(SAMPLES)
    tok = bytemill.extend_from_iterator(base, [text], 200)
    # The reference merges each pre-token by the published ranks first.
    ranks = {token: i for i, token in base.vocab.items() if i not in base.special_tokens.values()}
    order = {merge: i for i, merge in enumerate(base.merges)}
    counted = Counter(reference.corpus_pretokens([text], [END], name))
    unmerged = {pretoken: count for pretoken, count in counted.items() if pretoken not in ranks}
    pairs = Counter[tuple[bytes, bytes]]()
    for pretoken, count in unmerged.items():
        for pair in pairwise(reference.apply_merges(pretoken, order)):
            pairs[pair] += count
    first = max(pairs, key=lambda pair: (pairs[pair], pair))
    assert tok.merges[len(base.merges)] == first
    assert tok.merge_counts is None

    ids = tok.encode(text)
    assert in_old_tokens(tok, base, ids) == base.encode(text)
    assert len(ids) < len(base.encode(text))
    tok.save(tmp_path / "larger.tiktoken", format="tiktoken")
    theirs = tiktoken.Encoding(
        "larger",
        pat_str=tok.to_tiktoken()._pat_str,
        mergeable_ranks=read_ranks(tmp_path / "larger.tiktoken"),
        special_tokens=tok.special_tokens,
    )
    assert theirs.encode(text, allowed_special="all") == ids


def test_reserved_tokens_and_free_ids_are_used_first_and_only_once() -> None:
    base = quiet_train(
        ["low lower"], 2, ["<|reserved_special_token_0|>", "<|eot|>", "<|reserved_special_token_1|>"]
    )
    spec = base.to_spec()
    spec = replace(spec, special_tokens={**spec.special_tokens, "<|pad|>": 263})
    base = Tokenizer.from_spec(spec)  # 261 and 262 have no token
    ids = base.special_tokens
    tok = extended(base, ["slow slower slowest wide wider"], 6, reuse_reserved=True)
    new = sorted(tok.vocab.keys() - base.vocab.keys() | {ids["<|reserved_special_token_0|>"], 260})
    assert new == [258, 260, 261, 262, 264, 265]
    assert tok.special_tokens == {"<|eot|>": ids["<|eot|>"], "<|pad|>": 263}
    assert tok.encode("<|eot|>slow") == [ids["<|eot|>"], *tok.encode("slow")]
    # What is reserved can be named.
    other = extended(base, ["slow slower"], 1, reuse_reserved=r"pad")
    assert other.special_tokens.keys() == base.special_tokens.keys()
    assert other.n_vocab == base.n_vocab


@given(
    n_merges=st.integers(0, 60),
    words=st.lists(
        st.text("abcж é", min_size=1, max_size=9) | st.sampled_from([" lowest", "abababab", "aaaa"]),
        max_size=6,
    ),
    texts=documents,
)
def test_words_become_tokens_and_other_text_keeps_its_ids(*, n_merges, words, texts) -> None:
    base = quiet_train(list(SAMPLES), n_merges, [END], pattern="cl100k")
    words = [word for word in words if len(base.explain(word)) == 1]
    added = add_words(base, words)
    tok = added.tokenizer
    for word in words:
        assert [tok.vocab[i] for i in tok.encode(word)] == [word.encode()]
    new = [token for each in added.words for token in each.tokens]
    assert [left + right for left, right in tok.merges[len(base.merges) :]] == new
    assert without(tok, base).to_spec() == base.to_spec()
    for text in texts:
        assert in_old_tokens(tok, base, tok.encode(text)) == base.encode(text)


def test_added_words_match_without_merges_and_are_not_special() -> None:
    base = quiet_train(["low lower"], 2, [END], pattern="cl100k")
    added = add_words(base, ["New York", "low"], as_added=True)
    tok = added.tokenizer
    assert [each.tokens for each in added.words] == [[b"New York"], []]
    assert tok.encode("in New York") == [*base.encode("in "), base.n_vocab]
    assert not tok.token_flags["New York"].special
    assert tok.merges == base.merges
    assert tok.to_huggingface().encode("in New York", add_special_tokens=False).ids == tok.encode(
        "in New York"
    )


def test_no_merge_makes_a_token_that_the_base_has_without_a_merge() -> None:
    """The base would merge on from such a token, before all new merges."""
    base = quiet_train(["ab"], 0, [])
    spec = base.to_spec()
    tokens = [b"bc", b"abc", b"abcd"]
    vocab = {**spec.vocab, **{256 + i: token for i, token in enumerate(tokens)}}
    base = Tokenizer.from_spec(replace(spec, vocab=vocab, merges=[(b"b", b"c")], merge_counts=None))
    tok = extended(base, ["abcd abcd abcd abce"], 3)
    assert tok.merges[1:]
    assert b"abc" not in [left + right for left, right in tok.merges]
    with pytest.raises(TokenizerError, match="'abcx' cannot become a token: b'abc'"):
        add_words(base, ["abcx"])


def test_counts_are_kept_and_belong_to_the_normalizer_of_the_base(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("cafe\u0301 " * 10 + "".join(SAMPLES))
    plain = quiet_train(list(SAMPLES), 40, [END])
    base = Tokenizer.from_spec(replace(plain.to_spec(), normalizer=(("NFC",),)))
    saved = tmp_path / "text.counts"
    first = bytemill.extend(base, text, 20, counts=saved)
    again = bytemill.extend(base, counts.SavedCounts([(str(saved), 1)]), 20)
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint == bytemill.extend(base, text, 20, max_memory="8GB").fingerprint
    with pytest.raises(CorpusError, match="another normalizer"):
        bytemill.extend(plain, counts.SavedCounts([(str(saved), 1)]), 20)
    with pytest.raises(CorpusError, match="another normalizer"):
        bytemill.train(counts.SavedCounts([(str(saved), 1)]), 300)


def test_an_interrupted_counting_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(4)]
    for number, file in enumerate(files):
        file.write_text(SAMPLES[number] * 20)
    plain = quiet_train(list(SAMPLES), 40, [END])
    base = Tokenizer.from_spec(replace(plain.to_spec(), normalizer=(("NFC",),)))
    keep = WorkFolder.keep

    def keep_and_stop(*arguments: Any) -> None:
        keep(*arguments)
        raise KeyboardInterrupt

    settings: dict[str, Any] = {"work_folder": tmp_path / "work", "checkpoint_seconds": 0}
    with monkeypatch.context() as context:
        context.setattr(WorkFolder, "keep", keep_and_stop)
        with pytest.raises(KeyboardInterrupt):
            bytemill.extend(base, files, 20, **settings)
    assert (tmp_path / "work" / "journal.json").exists()
    counted: list[int] = []
    resumed = bytemill.extend(
        base, files, 20, progress=lambda report: counted.append(report.done), **settings
    )
    assert counted[0] > files[0].stat().st_size
    assert resumed.fingerprint == bytemill.extend(base, files, 20).fingerprint


def test_a_base_that_cannot_be_extended_is_refused_before_anything_is_read() -> None:
    def unread() -> Any:
        raise AssertionError("read")
        yield

    base = quiet_train(["low"], 1, [])
    spec = base.to_spec()
    characters = TokenizerSpec(
        None, {}, vocab={0: b"<unk>", 1: b"a"}, merges=[], characters=CharacterModel(None, 0)
    )
    suffix = replace(spec, shape=PretokenShape(suffix="</w>"))
    for wrong, message in [(characters, "smallest tokens are characters"), (suffix, "changes pre-tokens")]:
        with pytest.raises(TokenizerError, match=message):
            bytemill.extend_from_iterator(Tokenizer.from_spec(wrong), unread(), 5)
    for n_tokens in (0, -1, 1 << 21):
        with pytest.raises(TokenizerError, match="n_tokens"):
            bytemill.extend_from_iterator(base, unread(), n_tokens)
    with pytest.raises(TypeError, match="n_tokens must be an int"):
        bytemill.extend_from_iterator(base, unread(), cast("int", 1.5))
    with pytest.raises(TokenizerError, match="not a regular expression"):
        bytemill.extend_from_iterator(base, unread(), 5, reuse_reserved="(")


def test_words_that_cannot_be_tokens_are_refused(tmp_path: Path) -> None:
    base = quiet_train(["low lower"], 2, [END])
    with pytest.raises(TokenizerError, match=r"which splits it: 'New' \| ' York'"):
        add_words(base, ["New York"])
    with pytest.raises(TokenizerError, match="a word is empty"):
        add_words(base, [""])
    with pytest.raises(TokenizerError, match="lone surrogate"):
        add_words(base, ["\ud800"])
    nfc = Tokenizer.from_spec(replace(base.to_spec(), normalizer=(("NFC",),)))
    with pytest.raises(TokenizerError, match="the normalizer makes 'é'"):
        add_words(nfc, ["e\u0301"])
    (tmp_path / "empty").write_text("\n\n")
    with pytest.raises(CorpusError, match="no words"):
        read_words(tmp_path / "empty")
    (tmp_path / "words").write_bytes(b" Rome\r\n\nx\xff")
    with pytest.raises(CorpusError, match="not UTF-8"):
        read_words(tmp_path / "words")
