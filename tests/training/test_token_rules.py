"""Rules about tokens: training with them gives what the definition gives."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import reference
from bytemill.errors import CorpusError, TokenizerError
from bytemill.formats.registry import Content, load_content
from bytemill.training.token_rules import TokenRules, first_merges, read_forbidden

from ..zoo.odd_files import odd_files

TEXT = (
    "the lower tower, lowest towers: 12345 towels, 2345 été été naïve naïve; lower lower low low slow slower "
    * 3
)
words = st.lists(
    st.sampled_from(["low", " lower", " tower", " 1234", "été", " naïve", "\n", "aa", "aaa", "\u4eca\u65e5"]),
    min_size=1,
    max_size=40,
).map("".join)


def trained(text: str, n: int, **options: Any) -> bytemill.Tokenizer:
    with warnings.catch_warnings():
        # Few merges are left where most are forbidden.
        warnings.simplefilter("ignore", bytemill.TrainingStoppedEarly)
        return bytemill.train_from_iterator([text], n, [], **options)


@given(
    text=words,
    n=st.integers(0, 40),
    longest=st.integers(1, 6) | st.none(),
    n_characters=st.integers(1, 4) | st.none(),
    forbid=st.lists(st.sampled_from(["lo", "we", " t", "regex:[0-9]{2}", "regex:^ ", "regex:é"]), max_size=3),
    ties=st.sampled_from(["bytes", "huggingface"]),
)
def test_merges_under_rules_are_those_of_the_definition(
    text: str, n: int, longest: int | None, n_characters: int | None, forbid: list[str], ties: Any
) -> None:
    ours = trained(
        text,
        256 + n,
        ties=ties,
        max_token_bytes=longest,
        max_token_characters=n_characters,
        forbid=forbid,
    )
    rules = TokenRules.of(longest, n_characters, forbid)
    _, expected = reference.train_naive(
        text, 256 + n, ties=ties, forbids=None if rules is None else rules.forbids
    )
    assert ours.merges == expected
    if rules is not None:
        assert not any(rules.forbids(left + right) for left, right in ours.merges)


@given(
    text=words,
    n=st.integers(10, 40),
    required=st.lists(st.sampled_from(["low", " tower", "été"]), max_size=3),
)
def test_required_words_are_tokens_and_come_first(text: str, n: int, required: list[str]) -> None:
    first = first_merges("gpt2", required, None, None)
    earlier = [] if first is None else first.merges
    ours = trained(text, 256 + n, require=required)
    _, expected = reference.train_naive(text, 256 + n, first=earlier)
    assert ours.merges == expected
    for word in required:
        assert len(ours.encode(word)) == 1
        assert ours.vocab[ours.encode(word)[0]] == word.encode()


@given(text=words, other=words, n=st.integers(0, 20))
def test_the_merges_of_another_tokenizer_come_first(text: str, other: str, n: int) -> None:
    initial = trained(other, 266)
    n_first = len(initial.merges)
    ours = trained(text, 256 + n_first + n, initial=initial)
    _, expected = reference.train_naive(text, 256 + n_first + n, first=initial.merges)
    assert ours.merges == expected
    assert ours.merges[:n_first] == initial.merges


def test_lengths_are_those_of_hugging_face() -> None:
    # Its trainer makes tokens that are shorter than `max_token_length`, in characters that stand for bytes.
    for longest in (3, 4, 6):
        theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
        theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=290,
            max_token_length=longest,
            show_progress=False,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        )
        theirs.train_from_iterator([TEXT], trainer)
        ours = bytemill.train_from_iterator(
            [TEXT], theirs.get_vocab_size(), [], ties="huggingface", max_token_bytes=longest - 1
        )
        assert set(ours.get_vocab()) == set(theirs.get_vocab())


def test_rules_do_not_depend_on_memory_or_threads(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT * 200, encoding="utf-8")
    options: dict[str, Any] = {"forbid": ["low", "regex:ow"], "require": [" 2345"], "max_token_bytes": 7}
    one = bytemill.train(path, 285, [], **options, num_threads=1)
    assert bytemill.train(path, 285, [], **options, num_threads=2).merges == one.merges
    assert bytemill.train(path, 285, [], **options, max_memory="64GB").merges == one.merges
    assert not any(b"ow" in left + right for left, right in one.merges)
    assert len(one.encode(" 2345")) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_token_bytes": 0}, "max_token_bytes is 0"),
        ({"max_token_characters": -1}, "max_token_characters is -1"),
        ({"forbid": "ab"}, "forbid is a str"),
        ({"forbid": ["regex:("]}, "does not compile"),
        ({"require": "ab"}, "require is a str"),
        ({"require": ["two words"]}, "cannot be a token under this pattern"),
        ({"require": ["low"], "forbid": ["low"]}, "required and forbidden"),
        ({"require": ["lowest", "tower"], "vocab_size": 258}, "no room for the 9 merges"),
    ],
)
def test_impossible_rules_are_refused_before_anything_is_read(options: dict[str, Any], message: str) -> None:
    def texts() -> Any:
        raise AssertionError("read")
        yield

    size = options.pop("vocab_size", 300)
    with pytest.raises(TokenizerError, match=message):
        bytemill.train_from_iterator(texts(), size, [], **options)


def test_a_tokenizer_without_merges_over_bytes_is_no_beginning() -> None:
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    contents = (
        Content(json.dumps(file).encode(), "t.json") for name, file in odd_files().items() if "llama" in name
    )
    loaded = (bytemill.Tokenizer._from_loaded(load_content(content)) for content in contents)
    characters = next(tok for tok in loaded if tok.characters is not None)
    with pytest.raises(TokenizerError, match="training from its merges needs"):
        bytemill.train_from_iterator(["a"], 300, initial=bytemill.Tokenizer.from_huggingface(library))
    with pytest.raises(TokenizerError, match="byte-level tokenizer only"):
        bytemill.train_from_iterator(["a"], 300, initial=characters)


def test_lists_of_tokens_are_lines_of_files(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("ab\n\n cd\n", encoding="utf-8")
    assert read_forbidden(str(path)) == ["ab", " cd"]
    assert read_forbidden("regex:a|b") == ["regex:a|b"]
    path.write_bytes(b"\xff")
    for name in (str(path), str(tmp_path / "none.txt")):
        with pytest.raises(CorpusError):
            read_forbidden(name)
