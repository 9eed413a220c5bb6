"""The same ids here and in Hugging Face's library, for files written by either."""

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.patterns import as_pattern
from tokenizers import AddedToken, Regex, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

import bytemill
from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS, matcher
from bytemill.errors import TokenizerError
from bytemill.formats import gpt2, minbpe, registry
from bytemill.formats.byte_level import bytes_to_text
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.registry import Content, load_with_core
from bytemill.formats.spec import TokenizerSpec

CORPUS = (
    "It's a story: the cat sat on the mat, and the cat's 12345 mats weren't THE mats. <|endoftext|>\n"
    "\tdef encode(self, text):   return [self.ids[t] for t in text.split()]\r\n\r\n"
    "naïve café, Straße, 日本語のテキスト、한국어 텍스트, Жизнь прекрасна, "
    "العربية ٣٤٥, 😀😀👩\u200d👩\u200d👧\n\n   \n"
    " the the the end  "
)
SPECIAL = ["<|endoftext|>", "<|endoftext|><|pad|>", "<|pad|>", "日本"]

PIECES = st.sampled_from(
    [*CORPUS.split(" "), *SPECIAL, " ", "  ", "\n", " \n ", "\t", "\xa0", "'ſ", "'S", "\x00"]
)
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join)


def opened_by_hugging_face(tokenizer: Tokenizer, folder: Path) -> tokenizers.Tokenizer:
    tokenizer.save(folder / "tokenizer.json")
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def assert_same_ids(ours: Tokenizer, theirs: tokenizers.Tokenizer, texts: list[str]) -> None:
    for text, encoding in zip(texts, theirs.encode_batch(texts, add_special_tokens=False), strict=True):
        assert ours.encode(text) == encoding.ids
        assert ours.decode(encoding.ids) == text


def excerpts(shared_data: Path) -> list[str]:
    """A few kilobytes each of prose in many scripts and of the ends of lines and pages."""
    names = ["tinystories.txt", "botchan_en.txt", "wagahai_ja.txt"]
    files = [shared_data / name for name in names] + sorted((shared_data / "udhr").glob("*.txt"))
    texts = [path.read_text(encoding="utf-8")[:3000] for path in files]
    return [*texts, *(text.replace("\n", "  \r\n \n") + "\n  " for text in texts[:3])]


@pytest.mark.parametrize("pattern", [*NAMED_PATTERNS, None, r"\p{N}{1,2}+|\s+$|[^\s\p{N}]+|\s"])
def test_a_trained_tokenizer_gives_the_same_ids_in_hugging_face(tmp_path: Path, pattern: str | None) -> None:
    ours = bytemill.train_from_iterator(
        [CORPUS] * 3, vocab_size=350, special_tokens=SPECIAL, pattern=as_pattern(pattern)
    )
    theirs = opened_by_hugging_face(ours, tmp_path)
    assert theirs.get_vocab_size() == ours.n_vocab

    @given(TEXTS)
    def check(text: str) -> None:
        assert_same_ids(ours, theirs, [text])

    check()
    assert_same_ids(ours, theirs, [CORPUS])
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.fingerprint == ours.fingerprint
    assert again.merge_counts == ours.merge_counts
    assert again.ties == ours.ties
    assert again.to_spec() == ours.to_spec()


@pytest.mark.parametrize("split", [None, NAMED_PATTERNS["llama3"], NAMED_PATTERNS["o200k"]])
@pytest.mark.parametrize("special", [True, False])
def test_a_tokenizer_trained_by_hugging_face_gives_the_same_ids_here(
    tmp_path: Path, split: str | None, special: bool
) -> None:
    theirs = tokenizers.Tokenizer(BPE(unk_token="<unk>"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    theirs.pre_tokenizer = (  # type: ignore[assignment]
        byte_level
        if split is None
        else pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"), byte_level])
    )
    theirs.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = BpeTrainer(
        vocab_size=350,
        special_tokens=["<unk>", *SPECIAL[:2]],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator([CORPUS] * 3, trainer)
    theirs.add_tokens(
        [AddedToken(text, special=special, normalized=not special) for text in ("日本", "the cat")]
    )
    theirs.post_processor = TemplateProcessing(  # type: ignore[assignment]
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 1)]
    )
    path = tmp_path / "tokenizer.json"
    theirs.save(str(path))
    ours = Tokenizer.load(path)
    assert ours.n_vocab == theirs.get_vocab_size()

    @given(TEXTS)
    def check(text: str) -> None:
        assert_same_ids(ours, theirs, [text])

    check()
    assert_same_ids(ours, theirs, [CORPUS])
    assert_same_ids(ours, opened_by_hugging_face(ours, tmp_path), [CORPUS])


@st.composite
def rank_lists(draw: st.DrawFn) -> dict[bytes, int]:
    """Ranks over two letters, with tokens that never arise by merging."""
    tokens = draw(st.lists(st.text("ab", min_size=2, max_size=6).map(str.encode), unique=True, max_size=12))
    return {token: rank for rank, token in enumerate([*(bytes([i]) for i in range(256)), *tokens])}


@given(rank_lists(), st.lists(st.text("ab ", max_size=14), min_size=1, max_size=5))
def test_any_ranks_give_the_same_ids_in_hugging_face(
    tmp_path_factory: pytest.TempPathFactory, ranks: dict[bytes, int], texts: list[str]
) -> None:
    pattern = NAMED_PATTERNS["cl100k"]
    ours = Tokenizer.from_spec(TokenizerSpec(pattern=pattern, special_tokens={"<x>": 999}, ranks=ranks))
    theirs = opened_by_hugging_face(ours, tmp_path_factory.mktemp("ranks"))
    assert_same_ids(ours, theirs, texts)


@pytest.mark.parametrize(
    "name", ["r50k_base", "cl100k_base", pytest.param("o200k_base", marks=pytest.mark.slow)]
)
def test_published_vocabularies_give_the_same_ids_in_hugging_face(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    spec = registry.read(shared_data / f"{name}.tiktoken")
    ours = Tokenizer.load(shared_data / f"{name}.tiktoken")
    theirs = opened_by_hugging_face(ours, tmp_path)
    texts = [*excerpts(shared_data), CORPUS, "a\n  ", *spec.special_tokens]
    assert_same_ids(ours, theirs, texts)
    assert {token: theirs.token_to_id(token) for token in spec.special_tokens} == spec.special_tokens
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert_same_ids(again, theirs, texts)


def test_special_tokens_requested_with_the_two_files_are_recognized(
    make_spec: Callable[..., TokenizerSpec], tmp_path: Path
) -> None:
    vocab_json, merges_txt = gpt2.write(make_spec())
    (tmp_path / "v").write_text(vocab_json, encoding="utf-8")
    (tmp_path / "m").write_text(merges_txt, encoding="utf-8")
    ours = Tokenizer.from_files(tmp_path / "v", tmp_path / "m", special_tokens=["<|endoftext|>", "<|new|>"])
    assert ours.encode("abab<|endoftext|> ab<|new|>") == [257, 261, 258, 262]


def llama3_like(document: dict[str, Any]) -> dict[str, Any]:
    """`document` in the form of Llama 3's published file, with a token more that no merge makes."""
    split = {
        "type": "Split",
        "pattern": {"Regex": NAMED_PATTERNS["llama3"]},
        "behavior": "Isolated",
        "invert": False,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    del document["model"]["bytemill"]
    del document["model"]["vocab"]["<|endoftext|>"]
    document["model"]["vocab"]["abba"] = 261
    document["added_tokens"][0]["id"] = 262
    document["model"]["ignore_merges"] = True
    document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    return document | {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": {
            "type": "Sequence",
            "processors": [
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                {
                    "type": "TemplateProcessing",
                    "single": [
                        {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                        {"Sequence": {"id": "A", "type_id": 0}},
                    ],
                    "pair": [
                        {"Sequence": {"id": "A", "type_id": 0}},
                        {"Sequence": {"id": "B", "type_id": 1}},
                    ],
                    "special_tokens": {
                        "<|endoftext|>": {"id": "<|endoftext|>", "ids": [262], "tokens": ["<|endoftext|>"]}
                    },
                },
            ],
        },
    }


def test_a_file_in_the_form_of_llama3_gives_the_same_ids(
    make_spec: Callable[..., TokenizerSpec], tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    Tokenizer.from_spec(make_spec()).save(path)
    document = llama3_like(json.loads(path.read_text(encoding="utf-8")))
    text = json.dumps(document)
    path.write_text(text, encoding="utf-8")
    ours, theirs = Tokenizer.load(path), tokenizers.Tokenizer.from_str(text)
    assert ours.core.ignore_merges
    assert ours.pattern == NAMED_PATTERNS["llama3"]
    # "abba" has no merge and is found as a whole pre-token only.
    assert ours.encode("abba abba") == [261, 258, 98, 97]
    assert_same_ids(ours, theirs, ["abba abba", "abab<|endoftext|>a\n  ", 'é"\\ abab', CORPUS])


def with_every_split(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Every way to split every token in two, as the converter of ranks in `transformers` lists them."""
    merges: list[tuple[bytes, bytes]] = []
    for token in sorted(ranks, key=ranks.__getitem__):
        splits = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [(left, right) for left, right in splits if left in ranks and right in ranks]
        merges += sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return merges


def document_of(
    ranks: dict[bytes, int], merges: list[tuple[bytes, bytes]], *, ignore_merges: bool, split: str
) -> str:
    spelled = bytes_to_text
    splits = {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {
        "type": "BPE",
        "ignore_merges": ignore_merges,
        "vocab": {spelled(token): rank for token, rank in ranks.items()},
        "merges": [f"{spelled(left)} {spelled(right)}" for left, right in merges],
    }
    pre_tokenizer = {"type": "Sequence", "pretokenizers": [splits, byte_level]}
    document = {"version": "1.0", "added_tokens": [], "pre_tokenizer": pre_tokenizer, "model": model}
    return json.dumps(document | {"decoder": {**byte_level, "use_regex": True}})


@given(rank_lists(), st.data())
def test_several_merges_for_one_token_give_the_same_ids(ranks: dict[bytes, int], data: st.DataObject) -> None:
    merges = with_every_split(ranks)
    if data.draw(st.booleans()):
        merges = data.draw(st.permutations(merges))
    ignore_merges = data.draw(st.booleans())
    text = document_of(ranks, merges, ignore_merges=ignore_merges, split=r"\S+|\s")
    ours = Tokenizer.from_spec(huggingface.from_text(text))
    texts = data.draw(st.lists(st.text("ab ", max_size=14), min_size=1, max_size=8))
    assert_same_ids(ours, tokenizers.Tokenizer.from_str(text), texts)
    assert_same_ids(ours, ours.to_huggingface(), texts)


def test_a_merge_before_those_of_its_parts_is_read_as_ranks_or_kept_there() -> None:
    ranks = {bytes([i]): i for i in range(256)} | {b"abc": 256, b"ab": 257}
    merges = with_every_split(ranks)
    assert merges == [(b"ab", b"c"), (b"a", b"b")]
    text = document_of(ranks, merges, ignore_merges=True, split=r"\S+|\s")
    ours = Tokenizer.from_spec(huggingface.from_text(text))
    assert ours.core.ranked
    assert_same_ids(ours, tokenizers.Tokenizer.from_str(text), ["abc", "abcab", "xabc ab"])
    text = document_of(ranks, merges, ignore_merges=False, split=r"\S+|\s")
    ours = Tokenizer.from_spec(huggingface.from_text(text))
    assert ours.merges == merges
    texts = ["abc", "abcab", "xabc ab"]
    assert_same_ids(ours, tokenizers.Tokenizer.from_str(text), texts)
    assert_same_ids(ours, ours.to_huggingface(), texts)
    with pytest.raises(TokenizerError, match="order of merges"):
        minbpe.write(ours.to_spec())


@pytest.mark.parametrize("name", ["qwen3", "gptoss", "mistral_nemo"])
def test_published_models_load_fast_and_give_the_same_ids(full_data: Path, tmp_path: Path, name: str) -> None:
    packed = full_data / "models" / f"{name}.tokenizer.json.xz"
    path = tmp_path / "tokenizer.json"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    loaded = load_with_core(Content(path.read_bytes(), "t"))
    assert loaded is not None
    ours = Tokenizer._from_loaded(loaded)
    assert (
        ours.to_spec()
        == Tokenizer.from_spec(huggingface.from_text(path.read_text(encoding="utf-8"))).to_spec()
    )
    assert ours.pattern is not None
    assert matcher(ours.pattern) != "backtracking"
    theirs = tokenizers.Tokenizer.from_file(str(path))
    texts = [file.read_text(encoding="utf-8") for file in sorted(full_data.glob("udhr/*.txt"))]
    files = [full_data / "wagahai_ja.txt", full_data / "tinystories_2MiB.txt"]
    texts += [file.read_text(encoding="utf-8")[:100_000] for file in files]
    special = list(ours.special_tokens)[:20]
    texts += [CORPUS, *special, "a ".join(special), "e\u0301 \u212b 12345 It's WON'T don't"]
    for text, encoding in zip(texts, theirs.encode_batch(texts, add_special_tokens=False), strict=True):
        assert ours.encode(text) == encoding.ids, text[:200]  # decoding gives the normalized text


def test_a_merge_of_later_parts_is_left_out() -> None:
    """As in the files of gpt-oss and Mistral, where the splits of a token stand together."""
    ranks = {bytes([i]): i for i in range(256)} | {b"aa": 256, b"aaaa": 257, b"aaa": 258, b"aaab": 259}
    merges = with_every_split(ranks)
    assert merges.index((b"a", b"aaa")) < merges.index((b"a", b"aa"))
    text = document_of(ranks, merges, ignore_merges=True, split=r"\S+|\s")
    loaded = load_with_core(Content(text.encode(), "t"))
    assert loaded is not None
    ours = Tokenizer._from_loaded(loaded)
    assert ours.to_spec() == Tokenizer.from_spec(huggingface.from_text(text)).to_spec()
    texts = ["a" * n for n in range(1, 12)] + ["aaab", "baaab", "aab aaab"]
    assert_same_ids(ours, tokenizers.Tokenizer.from_str(text), texts)


@st.composite
def merge_lists(draw: st.DrawFn) -> tuple[dict[bytes, int], list[tuple[bytes, bytes]]]:
    """Ranks and all merges of their tokens, in their order or in any other."""
    ranks = draw(rank_lists())
    merges = with_every_split(ranks)
    return ranks, draw(st.permutations(merges)) if draw(st.booleans()) else merges


BYTES = {bytes([i]): i for i in range(256)}
# No merge of the second token is needed, but one of them is before those of its parts.
NEVER_MADE = BYTES | {b"ba": 256, b"abaa": 257, b"aa": 258, b"ab": 259, b"aaa": 260}


@example((NEVER_MADE, with_every_split(NEVER_MADE)), True, ["abaa", "aaabaa ba"])
@example((NEVER_MADE, with_every_split(NEVER_MADE)), False, ["abaa", "aaabaa ba"])
@given(merge_lists(), st.booleans(), st.lists(st.text("ab ", max_size=14), min_size=1, max_size=8))
def test_the_core_chooses_the_merges_that_the_reader_chooses(
    ranks_and_merges: tuple[dict[bytes, int], list[tuple[bytes, bytes]]],
    ignore_merges: bool,
    texts: list[str],
) -> None:
    text = document_of(*ranks_and_merges, ignore_merges=ignore_merges, split=r"\S+|\s")
    loaded = load_with_core(Content(text.encode(), "t"))
    if loaded is None:
        return  # the reference reader decides
    ours = Tokenizer._from_loaded(loaded)
    assert_same_ids(ours, tokenizers.Tokenizer.from_str(text), texts)
    assert ours.merges == Tokenizer.from_spec(huggingface.from_text(text)).merges
