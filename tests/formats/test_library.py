"""Tokenizers that the core does not run, against the libraries that run them."""

import copy
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import bytemill as bm
from bytemill.errors import SpecialTokenError, TokenizerError, TokenizerFileError, UnknownTokenError
from bytemill.formats.library import document_encoder
from bytemill.formats.registry import Content, load_content
from bytemill.lm.loss import puts_space_first
from bytemill.system import extras
from bytemill.tokenizer.encoding import TextStreamDecoder

TEXTS = [
    "The unaffordable houses of the northern towns were sold, one after another, to people from elsewhere.",
    "Hello, world! naïve café 犬も歩けば 12345 can't won't DON'T",
    "many words are unknown here: ሰላም ልዑል 😀 x\n\n  y\t z",
    "",
    "   ",
    "a [SEP] b <extra_0> c <s> [UNK] d",
    "\ud800 lone \U0001f600",
]


def trained(model: Any, trainer: Any, change: Callable[[Any], None] = lambda _: None) -> Any:
    """A tokenizer of Hugging Face's library, trained on a few texts."""
    tokenizer = tokenizers.Tokenizer(model)
    change(tokenizer)
    tokenizer.train_from_iterator(TEXTS[:3] * 5, trainer)
    tokenizer.add_tokens([tokenizers.AddedToken("<extra_0>", normalized=False)])
    return tokenizer


def word_piece() -> Any:
    def change(tokenizer: Any) -> None:
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    made = trained(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=200, special_tokens=special),
        change,
    )
    ids = [(token, made.token_to_id(token)) for token in ("[SEP]", "[CLS]")]
    made.post_processor = processors.BertProcessing(*ids)
    return made


def unigram() -> Any:
    def change(tokenizer: Any) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()

    return trained(
        models.Unigram(),
        trainers.UnigramTrainer(vocab_size=150, special_tokens=["<s>", "<unk>"], unk_token="<unk>"),
        change,
    )


def word_level() -> Any:
    def change(tokenizer: Any) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()

    return trained(
        models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(special_tokens=["[UNK]"]), change
    )


def end_of_word() -> Any:
    def change(tokenizer: Any) -> None:
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")

    return trained(
        models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"),
        trainers.BpeTrainer(vocab_size=150, special_tokens=["[UNK]"], end_of_word_suffix="</w>"),
        change,
    )


def vanishing() -> Any:
    """The core runs it, but for `dropout`."""

    def change(tokenizer: Any) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Whitespace(), pre_tokenizers.Digits()]
        )

    return trained(models.BPE(), trainers.BpeTrainer(vocab_size=120, special_tokens=["<s>"]), change)


def dropout() -> Any:
    made = json.loads(vanishing().to_str())
    made["model"]["dropout"] = 0.5
    return tokenizers.Tokenizer.from_str(json.dumps(made))


MADE = (word_piece, unigram, word_level, end_of_word)


@pytest.fixture(scope="module", params=MADE, ids=lambda make: make.__name__)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bm.Tokenizer, Any, Path]:
    library = request.param()
    path = tmp_path_factory.mktemp("library") / "tokenizer.json"
    library.save(str(path))
    return bm.Tokenizer.load(path), library, path


def clean(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def ids_of(library: Any, text: str, *, special: bool = True) -> list[int]:
    library.encode_special_tokens = not special
    return library.encode(clean(text), add_special_tokens=False).ids


def test_every_interface_gives_the_ids_of_the_library(both: tuple[bm.Tokenizer, Any, Path], tmp_path: Path):
    tok, library, _ = both
    assert tok.engine == "tokenizers"
    assert tok.engine_reason
    wanted = [ids_of(library, text) for text in TEXTS]
    assert [tok.encode(text) for text in TEXTS] == wanted
    assert tok.encode_batch(TEXTS) == wanted
    assert tok.encode_to_numpy(TEXTS[0]).tolist() == wanted[0]
    assert tok.encode_to_numpy(TEXTS[0]).dtype == np.uint16
    ids, offsets = tok.encode_batch_to_numpy(TEXTS)
    assert [part.tolist() for part in np.split(ids, offsets[1:-1])] == wanted
    assert [tok.count(text) for text in TEXTS] == list(map(len, wanted))
    assert list(tok.encode_iterable(["Hello, wo", "", "rld!"])) == tok.encode("Hello, world!")
    assert [tok.encode_ordinary(text) for text in TEXTS] == [
        ids_of(library, text, special=False) for text in TEXTS
    ]
    file = tmp_path / "text.txt"
    file.write_text(TEXTS[1], encoding="utf-8")
    assert [ids.tolist() for ids in tok.encode_files([file])] == [wanted[1]]
    library.encode_special_tokens = False
    for text in TEXTS[:-1]:
        encoding = library.encode(text, add_special_tokens=False)
        found = tok.encode_with_offsets(text)
        assert found.ids.tolist() == encoding.ids
        assert [tuple(pair) for pair in found.char_offsets.tolist()] == [
            (min(start, len(text)), min(end, len(text))) for start, end in encoding.offsets
        ]
    assert [tok.decode(each) for each in wanted] == [
        library.decode(each, skip_special_tokens=False) for each in wanted
    ]
    assert tok.decode_batch(wanted) == [tok.decode(each) for each in wanted]


@given(text=st.text() | st.text("abc <s>[UNK]extra_0 \n", max_size=40))
@pytest.mark.parametrize("special", [True, False])
def test_any_text(both: tuple[bm.Tokenizer, Any, Path], text: str, *, special: bool):
    tok, library, _ = both
    assert tok.encode(text, allowed_special="all" if special else "none") == ids_of(
        library, text, special=special
    )


def test_ids_and_tokens(both: tuple[bm.Tokenizer, Any, Path]):
    tok, library, _ = both
    assert tok.get_vocab() == dict(sorted(library.get_vocab().items(), key=lambda item: item[1]))
    assert tok.n_vocab == library.get_vocab_size()
    assert tok.id_to_token(5) == library.id_to_token(5)
    assert tok.token_to_id("no such token") is None
    assert tok.token(3).rank is None
    ids = tok.encode(TEXTS[0])
    assert b"".join(tok.decode_tokens_bytes(ids)) == tok.decode_bytes(ids)
    with pytest.raises(UnknownTokenError, match="no token has the id 100000"):
        tok.decode([100_000])


def test_a_stream_decodes_to_the_text_of_all_ids(both: tuple[bm.Tokenizer, Any, Path]):
    tok, _, _ = both
    rng, known = random.Random(0), list(tok.vocab)
    stream = tok.stream_decoder()
    for ids in [*map(tok.encode, TEXTS), *(rng.choices(known, k=20) for _ in range(100))]:
        assert "".join(map(stream.feed, ids)) + stream.finish() == tok.decode(ids)
    shown = stream.feed(tok.encode("The")[0])
    with pytest.raises(UnknownTokenError, match="no token has the id 100000"):
        stream.feed(100_000)
    assert shown + stream.finish() == tok.decode(tok.encode("The")[:1])


def test_text_that_changes_with_later_ids_is_refused_id_by_id():
    stream = TextStreamDecoder(lambda ids: {1: "do n't", 2: "don't"}[len(ids)])
    assert stream.feed(1) == "do n't"
    with pytest.raises(TokenizerError, match="depends on later ids"):
        stream.feed(2)


def test_special_tokens_obey_the_modes_and_others_do_not(both: tuple[bm.Tokenizer, Any, Path]):
    tok, library, _ = both
    extra = tok.special_tokens["<extra_0>"]
    special = next(token for token in tok.special_tokens if token != "<extra_0>")
    text = f"a {special} b<extra_0>"
    for allowed in ("all", "none", {special}, ()):
        assert tok.encode(text, allowed_special=allowed)[-1] == extra
    assert tok.encode(text, allowed_special={special}) == ids_of(library, text)
    assert tok.encode(text, allowed_special=()) == ids_of(library, text, special=False)
    with pytest.raises(SpecialTokenError, match="at byte 2"):
        tok.encode(text, allowed_special="none_raise")
    assert tok.encode("a b<extra_0>", allowed_special="none_raise") == ids_of(library, "a b<extra_0>")
    with pytest.raises(SpecialTokenError, match="'<no>' is not a special token"):
        tok.encode(text, allowed_special={"<no>"})


def test_copies_and_files(both: tuple[bm.Tokenizer, Any, Path], tmp_path: Path):
    tok, _, path = both
    saved = tmp_path / "again.json"
    tok.save(saved)
    tok.save(tmp_path / "folder/")
    copies = [
        copy.deepcopy(tok),
        bm.Tokenizer.load(saved),
        bm.Tokenizer.load(tmp_path / "folder"),
    ]
    for each in copies:
        assert each.fingerprint == tok.fingerprint
        assert each.encode_batch(TEXTS) == tok.encode_batch(TEXTS)
    # Reading the file, the library rounds the scores of a Unigram model, so that its fingerprint is another.
    converted = bm.Tokenizer.from_huggingface(tokenizers.Tokenizer.from_file(str(path)))
    assert converted.encode_batch(TEXTS) == tok.encode_batch(TEXTS)
    more = tok.with_special_tokens(["<|more|>"])
    assert more.encode("a<|more|>")[-1] == tok.n_vocab
    assert more.encode(TEXTS[0]) == tok.encode(TEXTS[0])


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda tok: tok.explain("a text"), "explaining a text by its merges"),
        (lambda tok: tok.truncate(50), "truncating a vocabulary"),
        (lambda tok: tok.to_tiktoken(), "no room for what tokenizers runs"),
        (lambda tok: tok.save("x.tiktoken", format="tiktoken"), "no room for what tokenizers runs"),
    ],
)
def test_what_only_the_core_can_do_is_one_clear_error(
    both: tuple[bm.Tokenizer, Any, Path], call: Callable[[bm.Tokenizer], object], what: str
):
    with pytest.raises(TokenizerError, match=what):
        call(both[0])


def test_packed_documents(both: tuple[bm.Tokenizer, Any, Path]):
    """The documents of a corpus in batches, cut anywhere, with what each starts and ends with."""
    tok, _, _ = both
    texts = [text for text in map(clean, TEXTS) if text]
    start = next(i for token, i in tok.special_tokens.items() if token != "<extra_0>")
    end = tok.special_tokens["<extra_0>"]
    wanted = [tok.encode_ordinary(text) for text in texts]
    framed = [[start] * (ids[0] != start) + ids + [end] * (ids[-1] != end) for ids in wanted if ids]
    data = [text.encode() for text in texts]
    batches = [
        (b"".join(data[:2]), np.array([len(data[0]), len(data[0] + data[1])]), False),
        (data[2][:10], np.array([10]), True),
        (data[2][10:] + b"".join(data[3:]), np.cumsum([len(data[2]) - 10, *map(len, data[3:])]), False),
    ]
    one = document_encoder(tok.core, "none", None, [start], end)
    first = one.encode(batches[:2])
    other = document_encoder(tok.core, "none", None, [start], end)
    other.resume(one.carry())
    found = [first, other.encode(batches[2:])]
    ids: list[list[int]] = []
    for (chunks, ends, _, _), _ in found:
        joined = np.concatenate([*chunks, np.zeros(0, np.uint16)]).tolist()
        ids += [joined[a:b] for a, b in zip([0, *ends.tolist()], ends.tolist(), strict=False)]
    assert ids == framed
    assert sum(sides[0][3] for sides in found) == sum(not ids for ids in wanted)
    assert sum(sum(sides[0][2]) for sides in found) == sum(map(len, data))
    # Documents are on the side that the core puts them on.
    core = bm.Tokenizer({i: bytes([i]) for i in range(256)}, [])
    split = (7, 1 << 63)
    ends = np.cumsum(list(map(len, data)))
    sides = [
        document_encoder(each.core, "none", None, [], None, None, split).encode(
            [(b"".join(data), ends, False)]
        )
        for each in (tok, core)
    ]
    assert [side[2] for side in sides[0]] == [side[2] for side in sides[1]]


def test_encode_shards_and_compare(both: tuple[bm.Tokenizer, Any, Path], tmp_path: Path):
    tok, _, _ = both
    corpus = tmp_path / "corpus.jsonl"
    texts = [text for text in TEXTS[:3] for _ in range(3)]
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    bm.encode_corpus(tok, [corpus], tmp_path / "shards", separators=False)
    shards = [np.load(file) for file in sorted((tmp_path / "shards").glob("*.npy"))]
    assert np.concatenate(shards).tolist() == [token_id for text in texts for token_id in tok.encode(text)]
    byte_level = bm.Tokenizer({i: bytes([i]) for i in range(256)}, [])
    result = bm.compare({"library": tok, "bytes": byte_level}, [corpus])
    assert "library" in str(result)


def test_dropout_is_not_applied(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    dropout().save(str(path))
    tok = bm.Tokenizer.load(path)
    assert tok.encode(TEXTS[0]) == ids_of(vanishing(), TEXTS[0])


@pytest.fixture(scope="module")
def model() -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS[:3] * 5),
        model_writer=written,
        vocab_size=110,
        model_type="unigram",
        user_defined_symbols=["<sep>", "▁▁"],
        control_symbols=["<c>"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return written.getvalue()


@given(text=st.text() | st.text("abc <sep>c▁ \n", max_size=40))
def test_unigram_models_of_sentencepiece(model: bytes, text: str):
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    tok = loaded_model(model)
    assert tok.encode(text, allowed_special="none") == library.encode(text)
    ids = library.encode(text)
    if not any(map(library.is_unknown, ids)):
        assert tok.decode(ids) == library.decode(ids)


_LOADED: dict[bytes, bm.Tokenizer] = {}


def loaded_model(data: bytes) -> bm.Tokenizer:
    if data not in _LOADED:
        _LOADED[data] = bm.Tokenizer._from_loaded(load_content(Content(data, "spiece.model")))
    return _LOADED[data]


def test_control_symbols_of_sentencepiece(model: bytes, tmp_path: Path):
    tok = loaded_model(model)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert tok.engine == "sentencepiece"
    control = library.piece_to_id("<c>")
    assert tok.encode("one<c>two") == [*library.encode("one"), control, *library.encode("two")]
    assert tok.encode("one<c>two", allowed_special="none") == library.encode("one<c>two")
    offsets = tok.encode_with_offsets("one<c>two").char_offsets.tolist()
    assert offsets[len(library.encode("one"))] == [3, 6]
    assert tok.decode(tok.encode("one<c>two")) == "one<c>two"
    with pytest.raises(TokenizerError, match="which sentencepiece runs"):
        tok.save(tmp_path / "x.json")


def test_without_the_library_the_error_says_what_to_install(
    both: tuple[bm.Tokenizer, Any, Path], monkeypatch: pytest.MonkeyPatch
):
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(extras.importlib, "import_module", missing)
    with pytest.raises(TokenizerFileError) as raised:
        bm.Tokenizer.load(both[2])
    assert "--extra any" in (raised.value.hint or "")


def test_an_id_out_of_all_proportion_is_refused(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    made = json.loads(word_level().to_str())
    made["model"]["vocab"]["far"] = 1 << 32 - 1
    path.write_text(json.dumps(made), encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=r"model\.type is 'WordLevel'"):
        bm.Tokenizer.load(path)


def test_a_damaged_file_keeps_its_own_error(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": {"type": "Unigram", "vocab": [["a"]]}}', encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=r"model\.type is 'Unigram'"):
        bm.Tokenizer.load(path)


def test_the_space_that_decoding_removes_is_known(both: tuple[bm.Tokenizer, Any, Path]):
    """Bits per byte and comparisons count a text without it."""
    tok, library, _ = both
    spaced = [i for i, token in tok.vocab.items() if token.startswith(b" ") and len(token) > 2]
    is_removed = bool(spaced) and not library.decode(spaced[:1], skip_special_tokens=False).startswith(" ")
    assert (tok.decode_strip == "one") == is_removed == puts_space_first(tok)
