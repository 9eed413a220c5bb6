"""A hostile tokenizer.json is refused by the reference reader with its path, and skipped by the fast loader.

Without limits, each would take minutes or gigabytes.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from bytemill import Tokenizer
from bytemill.errors import BytemillError
from bytemill.formats import registry
from bytemill.formats.encoder import build_file
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.registry import Content, load_with_core
from bytemill.formats.spec import TokenizerSpec

MILLION = 10**6
TOKENS = {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b"abc"}
TEXT = huggingface.write(
    TokenizerSpec(
        pattern=None, special_tokens={"<x>": 258}, vocab=TOKENS, merges=[(b"a", b"b"), (b"ab", b"c")]
    )
)


def put(before: str, after: str) -> Callable[[], str]:
    assert before in TEXT
    return lambda: TEXT.replace(before, after, 1)


def with_fields(**fields: Any) -> Callable[[], str]:
    return lambda: json.dumps(json.loads(TEXT) | fields)


def with_model(**fields: Any) -> Callable[[], str]:
    document = json.loads(TEXT)
    return lambda: json.dumps(document | {"model": document["model"] | fields})


def added(token_id: int, content: str, **flags: bool) -> dict[str, Any]:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": token_id, "content": content, **dict.fromkeys(names, False), **flags}


def steps(*many: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": [*many, {"type": "ByteLevel", "add_prefix_space": False}]}


def split(pattern: dict[str, str]) -> dict[str, Any]:
    return steps({"type": "Split", "pattern": pattern, "behavior": "Isolated"})


DEEP = "[" * MILLION + "]" * MILLION


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: '{"a":' * MILLION, "nested too deeply"),
        (put('"dropout": null', f'"dropout": {DEEP}'), "nested too deeply"),
        (put('"version": "1.0"', f'"unknown": {DEEP}, "version": "1.0"'), "nested too deeply"),
        (put('"added_tokens": [', f'"added_tokens": [{DEEP},'), "nested too deeply"),
        (put('"decoder": {', f'"decoder": {{"x": {DEEP},'), "nested too deeply"),
        (put('"normalizer": null', '"normalizer": ' + "9" * MILLION), "not valid JSON"),
        (with_fields(pre_tokenizer=steps(*[{"type": "Digits"}] * 10_000)), "pre_tokenizer has 10001 steps"),
        (with_fields(pre_tokenizer=split({"Regex": "(?:(?:a{1000}){1000}){1000}"})), "pattern.Regex"),
        (with_fields(pre_tokenizer=split({"Regex": "(" * MILLION})), "pattern.Regex: .* nested more than 50"),
        (
            with_fields(post_processor={"type": "Sequence", "processors": [3] * 100_000}),
            r"processors\[\d+\] is 3",
        ),
        (with_model(merges=[["a", "b"]] * 100_000), r"model.merges\[1\]: \('a', 'b'\) repeats"),
        (with_model(merges=[["a", "b"], ["ab", "q"]]), r"model.merges\[1\]: 'abq' is not an ordinary token"),
        (with_model(merges=[["abc", ""], ["a", "b"]]), r"model.merges\[0\]: '' is not an ordinary token"),
        (with_model(vocab={"a": 2**32 - 1, "<x>": 258}), r"model.merges\[0\]: .* is not an ordinary token"),
        (with_model(bytemill={"format": 1, "merge_counts": [1] * 100_000}), "has 100000 counts for 2 merges"),
        (
            with_fields(added_tokens=[added(259, str(i)) for i in range(100_000)]),
            r"added_tokens\[0\].id is 259 for '0'",
        ),
    ],
)
def test_hostile_files_are_refused_with_the_path_of_the_problem(make: Callable[[], str], said: str) -> None:
    data = make().encode()
    assert load_with_core(Content(data, "t.json")) is None
    with pytest.raises(BytemillError, match=said) as caught:
        build_file(registry.from_bytes(data, "t.json"), "t.json")
    assert str(caught.value).startswith("t.json: ")
    assert len(str(caught.value)) < 500


def test_many_added_tokens_are_read() -> None:
    many = [added(258, "<x>")]
    many += [added(259 + i, f"<{i}>", lstrip=i % 2 == 0) for i in range(10_000)]
    loaded = load_with_core(Content(with_fields(added_tokens=many)().encode(), "t"))
    assert loaded is not None
    assert Tokenizer._from_loaded(loaded).encode("a  <7><9998>") == [97, 32, 32, 266, 10257]
