"""Models of minbpe and simple-bpe: the same ids as in these tools, in both directions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats import minbpe, registry
from bytemill.formats.spec import TokenizerSpec

MakeSpec = Callable[..., TokenizerSpec]

GPT4 = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
"""What minbpe calls GPT-4's pattern, and takes where none is given."""

HEAD = "minbpe v1\n\n0\n"


class Minbpe:
    """minbpe's algorithm, told anew: what its tokenizer does after it has read a model."""

    def __init__(self, model: str) -> None:
        lines = model.removesuffix("\n").split("\n")
        self.pattern = lines[1]
        n_special = int(lines[2])
        self.special_tokens: dict[str, int] = {}
        for line in lines[3 : 3 + n_special]:
            text, _, token_id = line.rpartition(" ")
            self.special_tokens[text] = int(token_id)
        pairs = [line.split() for line in lines[3 + n_special :]]
        self.merges = {(int(left), int(right)): 256 + i for i, (left, right) in enumerate(pairs)}
        self.known: dict[bytes, list[int]] = {}

    def rank(self, pair: tuple[int, int]) -> int:
        return self.merges.get(pair, 2**32)

    def encode_chunk(self, chunk: bytes) -> list[int]:
        if chunk in self.known:
            return self.known[chunk]
        ids = list(chunk)
        while True:
            pair = min(pairwise(ids), key=self.rank, default=(-1, -1))
            if pair not in self.merges:
                break
            merged: list[int] = []
            for token_id in ids:
                # From the left, so that of three alike the first two are joined.
                if merged and (merged[-1], token_id) == pair:
                    merged[-1] = self.merges[pair]
                else:
                    merged.append(token_id)
            ids = merged
        self.known[chunk] = ids
        return ids

    def encode_ordinary(self, text: str) -> list[int]:
        chunks = regex.findall(self.pattern, text) if self.pattern else [text]
        return [token_id for chunk in chunks for token_id in self.encode_chunk(chunk.encode())]

    def encode(self, text: str) -> list[int]:
        if not self.special_tokens:
            return self.encode_ordinary(text)
        alternatives = "|".join(map(regex.escape, self.special_tokens))
        ids: list[int] = []
        for part in regex.split(f"({alternatives})", text):
            if part in self.special_tokens:
                ids.append(self.special_tokens[part])
            else:
                ids += self.encode_ordinary(part)
        return ids


def model_of(
    merges: list[tuple[int, int]], special: Mapping[str, int] | None = None, pattern: str = ""
) -> str:
    special = special or {}
    lines = ["minbpe v1", pattern, str(len(special))]
    lines += [f"{text} {token_id}" for text, token_id in special.items()]
    return "\n".join([*lines, *(f"{left} {right}" for left, right in merges)]) + "\n"


def trained(text: str, n_merges: int) -> list[tuple[int, int]]:
    """The merges that minbpe's BasicTokenizer learns."""
    ids, merges = list(text.encode()), []
    for new in range(256, 256 + n_merges):
        pairs = list(pairwise(ids))
        if not pairs:
            break
        best = max(dict.fromkeys(pairs), key=pairs.count)
        merges.append(best)
        i, joined = 0, []
        while i < len(ids):
            is_pair = (ids[i], ids[i + 1]) == best if i + 1 < len(ids) else False
            joined.append(new if is_pair else ids[i])
            i += 2 if is_pair else 1
        ids = joined
    return merges


@given(
    st.text(alphabet="aab \né日", min_size=2, max_size=60),
    st.text(alphabet="aab \né日<|>e", max_size=40),
    st.sampled_from(["", GPT4, NAMED_PATTERNS["gpt2"], r" ?\w+|\s"]),
)
def test_ids_are_those_of_minbpes_algorithm(corpus: str, text: str, pattern: str) -> None:
    model = model_of(trained(corpus, 12), {"<|e|>": 1000, "a b": 1001}, pattern)
    oracle = Minbpe(model)
    tokenizer = Tokenizer.from_spec(minbpe.from_text(model, "t.model"))
    if pattern != r" ?\w+|\s":  # which leaves characters out, and minbpe then loses them
        assert tokenizer.encode(text) == oracle.encode(text)
        assert tokenizer.encode_ordinary(text) == oracle.encode_ordinary(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("data", [b"\xff", b"\xe6\x97", b"ab\xffab", b"\x80\x80 ab", bytes(range(256))])
def test_invalid_utf8_tokens_decode_to_their_bytes(data: bytes) -> None:
    model = model_of([(97, 98), (0x80, 0x80), (0xE6, 0x97)])
    tokenizer = Tokenizer.from_spec(minbpe.from_text(model, "t.model"))
    assert tokenizer.decode_bytes(Minbpe(model).encode_chunk(data)) == data
    assert tokenizer.decode_bytes(tokenizer.core.encode_bytes(data)) == data


def test_a_model_has_the_pattern_special_tokens_and_merges_of_its_lines() -> None:
    spec = minbpe.from_text(model_of([(97, 98), (32, 256)], {"<|x|>": 300}, GPT4), "t.model")
    assert spec.pattern == GPT4
    assert spec.special_tokens == {"<|x|>": 300}
    assert spec.merges == [(b"a", b"b"), (b" ", b"ab")]
    assert spec.vocab == {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b" ab"}


@pytest.mark.parametrize("header", ["minbpe v1", "simple-bpe v1"])
@pytest.mark.parametrize(
    "change", [str, lambda text: text.replace("\n", "\r\n"), lambda text: "\ufeff" + text]
)
def test_crlf_and_byte_order_marks_are_accepted(
    tmp_path: Path, header: str, change: Callable[[str], str]
) -> None:
    model = model_of([(97, 98)], {"<|x|>": 300}, GPT4)
    path = tmp_path / "any name"
    path.write_bytes(change(model.replace("minbpe v1", header, 1)).encode())
    assert registry.read(path) == minbpe.from_text(model, "t")


def test_an_empty_pattern_line_means_no_pattern() -> None:
    assert minbpe.from_text(HEAD, "t").pattern is None


def test_white_space_in_a_pattern_is_kept() -> None:
    assert minbpe.from_text(model_of([], pattern=r" ?\p{L}+|\s "), "t").pattern == r" ?\p{L}+|\s "


def test_special_tokens_may_contain_spaces(tmp_path: Path) -> None:
    special = {"two words": 300, " first": 301, "last ": 302, "a 1": 303, "日 本": 304, "\t": 305}
    model = model_of([(97, 98)], special, GPT4)
    path = tmp_path / "t.model"
    path.write_text(model, encoding="utf-8")
    tokenizer = Tokenizer.load(path)
    assert tokenizer.special_tokens == special
    text = "ab two words  first.last a 1\t日 本"
    assert tokenizer.encode(text) == Minbpe(model).encode(text)
    assert {300, 301, 302, 303, 304, 305} <= set(tokenizer.encode(text))


def test_special_token_ids_may_exceed_the_merges() -> None:
    """minbpe's own example gives 512 tokens the ids of GPT-4's special tokens."""
    spec = minbpe.from_text(model_of([(97, 98)], {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258}), "t")
    assert Tokenizer.from_spec(spec).encode("ab<|fim_prefix|>") == [256, 100258]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("minbpe v1\n\n", "t.model:3: '' is not a number of special tokens"),
        ("minbpe v1\n", "t.model:2: the file ends before the number"),
        ("minbpe v1", "t.model:1: the file ends before the number"),
        ("minbpe v1\n\n0", "t.model:3: the last line '0' has no line break"),
        ("minbpe v1\n(\n0\n", r"t.model:2: pattern '\('"),
        ("minbpe v1\n\nx\n", "t.model:3: 'x' is not a number of special tokens"),
        ("minbpe v1\n\n-1\n", "t.model:3: '-1' is not a number"),
        ("minbpe v1\n\n\u0661\n", "t.model:3: .* is not a number"),
        ("minbpe v1\n\n4294967295\n", "t.model:3: announces 4294967295 special tokens, but only 1 lines follow"),
        ("minbpe v1\n\n" + "9" * 5000 + "\n", "t.model:3: '999.*… is not a number"),
        ("minbpe v1\n\n2\n<x> 300\n", "t.model:5: '' is not a special token and its id"),
        ("minbpe v1\n\n1\n<x>\n", "t.model:4: '<x>' is not a special token and its id"),
        ("minbpe v1\n\n1\n 300\n", "t.model:4: ' 300' is not a special token and its id"),
        ("minbpe v1\n\n1\n<x> 4294967296\n", "t.model:4: '<x> 4294967296' is not a special token"),
        ("minbpe v1\n\n2\n<x> 300\n<x> 301\n", "t.model:5: special token '<x>' appears twice"),
        ("minbpe v1\n\n2\n<x> 300\n<y> 300\n", "t.model:5: special tokens '<x>' and '<y>' have the same id 300"),
        ("minbpe v1\n\n1\n<x> 97\n", "t.model:4: special token '<x>' has id 97, which is a byte: b'a'"),
        ("minbpe v1\n\n1\n<x> 256\n97 98\n", "t.model:4: .* has id 256, which is the product of a merge: b'ab'"),
        (HEAD + "97 98\n97\n", "t.model:5: '97' is not two ids"),
        (HEAD + "97 98 99\n", "t.model:4: '97 98 99' is not two ids"),
        (HEAD + "97 x\n", "t.model:4: '97 x' is not two ids"),
        (HEAD + "97 -1\n", "t.model:4: '97 -1' is not two ids"),
        (HEAD + "97 1e2\n", "t.model:4: '97 1e2' is not two ids"),
        (HEAD + "97 " + "1" * 9999 + "\n", "t.model:4: '97 111.*… is not two ids"),
        (HEAD + "97 98", "t.model:4: the last line '97 98' has no line break"),
        (HEAD + "97 256\n", "t.model:4: merges token 256, which is not defined yet: this line"),
        (HEAD + "97 98\n258 97\n97 97\n", "t.model:5: merges token 258, which is not defined yet"),
        (HEAD + "97 98\n97 98\n", "t.model:5: produces b'ab', which is already token 256"),
        (HEAD + "97 98\n98 99\n256 99\n97 257\n", "t.model:7: produces b'abc', which is already token 258"),
        (HEAD + "97 97\n" + "".join(f"{i} {i}\n" for i in range(256, 320)), r"t.model:\d+: the tokens up to this"),
        (HEAD + "97 97\n" * (2**21), "t.model has 2097155 lines"),
        ("minbpe v2\n\n0\n", "t.model:1: header is 'minbpe v2', not 'minbpe v1' or 'simple-bpe v1'"),
    ],
)  # fmt: skip
def test_damaged_models_are_refused_by_line(model: str, said: str) -> None:
    with pytest.raises(TokenizerFileError, match=said):
        minbpe.from_text(model, "t.model")


def test_a_special_token_that_minbpe_never_finds_is_refused() -> None:
    with pytest.raises(TokenizerFileError, match="'<x>' precedes '<x>y', which begins with it") as caught:
        minbpe.from_text(model_of([], {"<z>": 302, "<x>": 300, "<x>y": 301}), "t")
    assert "longer token first" in (caught.value.hint or "")
    model = model_of([], {"<x>y": 301, "<x>": 300, "<": 302})
    assert Tokenizer.from_spec(minbpe.from_text(model, "t")).encode("<x>y<x<x>") == Minbpe(model).encode(
        "<x>y<x<x>"
    )


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=4), unique=True, max_size=8))
def test_a_hidden_special_token_is_found_if_there_is_one(texts: list[str]) -> None:
    hidden = [
        (one, other) for i, one in enumerate(texts) for other in texts[i + 1 :] if other.startswith(one)
    ]
    found = minbpe.hidden_token(texts)
    assert found in hidden if hidden else found is None


@pytest.mark.parametrize("dialect", ["minbpe", "simple-bpe"])
def test_written_models_round_trip(make_spec: MakeSpec, dialect: minbpe.Dialect) -> None:
    spec = make_spec(special_tokens={"<|b|>": 300, "<|a|>": 261})
    written = minbpe.write(spec, dialect)
    assert written.startswith(f"{dialect} v1\n")
    assert minbpe.dialect_of(written.encode()) == dialect
    assert minbpe.from_text(written, "t") == spec
    assert minbpe.write(minbpe.from_text(written, "t"), dialect) == written
    tokenizer = Tokenizer.from_spec(minbpe.from_text(written, "t"))
    assert minbpe.write(tokenizer.to_spec(), dialect) == written
    assert Minbpe(written).encode("abab ab<|a|>é<|b|>") == Tokenizer.from_spec(spec).encode(
        "abab ab<|a|>é<|b|>"
    )


def test_special_tokens_are_written_so_that_minbpe_finds_them(make_spec: MakeSpec) -> None:
    spec = make_spec(special_tokens={"<x>": 300, "<x>y": 301})
    written = minbpe.write(spec)
    assert minbpe.from_text(written, "t").special_tokens == {"<x>": 300, "<x>y": 301}
    assert Minbpe(written).encode("<x>y<x>") == [301, 300]


def test_a_pattern_with_a_line_separator_is_one_line(make_spec: MakeSpec) -> None:
    written = minbpe.write(make_spec(pattern="\\w+|\u2028|\\W"))
    assert minbpe.from_text(written, "t").pattern == "\\w+|\u2028|\\W"
    assert Minbpe(written).encode("a\u2028") == [97, 0xE2, 0x80, 0xA8]


BYTES = {i: bytes([i]) for i in range(256)}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"special_tokens": {"a b": 300}}, "special token 'a b' contains white space"),
        ({"special_tokens": {"<x>\n": 300}}, "contains white space"),
        ({"special_tokens": {"<x>": 300, "<y>": 300}}, "have the same id 300"),
        ({"pattern": r" ?\w+|\W"}, "begins or ends with white space"),
        ({"pattern": "\\w+|\\W\n|."}, "several lines"),
        ({"vocab": BYTES | {300: b"ab"}, "merges": [(b"a", b"b")]}, "but id 256 is not an ordinary token"),
        ({"vocab": {(i + 1) % 256: b for i, b in BYTES.items()}, "merges": []}, "but id 0 is b'\\\\xff'"),
        ({"vocab": BYTES | {256: b"ab"}, "merges": []}, "no merge produces token b'ab'"),
        (
            {
                "merges": [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")],
                "vocab": BYTES | {256: b"bc", 257: b"ab", 258: b"abc"},
                "ignore_merges": True,
            },
            "no sequence of merges produces token b'abc'",
        ),
    ],
)  # fmt: skip
def test_tokenizers_that_minbpe_cannot_read_are_refused(
    make_spec: MakeSpec, fields: dict[str, object], said: str
) -> None:
    with pytest.raises(TokenizerError, match=said):
        minbpe.write(make_spec(**fields))


def test_ranks_are_written_as_merges(make_spec: MakeSpec) -> None:
    spec = make_spec(merges=[(b"a", b"b")], vocab=BYTES | {256: b"ab"})
    ranks = replace(spec, merges=None, ranks={t: i for i, t in spec.vocab.items()}, vocab={})
    assert minbpe.write(ranks) == minbpe.write(spec)


def assert_ids_are_those_of_minbpe(model: Path, paths: Iterable[Path]) -> None:
    oracle = Minbpe(model.read_text(encoding="utf-8"))
    tokenizer = Tokenizer.load(model)
    for path in paths:
        text = path.read_text(encoding="utf-8") + "<|endoftext|>def f(x):\n\treturn x  👩‍👩‍👧\n\n \n"
        assert tokenizer.encode(text) == oracle.encode(text), path.name


def assert_model_of_2048_tokens(model: Path) -> None:
    tokenizer = Tokenizer.load(model)
    assert (tokenizer.n_vocab, len(tokenizer.merges)) == (2049, 2048 - 256)
    assert tokenizer.special_tokens == {"<|endoftext|>": 2048}
    assert tokenizer.pattern == NAMED_PATTERNS["gpt2"]
    assert minbpe.write(tokenizer.to_spec(), "simple-bpe") == model.read_text(encoding="utf-8")


def test_a_model_of_simple_bpe_is_read_and_written_unchanged(simple_bpe_model: Path) -> None:
    assert_model_of_2048_tokens(simple_bpe_model)


def test_a_model_of_simple_bpe_gives_the_ids_of_minbpe(simple_bpe_model: Path, shared_data: Path) -> None:
    names = ["botchan_en.txt", "tinyshakespeare.txt", "hellaswag_val.txt"]
    paths = [*(shared_data / name for name in names), *sorted(shared_data.glob("udhr/*.txt"))]
    assert_ids_are_those_of_minbpe(simple_bpe_model, paths)


@pytest.mark.slow
def test_a_model_that_simple_bpe_trained_gives_the_ids_of_minbpe(full_data: Path) -> None:
    model = full_data / "tinystoriesv2-gpt4-train-2048.model"
    assert_model_of_2048_tokens(model)
    assert_ids_are_those_of_minbpe(model, sorted(full_data.rglob("*.txt")))
