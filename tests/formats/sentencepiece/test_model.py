"""SentencePiece models give the ids of the `sentencepiece` package."""

import contextlib
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from bytemill import BytemillError, Tokenizer, TokenizerError, TokenizerFileError
from bytemill._core import TextMarks
from bytemill.comparison.counting import TokenTable
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.sentencepiece import fields, from_bytes
from bytemill.studio.routes.tokenizers import smallest_size

TrainModel = Callable[..., bytes]

OPTIONS = {
    "llama": {"byte_fallback": True, "remove_extra_whitespaces": False, "split_digits": True},
    "plain": {"character_coverage": 0.98},
    "whitespace only": {
        "byte_fallback": True,
        "allow_whitespace_only_pieces": True,
        "remove_extra_whitespaces": False,
    },
    "gemma": {
        "byte_fallback": True,
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
        "user_defined_symbols": ("<sym>", "▁▁", "▁▁▁", "\n\n", "ab"),
    },
    "nmt_nfkc": {"byte_fallback": True, "normalization_rule_name": "nmt_nfkc"},
    "nmt_nfkc_cf": {
        "normalization_rule_name": "nmt_nfkc_cf",
        "remove_extra_whitespaces": False,
        "character_coverage": 0.98,
    },
    "nfkc": {"normalization_rule_name": "nfkc", "byte_fallback": True, "add_dummy_prefix": False},
    "rules and symbols": {
        "normalization_rule_name": "nmt_nfkc",
        "user_defined_symbols": ("①", "ﬁx", "x.", "e\u0301", "ｶﾞ", "日本", "<sym>", "<sy", "1234", "Å"),
    },
    "symbols after a prefix": {"byte_fallback": True, "user_defined_symbols": ("<sym>", "<sy", "日本")},
}

texts = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *(
                    " ",
                    "  ",
                    "   ",
                    "▁",
                    "\t",
                    "\n",
                    "\n\n",
                    "\u3000",
                    "\u00a0",
                    "a",
                    "b",
                    "the ",
                    "human rights",
                ),
                *(
                    "<sym>",
                    "<sy",
                    "<s>",
                    "</s>",
                    "<unk>",
                    "<0x0A>",
                    "日本",
                    "人権",
                    "語",
                    "é",
                    "e\u0301",
                    "1234",
                    "😀",
                ),
                *(
                    "सभी",
                    "الناس",
                    "모든",
                    "👩‍👩‍👧",
                    "\x00",
                    "x",
                    ".",
                    "ﬁ",
                    "①",
                    "Å",
                    "A\u030a",
                    "ｶﾞ",
                    "İ",
                    "ß",
                ),
                *("\u200b", "\ufeff", "\x1f", "\u3000\u3000", "ﷺ", "\u0958", "\u1112\u1161\u11ab", "Σ"),
            ]
        ),
        st.text(max_size=4),
    ),
    max_size=16,
).map("".join)


def symbols_of(tokenizer: Tokenizer) -> set[str]:
    """The user-defined symbols: SentencePiece recognizes no other special tokens in a text."""
    return {token for token, flags in tokenizer.token_flags.items() if flags.normalized}


@pytest.mark.parametrize("name", OPTIONS)
def test_ids_are_those_of_sentencepiece(train_model: TrainModel, name: str) -> None:
    data = train_model(**OPTIONS[name])
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    ours = Tokenizer.from_spec(from_bytes(data, "t.model"))
    symbols = symbols_of(ours)
    assert ours.vocab_size == theirs.vocab_size()

    @given(texts)
    @example("Alle Menschen sind frei und gleich " * 40)
    @example(" " * 1000)
    @example("人" * 3000 + "✓" * 300)
    def check(text: str) -> None:
        expected = theirs.encode(text)
        ids = ours.encode(text, allowed_special=symbols)
        assert ids == expected
        assert ours.count(text, allowed_special=symbols) == len(ids)
        # The tokens are compared with the text that offsets refer to.
        assert ours.encode_with_offsets(text, allowed_special=symbols).ids.tolist() == ids
        if ours.core.fallback == ("bytes", None, False) and "\x00" not in text:
            assert ours.decode(ids) == theirs.decode(ids)
            decoder = ours.stream_decoder()
            assert "".join(map(decoder.feed, ids)) + decoder.finish() == ours.decode(ids)

    check()


def pruned(data: bytes, removed: set[str]) -> bytes:
    """A model without some of its pieces."""
    parts: list[bytes] = []
    for number, value in fields(data):
        assert isinstance(value, bytes)
        if number != 1 or dict(fields(value))[1] not in {text.encode() for text in removed}:
            size, length = len(value), bytearray()
            while size > 0x7F:
                length.append(size & 0x7F | 0x80)
                size >>= 7
            parts.append(bytes([number << 3 | 2, *length, size]) + value)
    return b"".join(parts)


@pytest.mark.parametrize("name", ["llama", "plain", "gemma", "nmt_nfkc_cf"])
@pytest.mark.parametrize("n_removed", [0, 20])
def test_a_model_without_some_pieces_has_the_ids_of_sentencepiece(
    train_model: TrainModel, name: str, n_removed: int
) -> None:
    data = train_model(**OPTIONS[name])
    whole = sentencepiece.SentencePieceProcessor(model_proto=data)
    pieces = [
        whole.id_to_piece(i)
        for i in range(whole.vocab_size())
        if not (whole.is_control(i) or whole.is_unknown(i) or whole.is_byte(i))
    ]
    characters, random = [piece for piece in pieces if len(piece) == 1], Random(name)
    removed = {"▁", "t", *random.sample(characters, n_removed), *random.sample(pieces, n_removed)}
    model_proto = pruned(data, removed)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    ours = Tokenizer.from_spec(from_bytes(model_proto, "t.model"))
    again = Tokenizer.from_spec(ours.to_spec())
    assert again.fingerprint == ours.fingerprint
    assert ours.vocab_size == theirs.vocab_size() == whole.vocab_size() - len(removed)
    symbols = symbols_of(ours)
    among = st.lists(st.sampled_from([*sorted(removed), "the", " ", "cat", "✓", "human"]), max_size=12)

    @given(texts | among.map("".join))
    @example("the cat")
    def check(text: str) -> None:
        ids = ours.encode(text, allowed_special=symbols)
        assert ids == theirs.encode(text)
        assert again.encode(text, allowed_special=symbols) == ids
        assert ours.encode_with_offsets(text, allowed_special=symbols).ids.tolist() == ids
        shown = ours.explain(text, allowed_special=symbols)
        assert [i for part in shown for i in part.ids] == ids or theirs.unk_id() in ids
        if ours.core.fallback == ("bytes", None, False) and "\x00" not in text:
            assert ours.decode(ids) == theirs.decode(ids)

    check()
    with pytest.raises(TokenizerError, match=r"cannot represent (merges of|Senten|user)"):
        tokenizer_json.write(ours.to_spec())


def test_a_symbol_with_a_space_is_never_found(train_model: TrainModel) -> None:
    symbols = ("<IS MAN>", "FOO bar", " hello", "<sym>")
    data = train_model(byte_fallback=True, user_defined_symbols=symbols)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    ours = Tokenizer.from_spec(from_bytes(data, "t.model"))
    assert symbols_of(ours) == {"<sym>"}
    for text in ("he <IS MAN> now", "FOO bar<sym>FOO bar", " hello  hello"):
        assert ours.encode(text, allowed_special={"<sym>"}) == theirs.encode(text)
    for symbol in symbols:
        assert ours.decode([theirs.piece_to_id(symbol)]).strip() == symbol.strip()
    twice = train_model(byte_fallback=True, user_defined_symbols=("FOO bar", "FOO▁bar"))
    with pytest.raises(TokenizerFileError, match="'FOO bar', is another one with a space instead of"):
        from_bytes(twice, "t.model")


@pytest.mark.parametrize("name", OPTIONS)
def test_a_text_in_chunks_has_the_ids_of_the_whole_text(train_model: TrainModel, name: str) -> None:
    ours = Tokenizer.from_spec(from_bytes(train_model(**OPTIONS[name]), "t.model"))
    text = "All human beings <s> are  born ▁free<sym> and\n\nequal. すべての人間は、 生まれながら  <s>" * 4000
    expected = ours.encode(text, num_threads=1)
    assert len(text.encode()) > 1 << 18
    assert ours.encode(text, num_threads=3) == expected
    assert list(ours.encode_iterable(text[i : i + 997] for i in range(0, len(text), 997))) == expected
    assert ours.encode_batch([text, "a", text], num_threads=3) == [expected, ours.encode("a"), expected]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_file_of_a_long_text_has_its_ids(train_model: TrainModel, name: str, tmp_path: Path) -> None:
    ours = Tokenizer.from_spec(from_bytes(train_model(**OPTIONS[name]), "t.model"))
    text = "Everyone has  the right to ▁life<s> and <sym>" * 30_000
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8", newline="")
    (ids,) = ours.encode_files([path], num_threads=3)
    assert ids.tolist() == ours.encode(text, num_threads=1)


def test_offsets_tile_the_text(train_model: TrainModel) -> None:
    ours = Tokenizer.from_spec(from_bytes(train_model(**OPTIONS["llama"]), "t.model"))
    encoded = ours.encode_with_offsets("the 😀✓ end")
    # The space before the text has the offsets of the first character.
    assert encoded.char_offsets[0].tolist() == [0, 3]
    assert b"".join(encoded.tokens) == "the 😀✓ end".encode()


def test_an_explanation_shows_the_merges_of_characters(train_model: TrainModel) -> None:
    for name in ("llama", "plain"):
        ours = Tokenizer.from_spec(from_bytes(train_model(**OPTIONS[name]), "t.model"))
        for text in ("すべての人間は生まれ", "the human right ✓✓x"):
            parts = ours.explain(text)
            for part in parts:
                tokens = [bytes(token) for token in part.tokens]
                assert b"".join(tokens).decode() == part.text
                assert all(len(step.left.decode()) and len(step.right.decode()) for step in part.steps)
            if name == "llama":
                assert [i for part in parts for i in part.ids] == ours.encode(text)


def test_tokens_are_shown_as_the_model_writes_them(train_model: TrainModel) -> None:
    data = train_model(**OPTIONS["llama"])
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    ours = Tokenizer.from_spec(from_bytes(data, "t.model"))
    assert [ours.id_to_token(i) for i in range(ours.n_vocab)] == [
        theirs.id_to_piece(i) for i in range(theirs.vocab_size())
    ]
    for token_id in (0, 1, 3, 200, 258, 259, 900, 1199):
        assert ours.token_to_id(theirs.id_to_piece(token_id)) == token_id
    assert ours.decode([theirs.piece_to_id("<0x0A>")]) == "\n"


@pytest.mark.parametrize("name", ["llama", "plain", "gemma"])
def test_a_model_becomes_a_tokenizer_json_with_the_same_ids(
    train_model: TrainModel, name: str, tmp_path: Path
) -> None:
    source = tmp_path / "tokenizer.model"
    source.write_bytes(train_model(**OPTIONS[name]))
    ours = Tokenizer.load(tmp_path)
    ours.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.fingerprint == ours.fingerprint
    kept = again.characters
    assert kept is not None
    assert ours.characters is not None
    # The decoders of a tokenizer.json know no other way to remove a space than once.
    expected = replace(ours.characters, decode_strip=kept.decode_strip)
    assert replace(again.to_spec(), metadata=None) == replace(ours.to_spec(), characters=expected)


def test_compiled_rules_stay_in_the_model(train_model: TrainModel) -> None:
    spec = from_bytes(train_model(**OPTIONS["nmt_nfkc"]), "t.model")
    ours = Tokenizer.from_spec(spec)
    assert Tokenizer.from_spec(ours.to_spec()).fingerprint == ours.fingerprint
    assert ours.normalizer == (
        "CharsMap, TrimSpaces('left'), JoinSpaces, Prepend(' '), Replace('▁', ' '), TrimSpaces('right')"
    )
    encoded = ours.encode_with_offsets("the ﬁ ①")
    assert encoded.char_offsets[-1].tolist()[1] == 7
    with pytest.raises(TokenizerError, match="cannot represent SentencePiece's compiled normalization rules"):
        tokenizer_json.write(spec)
    for rules in ("", "0", "zz", "ff000000", "04000000", "0400000000000000ff00", "040000000000000061"):
        changed = replace(spec, normalizer=(("CharsMap", rules), *spec.normalizer[1:]))
        with pytest.raises(ValueError, match="rules"):
            Tokenizer.from_spec(changed)


def test_symbols_that_a_tokenizer_json_cannot_represent_are_an_error(train_model: TrainModel) -> None:
    spec = from_bytes(train_model(**OPTIONS["symbols after a prefix"]), "t.model")
    with pytest.raises(TokenizerError, match="cannot represent user-defined symbols"):
        tokenizer_json.write(spec)


def test_other_formats_and_truncation_say_why_they_refuse(train_model: TrainModel, tmp_path: Path) -> None:
    ours = Tokenizer.from_spec(from_bytes(train_model(**OPTIONS["llama"]), "t.model"))
    for written_format in ("tiktoken", "minbpe", "gguf"):
        with pytest.raises(TokenizerError, match="tokens of characters instead of bytes"):
            ours.save(tmp_path / "t", format=written_format)
    with pytest.raises(TokenizerError, match="smallest tokens are characters"):
        ours.truncate(600)
    assert smallest_size(ours) is None
    assert not list(tmp_path.iterdir())


def test_documents_round_trip_without_the_space_before_them(train_model: TrainModel) -> None:
    ours = Tokenizer.from_spec(from_bytes(train_model(**OPTIONS["llama"]), "t.model"))
    documents = ["All human beings are born free.\n", " and equal", "日本の人権 ✓", ""]
    data = "".join(documents).encode()
    lengths = [len(document.encode()) for document in documents]
    marks = TextMarks(data, np.cumsum(lengths))
    ids, offsets = ours.encode_batch_to_numpy(documents)
    table = TokenTable(ours)
    columns, _ = marks.count(ids, offsets[1:], table.bytes, np.zeros(ours.n_vocab, np.int64))
    assert columns["round_trips"].tolist() == [1] * len(documents)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model_type": "unigram"}, "a SentencePiece model of type Unigram; only BPE is supported"),
        ({"model_type": "char", "vocab_size": 500, "hard_vocab_limit": False}, "of type Char"),
        (
            {"normalization_rule_name": "nmt_nfkc", "user_defined_symbols": ("x y",)},
            "a normalizer with rules and user-defined symbols with spaces together are not supported",
        ),
        ({"treat_whitespace_as_suffix": True}, "'treat_whitespace_as_suffix' is not supported"),
    ],
)
def test_other_models_are_refused_by_name(
    train_model: TrainModel, options: dict[str, object], said: str
) -> None:
    with pytest.raises(TokenizerFileError, match=said) as caught:
        from_bytes(train_model(**options), "t.model")
    assert str(caught.value).startswith("t.model: ")


def string(number: int, content: bytes) -> bytes:
    """A field of a message: a string or an embedded message of less than 128 bytes."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def piece(text: str, score: float = 0.0, kind: int = 1) -> bytes:
    return string(1, string(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind]))


BPE = string(2, b"\x18\x02")
UNKNOWN = piece("<unk>", 0, 2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "of type Unigram"),
        (BPE + piece("a"), "no piece for unknown characters"),
        (UNKNOWN + piece("a"), "of type Unigram"),
        (BPE + UNKNOWN + piece("a") + piece("a"), "pieces 1 and 2 are both 'a'"),
        (BPE + UNKNOWN + piece(""), "piece 1 is empty"),
        (BPE + UNKNOWN + piece("a", 0, 5), "of the type UNUSED"),
        (BPE + UNKNOWN + piece("a", 0, 7), "unknown type 7"),
        (BPE + UNKNOWN + piece("<0xZZ>", 0, 6), "names no byte"),
        (string(2, b"\x18\x02\x98\x02\x01") + piece("<0x41>", 0, 6), "255 bytes have no piece"),
        ((BPE + UNKNOWN)[:-3], "not a SentencePiece model: .* bytes are announced"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "bytes are announced"),
        (b"\x0a" + b"\xff" * 20, "a number of more than 10 bytes"),
        (b"\x0b", "unknown type 3"),
        (b"\x00\x00", "a field without a number"),
        (b"\x0a", "the data end inside a number"),
        (BPE + string(1, string(1, b"\xff")), "can't decode"),
        (BPE + string(1, b"\x0d\x00\x00\x00\x00"), "fields of wrong types"),
    ],
)
def test_damaged_models_are_refused_with_their_name(content: bytes, said: str) -> None:
    with pytest.raises(TokenizerFileError, match=said) as caught:
        Tokenizer.from_spec(from_bytes(content, "t.model"))
    assert str(caught.value).startswith("t.model: ")


RUNS = (
    "▁▁",
    "▁▁▁",
    "▁▁▁▁",
    "a▁",
    "▁a",
    "▁▁a",
    "aa",
    "ab",
    "ba",
    "aab",
    "aba",
    "abb",
    "aaaa",
    "ab▁",
    "▁ab",
    "語a",
    "a語a",
)


@given(
    st.dictionaries(st.sampled_from(RUNS), st.sampled_from((-1.0, -2.0, -3.0, -1e9))),
    st.lists(st.text("aab 語x", max_size=24), max_size=12),
)
@example({"▁" * n: -1e9 for n in range(2, 17)} | {"▁a": -1.0, "▁▁a": -2.0}, ["   a  a" * 9])
def test_equal_scores_are_refused_or_have_the_ids_of_sentencepiece(
    scores: dict[str, float], many: list[str]
) -> None:
    # No space is put before a text, no spaces are removed, and bytes stand for unknown characters.
    settings = string(2, b"\x18\x02\x98\x02\x01") + string(3, b"\x18\x00\x20\x00")
    names = b"".join(piece(f"<0x{byte:02X}>", 0, 6) for byte in range(256))
    pieces = [piece(text, score) for text, score in scores.items()]
    data = UNKNOWN + names + b"".join(pieces) + b"".join(piece(text, -50) for text in "▁ab語") + settings
    try:
        ours = Tokenizer.from_spec(from_bytes(data, "t.model"))
    except TokenizerError as error:
        assert "equal scores" in str(error)  # noqa: PT017
        assert len({*scores.values()}) < len(scores)
        return
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    for text in many:
        assert ours.encode(text) == theirs.encode(text)


def test_runs_of_spaces_with_one_score_are_run_by_the_core(tmp_path: Path) -> None:
    # In Llama 2's model they have the score -10^9, and these ids follow each other.
    names = b"".join(piece(f"<0x{byte:02X}>", 0, 6) for byte in range(256))
    runs = [piece("▁" * n, -1e9) for n in (2, 4, 8, 5, 16, 6, 12, 13, 10, 14, 3, 9, 7, 11, 15, 1)]
    settings = string(2, b"\x18\x02\x98\x02\x01") + string(3, b"\x20\x00")
    path = tmp_path / "t.model"
    path.write_bytes(UNKNOWN + names + piece("▁a", -1) + b"".join(runs) + piece("a", -50) + settings)
    ours = Tokenizer.load(path)
    assert ours.engine == "core"
    theirs = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
    for text in (" " * n + end for n in range(70) for end in ("", "a", "a  a", "\n ")):
        assert ours.encode(text) == theirs.encode(text)
    ours.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").fingerprint == ours.fingerprint


def test_any_prefix_and_any_changed_byte_is_read_or_refused(train_model: TrainModel) -> None:
    data = train_model(**OPTIONS["llama"])

    @given(st.integers(0, len(data) - 1), st.integers(0, 255), st.booleans())
    def check(at: int, byte: int, cuts: bool) -> None:
        damaged = data[:at] if cuts else data[:at] + bytes([byte]) + data[at + 1 :]
        with contextlib.suppress(BytemillError):
            Tokenizer.from_spec(from_bytes(damaged, "t.model")).encode("some text")

    check()


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_many_damages_at_once_are_read_or_refused(train_model: TrainModel, options: str) -> None:
    """Cut, double, swap and change random parts of a model, with a bound on the time that reading takes."""
    data, random = train_model(**OPTIONS[options]), Random(options)
    n_read = 0
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(random.randrange(1, 6)):
            start = random.randrange(len(damaged))
            end = start + random.choice([1, 2, 8, 100])
            part = bytes(damaged[start:end])
            changed = [b"", part * 2, part[::-1], random.randbytes(len(part)), b"\xff" * len(part)]
            damaged[start:end] = random.choice(changed)
        started = time.process_time()
        with contextlib.suppress(BytemillError):
            tokenizer = Tokenizer.from_spec(from_bytes(bytes(damaged), "t.model"))
            tokenizer.decode(tokenizer.encode("some text, 日本 😀"))
            n_read += 1
        assert time.process_time() - started < 5
    assert n_read > 10
