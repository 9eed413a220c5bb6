"""tokenizer.json of published models, rebuilt with a small vocabulary, give the ids of Hugging Face's library."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

import bytemill
from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import SpecialTokenError, TokenizerError, TokenizerFileError
from bytemill.formats import gguf, gpt2, minbpe, tiktoken
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.registry import Content, load_with_core
from bytemill.formats.spec import STEP_SEPARATOR

from ...support.published_shapes import NFC, SHAPES, in_shape

CORPUS = (
    "It's a story: the cat sat on the mat, the  cat's 12345 mats weren't THE mats.\n"
    "\tdef encode(self, text):   return [self.ids[t] for t in text.split()]\r\n\r\n"
    "naïve café, Straße, 日本語のテキスト、한국어 텍스트, Жизнь прекрасна, العربية ٣٤٥, 😀👩\u200d👧\n\n   \n"
)
PIECES = [
    *CORPUS.split(" "),
    " ",
    "  ",
    "     ",
    "\n",
    "\t\t\t",
    "\xa0",
    "\u3000",
    "'ſ",
    "\x00",
    "e\u0301",
    "\u0301",
    ">\u0338",
    "\u212b",
    "\u1100\u1161",
    "\u1df6\u0301",
    "each",
    "ca",
    "_",
    "日",
    "１２",
    "½",
]


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    """A small tokenizer.json as parsed JSON, with tokens of several bytes from many scripts."""
    tokenizer = bytemill.train_from_iterator([CORPUS] * 3, vocab_size=330, pattern="gpt2")
    return json.loads(huggingface.write(tokenizer.to_spec()))


def opened(text: str) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """Return the tokenizer of the fast loader, checked against the reference reader, and Hugging Face's."""
    fast = load_with_core(Content(text.encode(), "t"))
    assert fast is not None
    ours = Tokenizer._from_loaded(fast)
    assert ours.to_spec() == huggingface.from_text(text)
    return ours, tokenizers.Tokenizer.from_str(text)


def assert_same_ids(ours: Tokenizer, theirs: tokenizers.Tokenizer, texts: list[str]) -> None:
    for text, encoding in zip(texts, theirs.encode_batch(texts, add_special_tokens=False), strict=True):
        assert ours.encode(text) == encoding.ids, text[:200]


@pytest.mark.parametrize("name", SHAPES)
def test_a_file_in_the_shape_of_a_published_one_gives_its_ids(
    shared_data: Path, trained: dict[str, Any], name: str
) -> None:
    ours, theirs = opened(in_shape(trained, name))
    assert_same_ids(ours, theirs, excerpts(shared_data, 1500))
    written = huggingface.write(ours.to_spec())
    again = tokenizers.Tokenizer.from_str(written)
    assert huggingface.write(huggingface.from_text(written)) == written
    assert Tokenizer.from_spec(huggingface.from_text(written)).fingerprint == ours.fingerprint
    # What goes around a text and what decoding leaves out has come along too.
    for text in ("the cat", "<mask> [MASK]", *list(ours.special_tokens)[:5]):
        ids = theirs.encode(text).ids
        assert again.encode(text).ids == ids
        assert again.decode(ids) == theirs.decode(ids)
    special = list(ours.special_tokens)

    @example(["".join(special), *special, " ".join(special)])
    @example(["\n \n".join(special), "a <mask>  b", "the catmat mat the_ mat  ", "   ".join(["", *special])])
    @given(st.lists(st.lists(st.sampled_from(PIECES + special), max_size=14).map("".join), max_size=4))
    def check(texts: list[str]) -> None:
        assert_same_ids(ours, theirs, texts)
        assert_same_ids(ours, again, texts)
        for text in texts:
            assert list(ours.encode_iterable(iter(text))) == ours.encode(text)
            explained = [i for part in ours.explain(text) for i in part.ids]
            assert explained == ours.encode(text)
            if name not in {
                "phi-4",
                "roberta",
                "modernbert",
                "single words",
            }:  # those that take in white space
                assert ours.encode(ours.decode(ours.encode(text))) == ours.encode(text)

    check()


def excerpts(shared_data: Path, n_characters: int) -> list[str]:
    files = [path for path in sorted(shared_data.glob("**/*.txt")) if "merges" not in path.name]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return [text[at : at + n_characters] for text in texts for at in (0, len(text) // 2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_whole_files_have_the_ids_of_hugging_face(
    shared_data: Path, trained: dict[str, Any], name: str
) -> None:
    ours, theirs = opened(in_shape(trained, name))
    texts = excerpts(shared_data, 10_000_000)
    assert_same_ids(ours, theirs, texts)
    for text in texts[::2]:
        assert list(ours.encode_iterable(text.splitlines(keepends=True))) == ours.encode(text)
        assert ours.encode(text, num_threads=3) == ours.encode(text, num_threads=1)


def test_each_pre_tokenizer_step_becomes_a_step_of_the_pattern(trained: dict[str, Any]) -> None:
    ours, _ = opened(in_shape(trained, "starcoder-smollm"))
    assert ours.pattern == r"\p{N}" + STEP_SEPARATOR + NAMED_PATTERNS["gpt2"]
    assert [part.text for part in ours.explain("a  12 b")] == ["a", "  ", "1", "2", " b"]
    assert (opened(in_shape(trained, "deepseek-v3"))[0].pattern or "").count(STEP_SEPARATOR) == 2


def test_digits_are_the_digits_of_hugging_face(trained: dict[str, Any]) -> None:
    ours, theirs = opened(in_shape(trained, "starcoder-smollm"))
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    texts = ["a".join(characters[i : i + 4096]) for i in range(0, 0x20000, 4096)]
    assert_same_ids(ours, theirs, texts)


def test_every_character_is_normalized_as_in_hugging_face(trained: dict[str, Any]) -> None:
    ours, theirs = opened(in_shape(trained, "qwen"))
    characters = [chr(c) for c in range(0x30000) if not 0xD800 <= c < 0xE000]
    texts = ["".join(f"{c}\u0301\u0323" for c in characters[i : i + 4096]) for i in range(0, 0x30000, 4096)]
    assert_same_ids(ours, theirs, texts)
    assert ours.normalizer == "NFC"
    assert ours.decode(ours.encode("e\u0301")) == "\u00e9"


def test_normalized_texts_have_the_same_ids_on_threads_and_in_streams(trained: dict[str, Any]) -> None:
    ours, theirs = opened(in_shape(trained, "gpt-neox-olmo"))
    text = "cafe\u0301 naive\u0308 the  cat     sat <|endoftext|>\u0301 \u212b x\u0338 " * 19_000
    assert len(text.encode()) > 1 << 20
    expected = theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, num_threads=1) == expected
    assert ours.encode(text, num_threads=3) == expected
    assert list(ours.encode_iterable(text[i : i + 1000] for i in range(0, len(text), 1000))) == expected


# What `allowed_special` makes of added tokens


def test_added_tokens_follow_allowed_special(trained: dict[str, Any]) -> None:
    ours, _ = opened(in_shape(trained, "modernbert"))
    mask = ours.special_tokens["[MASK]"]
    assert ours.encode("a  [MASK]")[-1] == mask
    assert mask not in ours.encode_ordinary("a  [MASK]")
    assert ours.encode("a  [MASK][CLS]", allowed_special={"[MASK]"})[1] == mask
    with pytest.raises(SpecialTokenError, match="MASK"):
        ours.encode("a [MASK]", allowed_special="none_raise")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen", "its NFC normalizer"),
        ("phi-4", "the matching rules of special token"),
        ("starcoder-smollm", "its pattern of several steps"),
    ],
)
def test_other_formats_refuse_what_they_cannot_represent(
    trained: dict[str, Any], name: str, said: str, tmp_path: Path
) -> None:
    spec = opened(in_shape(trained, name))[0].to_spec()
    with pytest.raises(TokenizerError, match=f"ranks cannot represent this tokenizer: .*{said}"):
        tiktoken.write(spec)
    with pytest.raises(TokenizerError, match=f"a .model cannot represent this tokenizer: .*{said}"):
        minbpe.write(spec)
    with pytest.raises(TokenizerError, match=f"a GGUF file cannot represent this tokenizer: .*{said}"):
        gguf.write(spec, tmp_path / "tokenizer.gguf")
    assert not list(tmp_path.iterdir())
    if name != "qwen":
        return
    with pytest.raises(TokenizerError, match=f"merges.txt cannot represent this tokenizer: .*{said}"):
        gpt2.write(replace(spec, pattern="gpt2"))


def test_flags_affect_the_fingerprint_only_if_they_affect_ids(trained: dict[str, Any]) -> None:
    document = json.loads(in_shape(trained, "gpt2"))
    of = {}
    for flag in ("", "special", "normalized", "lstrip", "rstrip", "single_word"):
        token = document["added_tokens"][0]
        changed = token | {flag: not token[flag]} if flag else token
        of[flag] = opened(json.dumps(document | {"added_tokens": [changed]}))[0].fingerprint
    assert of[""] == of["normalized"]
    assert len({of[flag] for flag in ("", "special", "lstrip", "rstrip", "single_word")}) == 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"normalizer": {"type": "Nmt"}}, "normalizer is 'Nmt', which is not supported"),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [NFC, {"type": "BertNormalizer"}]}},
            r"normalizers\[1\] is 'BertNormalizer'",
        ),
        (
            {"normalizer": {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}},
            "is 'Replace' with 'a\\+' as pattern, which is not supported",
        ),
        ({"normalizer": {"type": "Strip", "strip_left": 1}}, "strip_left is 1"),
        ({"normalizer": {"type": "Sequence", "normalizers": [None]}}, r"normalizers\[0\] is null"),
        ({"normalizer": {"type": "Sequence", "normalizers": 3}}, "normalizers is 3, not an array"),
        ({"normalizer": {"type": "Sequence"}}, "normalizers is null, not an array"),
    ],
)
def test_other_normalizers_are_refused_by_name(
    trained: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    text = json.dumps(json.loads(in_shape(trained, "gpt2")) | change)
    assert load_with_core(Content(text.encode(), "t")) is None
    with pytest.raises(TokenizerFileError, match=said):
        huggingface.from_text(text)


def test_repeated_nfc_is_nfc(trained: dict[str, Any]) -> None:
    document = json.loads(in_shape(trained, "gpt2")) | {
        "normalizer": {"type": "Sequence", "normalizers": [NFC, NFC]}
    }
    ours, theirs = opened(json.dumps(document))
    assert_same_ids(ours, theirs, ["e\u0301", "\u212b"])
