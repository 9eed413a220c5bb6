"""Loading with the core gives the results of the reference readers, or leaves the file to them."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS, RankFile, TokenizerJson
from bytemill.errors import BytemillError
from bytemill.formats import registry, tiktoken
from bytemill.formats.byte_level import ALPHABET, bytes_to_text
from bytemill.formats.encoder import build_file
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.huggingface.parts import DECODER
from bytemill.formats.registry import Content, load, load_with_core
from bytemill.formats.spec import TokenizerSpec

MakeSpec = Callable[..., TokenizerSpec]


def contents(tokenizer: Tokenizer) -> tuple[object, ...]:
    spec = tokenizer.to_spec()
    return spec, tokenizer.fingerprint, tokenizer.ties, tokenizer.merge_counts


def assert_same_as_reference(
    data: bytes, pattern: Any = ..., *, fast: bool | None = None, **arguments: Any
) -> None:
    """Compare the fast loader with the reference reader; `fast` says whether the fast loader must succeed."""
    loaded = load_with_core(Content(data, "t", pattern, **arguments))
    if fast is not None:
        assert (loaded is not None) is fast
    if loaded is not None:
        slow = Tokenizer.from_spec(registry.from_bytes(data, "t", pattern, **arguments))
        assert contents(Tokenizer._from_loaded(loaded)) == contents(slow)


@st.composite
def merged(draw: st.DrawFn) -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """All bytes and some tokens, and the merges that make most of them."""
    tokens = [bytes([byte]) for byte in draw(st.permutations(range(256)))]
    parts, merges = [b"a", b" ", b"\xc3", b'"', b"\\"], []
    for _ in range(draw(st.integers(0, 12))):
        merge = draw(st.sampled_from(parts)), draw(st.sampled_from(parts))
        if merge[0] + merge[1] not in parts:
            merges.append(merge)
            parts.append(merge[0] + merge[1])
    return tokens + parts[5:], merges


@given(merged(), st.data())
def test_rank_files_load_like_the_reference_reader(
    made: tuple[list[bytes], Any], data: st.DataObject
) -> None:
    tokens = made[0] + data.draw(st.lists(st.binary(min_size=2, max_size=5), max_size=3))
    ranks = data.draw(st.permutations(range(len(tokens) + 3)))
    end = data.draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    text = "".join(f"{base64.b64encode(t).decode()} {r}{end}" for t, r in zip(tokens, ranks, strict=False))
    special = data.draw(
        st.dictionaries(st.sampled_from(["<x>", "a", "<y>"]), st.integers(0, 400), max_size=2)
    )
    assert_same_as_reference(text.encode(), "cl100k", special_tokens=special)
    if len(set(tokens)) == len(tokens):
        assert_same_as_reference(text.encode(), None, special_tokens={}, fast=True)


CHARACTERS = ["a", "b", " ", "\N{LOWER ONE EIGHTH BLOCK}", "é", "日", "<", "x"]


@given(st.data())
def test_tokenizer_json_of_characters_loads_like_the_reference_reader(data: st.DataObject) -> None:
    parts, merges = list(CHARACTERS), list[list[str]]()
    for _ in range(data.draw(st.integers(0, 12))):
        merge = [data.draw(st.sampled_from(parts)), data.draw(st.sampled_from(parts))]
        merges.append(merge)
        if "".join(merge) not in parts:
            parts.append("".join(merge))
    left_out = data.draw(st.sets(st.sampled_from(parts), max_size=1))
    names = [f"<0x{byte:02X}>" for byte in range(data.draw(st.sampled_from([256, 256, 255])))]
    entries = [part for part in parts if part not in left_out] + names
    entries += data.draw(st.lists(st.sampled_from(["<unk>", "<s>", "é<", "zz"]), max_size=3, unique=True))
    ids = data.draw(st.permutations(range(len(entries) + 2)))
    vocab = dict(zip(entries, ids, strict=False))
    special = data.draw(
        st.lists(st.sampled_from(["<s>", "<unk>", "a", "ab", "é<", "<0x41>", "▁a"]), max_size=3, unique=True)
    )
    added = [
        {"id": vocab.get(text, len(vocab)), "content": text, "normalized": data.draw(st.booleans())}
        for text in special
    ]
    fallback = data.draw(st.booleans())
    document = {
        "added_tokens": added,
        "normalizer": data.draw(
            st.sampled_from([None, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}])
        ),
        "pre_tokenizer": data.draw(
            st.sampled_from([None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}])
        ),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                *data.draw(
                    st.sampled_from([[], [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]])
                ),
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": fallback,
            "unk_token": "<unk>",
            "fuse_unk": data.draw(st.booleans()),
            "ignore_merges": data.draw(st.booleans()),
            "vocab": vocab,
            "merges": merges,
        },
    }
    assert_same_as_reference(json.dumps(document).encode())


@given(merged(), st.data())
def test_tokenizer_json_loads_like_the_reference_reader(
    made: tuple[list[bytes], Any], data: st.DataObject
) -> None:
    tokens, merges = made
    names = ["<x>", "日本", "Ġ<y>", "😀", "a", "é", 'q"\\', "aa"]
    special = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=4))
    ids = data.draw(st.permutations(range(len(tokens) + len(special))))
    vocab = {bytes_to_text(token): ids[i] for i, token in enumerate(tokens)}
    for i, text in enumerate(special, start=len(tokens)):
        if data.draw(st.booleans()):
            vocab.setdefault(text, ids[i])
    pairs: list[Any] = [[bytes_to_text(left), bytes_to_text(right)] for left, right in merges]
    if data.draw(st.booleans()):
        pairs = [" ".join(pair) for pair in pairs]
    added = [{"id": vocab.get(text, ids[i]), "content": text} for i, text in enumerate(special, len(tokens))]
    model = {"type": "BPE", "vocab": vocab, "merges": pairs, "ignore_merges": data.draw(st.booleans())}
    fields = data.draw(st.permutations(list(model.items())))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    document = {"added_tokens": added, "pre_tokenizer": byte_level, "decoder": DECODER, "model": dict(fields)}
    text = json.dumps(
        document, ensure_ascii=data.draw(st.booleans()), indent=data.draw(st.sampled_from([None, 1]))
    )
    mark = data.draw(st.sampled_from(["", "\ufeff", " \n"]))
    assert_same_as_reference((mark + text).encode(), fast=True if not special else None)


REGULAR = huggingface.write(
    TokenizerSpec(
        pattern=NAMED_PATTERNS["gpt2"],
        special_tokens={"<x>": 258},
        vocab={i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b" ab"},
        merges=[(b"a", b"b"), (b" ", b"ab")],
        ties="bytes",
        merge_counts=[9, 7],
    )
)
RANKS = "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256)) + "YWI= 256\nIGFi 257\n"


@pytest.mark.parametrize(
    ("before", "after", "fast"),
    [
        ("", "", True),
        ('"Ġ": 32', '"\\u0120": 32', True),
        ('"ab": 256', '"\\u0061b"   :\t256', True),
        ('"ab": 256', '"ab": 1, "ab": 256', False),
        ('"ab": 256', '"ab": 32', False),
        ('"ab": 256', '"ab": 256.0', False),
        ('"ab": 256', '"ab": 2.56e2', False),
        ('"ab": 256', '"ab": -0', False),
        ('"ab": 256', '"ab": 99999999999999999999', False),
        ('"ab": 256', '"ab": 4294967295', False),
        ('"ab": 256', '"ab": true', False),
        ('"ab": 256', '"ab": NaN', False),
        ('"ab": 256', '"a b": 256', False),
        ('"ab": 256', '"\\ud800": 256', False),
        ('"ab": 256', '"æĹ¥": 300, "ab": 256, "日": 300', False),
        ('["a", "b"]', '["a", "b"], ["a", "b"]', False),
        ('["a", "b"]', '["a", "b", "c"]', False),
        ('["a", "b"]', '"a b"', True),
        ('["a", "b"]', '"a  b"', False),
        ('["a", "b"]', '["b", "a"]', False),
        ('"version": "1.0"', '"version": "2.0", "version": "1.0"', True),
        ('"version": "1.0"', '"version": "1.0", "version": "2.0"', False),
        ('"dropout": null', '"v": "\\udfff", "dropout": null', True),
        ('"version": "1.0"', '"\\udfff": "v", "version": "1.0"', False),
        ('"version": "1.0"', '"model": {}, "version": "1.0"', False),
        ('"dropout": null', '"x": 1e999, "dropout": null', True),
        ('"version": "1.0"', '"x": 1, "version": "1.0"', False),
        ('"version": "1.0"', '"version": "1.0",', False),
        ('"content": "<x>"', '"content": "<y>"', False),
        ('"content": "<x>"', '"content": "ab"', False),
        ('"dropout": null', '"dropout": 0.5', False),
        ('"normalizer": null', '"normalizer": {"type": "NFC"}', True),
        ('"normalizer": null', '"normalizer": {"type": "NFD"}', True),
        ('"normalizer": null', '"normalizer": {"type": "Nmt"}', False),
        ('"merges": [', '"merges": [], "merges": [', False),
        ('"vocab": {', '"vocab": {}, "vocab": {', False),
    ],
)
def test_unusual_files_are_left_to_the_reference_reader(before: str, after: str, fast: bool) -> None:
    assert before in REGULAR
    assert_same_as_reference(REGULAR.replace(before, after, 1).encode(), fast=fast)


@given(st.data())
def test_damaged_files_load_like_the_reference_reader(data: st.DataObject) -> None:
    is_json = data.draw(st.booleans())
    content = bytearray((REGULAR if is_json else RANKS).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        junk = data.draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"]", b"\\u0", b"\r", b"=", b" 7", b"\n"])
        )
        content[at : at + data.draw(st.integers(0, 40))] = junk
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    assert_same_as_reference(bytes(content), ... if is_json else "gpt2")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_crash_the_fast_loader(data: bytes) -> None:
    assert RankFile.read(data) is None or not data.strip(b"\r\n") or b" " in data
    assert TokenizerJson.read(data) is None


def test_errors_come_from_the_reference_reader(tmp_path: Path) -> None:
    for name, content, pattern in [
        ("a", REGULAR.replace('"version": "1.0"', '"version": 1'), ...),
        ("b", REGULAR, "gpt2"),
        ("c", RANKS, ...),
        ("d", RANKS + "Y 5\n", "gpt2"),
        ("e", RANKS + "YWJj 5\n", "gpt2"),
        ("f", RANKS + "YWJj 4294967295\n", "gpt2"),
    ]:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        with pytest.raises(BytemillError) as slow:
            build_file(registry.read(path, pattern=pattern), str(path))
        with pytest.raises(BytemillError) as fast:
            load(path, pattern)
        assert (str(fast.value), fast.value.hint) == (str(slow.value), slow.value.hint)
        assert type(fast.value) is type(slow.value)


@pytest.mark.parametrize(
    "special", [{"<x>": 300.0}, {"<x>": True}, {"<x>": -1}, {"<x>": 2**32}, {"\ud800": 97}]
)
def test_invalid_special_tokens_are_left_to_the_reference_reader(special: dict[str, Any]) -> None:
    try:
        assert load_with_core(Content(RANKS.encode(), "t", "gpt2", special)) is None
    except UnicodeEncodeError:
        assert "\ud800" in special


def test_a_parsed_file_can_be_used_for_one_encoder_only() -> None:
    ranks, found = RankFile.read(RANKS.encode()), TokenizerJson.read(REGULAR.encode())
    assert ranks is not None
    assert found is not None
    assert (ranks.n_ranks, ranks.token(256), ranks.token(258)) == (258, b"ab", None)
    assert (found[0].n_entries, found[0].n_merges, found[0].id_of("Ġab"), found[0].id_of(" ab")) == (
        259,
        2,
        257,
        None,
    )
    assert json.loads(found[1]) == json.loads(REGULAR) | {
        "model": json.loads(REGULAR)["model"] | {"vocab": {}, "merges": []}
    }
    for make in (lambda: ranks.encoder({}, None), lambda: found[0].encoder({"<x>": 258}, None, False)):
        assert make() is not None
        with pytest.raises(BytemillError, match="made of this file already"):
            make()


def test_the_alphabet_is_the_same_in_the_core() -> None:
    model = {"vocab": {character: byte for byte, character in enumerate(ALPHABET)}, "merges": []}
    found = TokenizerJson.read(json.dumps({"model": model}).encode())
    assert found is not None
    encoder = found[0].encoder({}, None, False)
    assert encoder is not None
    assert encoder.vocab() == {i: bytes([i]) for i in range(256)}


@pytest.mark.parametrize(
    "name", ["r50k_base", "cl100k_base", pytest.param("o200k_base", marks=pytest.mark.slow)]
)
def test_published_files_use_the_fast_loader(shared_data: Path, name: str) -> None:
    data = (shared_data / f"{name}.tiktoken").read_bytes()
    assert_same_as_reference(data, fast=True)
    if name != "o200k_base":
        assert_same_as_reference(huggingface.write(tiktoken.from_bytes(data, name)).encode(), fast=True)
