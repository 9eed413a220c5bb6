"""GGUF files of BPE over the characters of words give the ids of llama.cpp's algorithm."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Tokenizer, TokenizerFileError

TOKENS = [*"abi日本語-^] ", "ab", "aba", "日本", "日本語", "<s>", "<u>", "é"]
MERGES = ["a b", "日 本", "日本 語", "ab a"]
NORMAL, CONTROL, USER = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED
texts = st.lists(st.sampled_from([*"abABi日本語-^] \t\n\u3000éx?İ\0", "<s>", "<u>"]), max_size=20).map(
    "".join
)
KINDS = (("whitespace", False), ("whitespace", True), ("gpt2", False))


def make_file(path: Path, model: str, pre: str | None, *, lowers: bool) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([{"<s>": CONTROL, "<u>": USER}.get(token, NORMAL) for token in TOKENS])
    writer.add_token_merges(MERGES)
    if lowers:
        writer.add_bool("tokenizer.ggml.normalizer.lowercase", True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def reference(text: str, *, keeps_spaces: bool, lowers: bool) -> list[int]:
    """Return the ids of llama.cpp: merge the symbols of each word, then look each of them up."""
    for special in ("<s>", "<u>"):
        if special in text:
            before, after = text.split(special, 1)
            sides = [reference(part, keeps_spaces=keeps_spaces, lowers=lowers) for part in (before, after)]
            return [*sides[0], TOKENS.index(special), *sides[1]]
    words, is_new = list[list[str]](), True
    for character in text:
        if not character.isspace():
            symbol = ("i" if character == "İ" else character.lower()) if lowers else character
            words = [*words, [symbol]] if is_new else [*words[:-1], [*words[-1], symbol]]
        elif keeps_spaces:
            words.append([character])
        is_new = character.isspace()
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(MERGES)}
    ids: list[int] = []
    for word in words:
        while found := min(
            ((ranks[pair], at) for at, pair in enumerate(pairwise(word)) if pair in ranks),
            default=None,
        ):
            at = found[1]
            word[at : at + 2] = ["".join(word[at : at + 2])]
        ids += [TOKENS.index(symbol) for symbol in word if symbol in TOKENS]
    return ids


@pytest.mark.parametrize(("model", "lowers"), KINDS)
def test_words_have_the_ids_of_llama_cpp(model: str, tmp_path: Path, *, lowers: bool) -> None:
    ours = Tokenizer.load(make_file(tmp_path / "model.gguf", model, "whitespace", lowers=lowers))
    assert ours.engine == "core"
    (tmp_path / "again.json").unlink(missing_ok=True)
    ours.save(tmp_path / "again.json")
    again = Tokenizer.load(tmp_path / "again.json")

    @given(texts)
    def check(text: str) -> None:
        expected = reference(text, keeps_spaces=model == "gpt2", lowers=lowers)
        assert ours.encode(text) == expected
        assert again.encode(text) == expected
        assert ours.decode(expected) == "".join(TOKENS[token_id] for token_id in expected)

    check()


@pytest.mark.parametrize(
    ("model", "pre"), [("hybriddna", "whitespace"), ("whitespace", None), ("whitespace", "gpt-2")]
)
def test_other_kinds_are_refused_by_name(model: str, pre: Any, tmp_path: Path) -> None:
    path = make_file(tmp_path / "model.gguf", model, pre, lowers=False)
    with pytest.raises(TokenizerFileError, match=f"tokenizer.ggml.model is '{model}' "):
        Tokenizer.load(path)
