"""Odd but valid files open and give what Hugging Face's library gives, or are refused as that library refuses them."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from bytemill import Tokenizer, TokenizerError, TokenizerFileError
from bytemill.formats.registry import Content, load_content
from bytemill.tokenizer.verification import verify_tokenizer

from .odd_files import CORPUS, META, Document, odd_files

PARTS = [
    *(
        "The ",
        "houses",
        "café",
        "Cafe",
        "ﬁ",
        "①",
        "\u212b",
        "İ",
        "ΣΣ",
        "犬も",
        "x",
        "xé",
        "!",
        "Ã",
        "don't",
        "12345",
    ),
    *(
        " ",
        "  ",
        "\n",
        "\r\n\t",
        "\u00a0",
        "\u3000",
        "\x00",
        "\x85",
        "the",
        "Wor",
        "Hello",
        "unreachable",
        "e",
    ),
    *(
        "<a>",
        "<l>",
        "<r>",
        "<lr>",
        "<x>",
        "<s>",
        "<MASK>",
        "<mask>",
        "[UNK]",
        "<|im_start|>user",
        "<0x41>",
        META,
    ),
    *("\n\n", "   ", "🤗", "123", "w-rd", "a b", "<|endoftext|>", "</w>", "##", "``", "''", ","),
]


def texts() -> list[str]:
    """Texts of parts that matter to some file."""
    rng = random.Random(0)
    mixed = ["".join(rng.choices(PARTS, k=rng.randint(1, 9))) for _ in range(40)]
    return ["", *CORPUS, *PARTS, *mixed]


def opened(document: Document) -> Any:
    """The library's tokenizer without what it does beside encoding; None if it refuses the file."""
    try:
        theirs = tokenizers.Tokenizer.from_str(json.dumps(document | {"post_processor": None}))
    except Exception:  # it has no class of its own
        return None
    theirs.no_truncation()
    theirs.no_padding()
    theirs.model.dropout = None
    return theirs


def outcome(call: Any) -> Any:
    """What a call returns, or that it fails: the library raises what it likes, and panics."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # panics are no Exception
        return "an error"


@pytest.mark.parametrize("name", odd_files())
def test_odd_files_give_what_their_library_gives(name: str) -> None:
    document = odd_files()[name]
    theirs, without = opened(document), opened(document)
    content = Content(json.dumps(document).encode(), "t.json")
    if theirs is None:
        with pytest.raises(TokenizerFileError):
            load_content(content)
        return
    without.encode_special_tokens = True
    ours = Tokenizer._from_loaded(load_content(content))
    for text in texts():
        ids = outcome(lambda text=text: theirs.encode(text, add_special_tokens=False).ids)
        assert outcome(lambda text=text: ours.encode(text)) == ids
        if ids == "an error":
            continue
        ordinary = without.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, allowed_special="none") == ours.encode_ordinary(text) == ordinary
        assert ours.count(text) == len(ids)
        found = ours.encode_with_offsets(text).char_offsets.tolist()
        offsets = theirs.encode(text, add_special_tokens=False).offsets
        assert found == [[min(start, len(text)), min(end, len(text))] for start, end in offsets]
        decoded = outcome(lambda ids=ids: theirs.decode(ids, skip_special_tokens=False))
        assert outcome(lambda ids=ids: ours.decode(ids)) == decoded
    known = [text for text in texts() if outcome(lambda text=text: ours.encode(text)) != "an error"]
    assert ours.encode_batch(known) == [ours.encode(text) for text in known]
    # A format that cannot store a tokenizer says so.
    try:
        file = ours.to_spec()
        again = Tokenizer.from_spec(file)
    except TokenizerError:
        return
    assert again.fingerprint == ours.fingerprint
    assert again.encode_batch(known) == ours.encode_batch(known)


@pytest.mark.slow
@pytest.mark.parametrize("name", odd_files())
def test_long_texts_in_chunks_and_on_threads(name: str) -> None:
    """The core has tables for long words, and cuts long texts."""
    theirs = opened(odd_files()[name])
    if theirs is None:
        return
    ours = Tokenizer._from_loaded(load_content(Content(json.dumps(odd_files()[name]).encode(), "t.json")))
    text = " ".join(
        ["houses" * 12_000, *(CORPUS * 20), "é\x03犬" * 500, "thehouses" * 8000, "houses</w>the" * 3000]
    )
    expected = outcome(lambda: theirs.encode(text, add_special_tokens=False).ids)
    for _ in range(2):
        assert outcome(lambda: ours.encode(text)) == expected
    if expected != "an error":
        assert ours.encode(text, num_threads=3) == expected
        assert list(ours.encode_iterable(text[i : i + 1009] for i in range(0, len(text), 1009))) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", odd_files())
def test_odd_files_are_saved_with_their_ids(name: str, tmp_path: Path) -> None:
    document = odd_files()[name]
    if opened(document) is None:
        return
    path = tmp_path / "again.json"
    ours = Tokenizer._from_loaded(load_content(Content(json.dumps(document).encode(), "t.json")))
    try:
        ours.save(path)
    except TokenizerError:
        return
    again = Tokenizer.load(path)
    assert again.engine == ours.engine
    assert again.fingerprint == ours.fingerprint or ours.engine != "core"
    for text in texts():
        assert outcome(lambda text=text: again.encode(text)) == outcome(lambda text=text: ours.encode(text))
    if all(outcome(lambda text=text: ours.encode(text)) != "an error" for text in texts()):
        verification = verify_tokenizer(path, n_random=50, blocks=range(0, 0x110000 // 128, 97))
        assert verification.differences == []


def test_the_core_runs_most_of_them() -> None:
    engines: dict[str, list[str]] = {"core": [], "tokenizers": []}
    for name, document in odd_files().items():
        if opened(document) is not None:
            content = Content(json.dumps(document).encode(), "t.json")
            engines[Tokenizer._from_loaded(load_content(content)).engine].append(name)
    assert len(engines["core"]) > len(engines["tokenizers"]), engines["tokenizers"]
