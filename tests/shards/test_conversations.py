"""Shards of conversations: ids and masks are those of each row, in every layout, and after any interruption."""

import json
import os
import pickle
import random
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bytemill import Corpus, Tokenizer, TokenizerError
from bytemill.corpus import documents as batches
from bytemill.data import pipeline
from bytemill.data.conversations import example_of
from bytemill.data.encode import encode_with
from bytemill.data.manifest import ConversationSettings, manifest_document, parse_manifest, sets_of
from bytemill.errors import CorpusError, ShardError
from bytemill.shards import (
    EncodeSettings,
    StoredTokens,
    TokenShards,
    convert_shards,
    encode_conversations,
    read_manifest,
    shard_corpus,
    verify,
)
from bytemill.tokenizer.conversations import render_conversation

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% else %}"
    "{{ m.content }}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"]


def said(*contents: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]


@pytest.fixture(scope="module")
def tok() -> Tokenizer:
    made = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], SPECIAL)
    made.chat_template = TEMPLATE
    return made


def save(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def texts(tok: Tokenizer, folder: Path) -> list[str]:
    """Return each conversation with `[` and `]` around its targets."""
    tokens = TokenShards(folder)
    ends = tokens.document_ends()
    assert ends is not None
    shown: list[str] = []
    for start, end in pairwise([0, *ends.tolist()]):
        parts, inside = b"", False
        for token, is_target in zip(
            tokens[start:end].tolist(), tokens.mask(start, end).tolist(), strict=True
        ):
            parts += (b"]" if inside else b"[") * (is_target != inside) + tok.decode_bytes([token])
            inside = is_target
        shown.append((parts + b"]" * inside).decode())
    return shown


ROWS: list[tuple[Any, str]] = [
    (
        {"messages": said("a", "b", "c", "é")},
        "<|user|>a<|end|><|assistant|>[b<|end|>]<|user|>c<|end|><|assistant|>[é<|end|>]",
    ),
    (
        {"system": "s", "conversations": [{"from": f, "value": v} for f, v in (("human", "a"), ("gpt", "b"))]},
        "<|system|>s<|end|><|user|>a<|end|><|assistant|>[b<|end|>]",
    ),
    ({"system": "s", "conversations": said("a", "b")}, "<|system|>s<|end|><|user|>a<|end|><|assistant|>[b<|end|>]"),
    ({"prompt": "a", "completion": "b"}, "<|user|>a<|end|><|assistant|>[b<|end|>]"),
    ({"prompt": "a", "response": ""}, "<|user|>a<|end|><|assistant|>[<|end|>]"),
    (  # the prompt has no targets
        {"prompt": said("a", "b", "c"), "completion": [{"role": "assistant", "content": "d"}]},
        "<|user|>a<|end|><|assistant|>b<|end|><|user|>c<|end|><|assistant|>[d<|end|>]",
    ),
    (
        {"messages": [*said("a"), {"role": "assistant", "content": None, "tool_calls": [{"x": 1}]}], "tools": "[{}]"},
        '<|user|>a<|end|><|assistant|>[[{"x": 1}]<|end|>]',
    ),
]  # fmt: skip
PAIRS: list[tuple[Any, str, str]] = [
    ({"prompt": "a", "chosen": "b", "rejected": "cc"}, "<|user|>a<|end|><|assistant|>[b<|end|>]",
     "<|user|>a<|end|><|assistant|>[cc<|end|>]"),
    ({"prompt": "a", "chosen": said("a", "b"), "rejected": said("a", "c")},
     "<|user|>a<|end|><|assistant|>[b<|end|>]", "<|user|>a<|end|><|assistant|>[c<|end|>]"),
    ({"chosen": said("a", "b", "c", "d"), "rejected": said("a", "b", "c", "ee")},
     "<|user|>a<|end|><|assistant|>b<|end|><|user|>c<|end|><|assistant|>[d<|end|>]",
     "<|user|>a<|end|><|assistant|>b<|end|><|user|>c<|end|><|assistant|>[ee<|end|>]"),
    ({"prompt": said("a"), "chosen": said("", "b")[1:], "rejected": said("", "c")[1:], "system": "s"},
     "<|system|>s<|end|><|user|>a<|end|><|assistant|>[b<|end|>]",
     "<|system|>s<|end|><|user|>a<|end|><|assistant|>[c<|end|>]"),
]  # fmt: skip


@pytest.mark.parametrize("layout", ["npy", "bin", "llmc", "megatron", "datatrove"])
def test_every_form_of_row_has_the_ids_and_the_mask_of_its_conversation(
    tmp_path: Path, tok: Tokenizer, layout: str
) -> None:
    file = save(tmp_path / "chats.jsonl", [row for row, _ in ROWS])
    for shard_tokens in (7, 8, 1000) if layout == "npy" else (30,):
        out = tmp_path / str(shard_tokens)
        [manifest] = encode_conversations(tok, file, out, layout=layout, shard_tokens=shard_tokens)
        assert texts(tok, out) == [expected for _, expected in ROWS]
        assert verify(out) == []
        assert manifest.n_documents == len(ROWS)
        for shard in manifest.shards:
            assert shard.mask is not None
            assert shard.mask.file == shard.file.partition(".")[0] + ".mask"
            assert (out / shard.mask.file).stat().st_size == -(-shard.n_tokens // 8)


def test_pairs_are_two_parallel_sets(tmp_path: Path, tok: Tokenizer) -> None:
    file = save(tmp_path / "pairs.jsonl", [row for row, _, _ in PAIRS])
    chosen, rejected = encode_conversations(tok, file, tmp_path / "out")
    assert sets_of(tmp_path / "out") == [tmp_path / "out/chosen", tmp_path / "out/rejected"]
    assert (chosen.n_documents, rejected.n_documents) == (4, 4)
    assert texts(tok, tmp_path / "out/chosen") == [expected for _, expected, _ in PAIRS]
    assert texts(tok, tmp_path / "out/rejected") == [expected for _, _, expected in PAIRS]


def test_pairs_stay_parallel_if_they_are_split_shuffled_and_cut(tmp_path: Path, tok: Tokenizer) -> None:
    chance = random.Random(1)
    rows = [
        {"prompt": str(i), "chosen": "x" * chance.randrange(60), "rejected": "y" * chance.randrange(60)}
        for i in range(200)
    ]
    file, out = save(tmp_path / "pairs.jsonl", rows), tmp_path / "out"
    options: dict[str, Any] = {"validation_fraction": 0.3, "shuffle_seed": 3, "max_tokens": 50}
    encode_conversations(tok, file, out, **options)
    numbers: list[str] = []
    for part in ("train", "validation"):
        sides = [texts(tok, out / side / part) for side in ("chosen", "rejected")]
        prompts = [[text.split("<|end|>")[0] for text in side] for side in sides]
        assert prompts[0] == prompts[1]
        numbers += [prompt.removeprefix("<|user|>") for prompt in prompts[0]]
    kept = [
        row["prompt"]
        for row in rows
        if all(4 + len(row["prompt"]) + len(row[side]) <= 50 for side in ("chosen", "rejected"))
    ]
    assert 20 < len(kept) < 200
    assert sorted(numbers) == sorted(kept)
    assert numbers != kept


def test_long_conversations_keep_whole_turns_and_those_without_a_turn_are_left_out(
    tmp_path: Path, tok: Tokenizer
) -> None:
    rows = [{"messages": said("a", "b" * n, "c", "d" * 10)} for n in (1, 5, 30)]
    file = save(tmp_path / "chats.jsonl", rows)
    [manifest] = encode_conversations(tok, file, tmp_path / "out", max_tokens=21)
    assert texts(tok, tmp_path / "out") == [
        "<|user|>a<|end|><|assistant|>[b<|end|>]<|user|>c<|end|><|assistant|>[dddddddddd<|end|>]",
        "<|user|>a<|end|><|assistant|>[bbbbb<|end|>]",
    ]
    assert (manifest.n_documents, manifest.n_empty_documents) == (2, 1)
    with pytest.raises(ShardError, match="max_tokens"):
        encode_conversations(tok, file, tmp_path / "out", max_tokens=0)


@pytest.mark.parametrize("layout", ["npy", "megatron"])
def test_stopped_at_any_moment_the_same_call_gives_the_same_files(
    tmp_path: Path, tok: Tokenizer, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(pipeline, "_GROUP_BYTES", 1)
    monkeypatch.setattr(batches, "BATCH_BYTES", 300)
    chance = random.Random(layout)
    rows = [{"messages": said("é" * chance.randrange(40), "b" * chance.randrange(90))} for _ in range(25)]
    file = save(tmp_path / "chats.jsonl", rows)
    settings = EncodeSettings(
        layout=layout,
        shard_tokens=301,
        shuffle_seed=1,
        validation_fraction=0.2,
        conversations=ConversationSettings(),
    )

    def encode(out: Path, n_events: int | None = None) -> int:
        events = 0

        def progress(_: object) -> None:
            nonlocal events
            events += 1
            if events == n_events:
                raise KeyboardInterrupt

        source = Corpus(file, format="text", documents="line")
        encode_with(tok, source, out, settings, checkpoint_bytes=1, progress=progress)
        return events

    n_events = encode(tmp_path / "out")
    expected = contents(tmp_path / "out")
    assert n_events > 10
    for number in range(3):
        out = tmp_path / f"stopped {number}"
        for stop in sorted(chance.sample(range(1, n_events), 2)):
            with suppress(KeyboardInterrupt):
                encode(out, stop)
        encode(out)
        assert contents(out) == expected


def test_a_mask_of_another_content_or_size_is_found_by_every_reader(tmp_path: Path, tok: Tokenizer) -> None:
    file = save(tmp_path / "chats.jsonl", [{"messages": said("a", "b" * 50)}])
    out = tmp_path / "out"
    [manifest] = encode_conversations(tok, file, out)
    mask = out / "shard_00000.mask"
    before = mask.read_bytes()
    mask.write_bytes(bytes(len(before)))
    assert "shard_00000.mask has sha256" in verify(out)[0]
    mask.write_bytes(before[1:])
    with pytest.raises(ShardError, match=r"shard_00000.mask has \d bytes"):
        TokenShards(out)
    mask.unlink()
    with pytest.raises(ShardError, match=r"shard_00000.mask is missing"):
        TokenShards(out)
    document = manifest_document(manifest)
    document["shards"][0]["sidecars"] = []
    with pytest.raises(ShardError, match=r"shard_00000.npy has no mask"):
        parse_manifest(document, "manifest.json")


def test_masks_are_read_like_tokens(tmp_path: Path, tok: Tokenizer) -> None:
    file = save(tmp_path / "chats.jsonl", [{"messages": said("a", "b" * n)} for n in range(20)])
    encode_conversations(tok, file, tmp_path / "out", shard_tokens=37)
    tokens = TokenShards(tmp_path / "out")
    whole = tokens.mask(0, len(tokens))
    expected = [
        is_target for n in range(20) for is_target in render_conversation(tok, said("a", "b" * n)).mask
    ]
    assert whole.tolist() == expected
    assert tokens.n_targets == sum(expected)
    assert pickle.loads(pickle.dumps(tokens)).n_targets == sum(expected)  # noqa: S301
    chance = random.Random(0)
    for _ in range(200):
        start, stop = sorted(chance.choices(range(len(tokens) + 1), k=2))
        assert np.array_equal(tokens.mask(start, stop), whole[start:stop])
    for start, stop in ((-1, 3), (3, 2), (0, len(tokens) + 1)):
        with pytest.raises(IndexError):
            tokens.mask(start, stop)


def test_shards_of_text_have_no_masks(tmp_path: Path, tok: Tokenizer) -> None:
    (tmp_path / "a.txt").write_text("a")
    encode_with(tok, tmp_path / "a.txt", tmp_path / "out", EncodeSettings())
    assert read_manifest(tmp_path / "out").settings.conversations is None
    with pytest.raises(ShardError, match="the shards have no masks"):
        TokenShards(tmp_path / "out").mask(0, 1)


def test_masks_in_an_object_store(tmp_path: Path, tok: Tokenizer, s3: Any) -> None:
    file, url = save(tmp_path / "chats.jsonl", [row for row, _ in ROWS]), f"{s3.bucket()}/chats"
    encode_conversations(tok, file, url, shard_tokens=50)
    encode_conversations(tok, file, tmp_path / "here", shard_tokens=50)
    here, stored = TokenShards(tmp_path / "here"), StoredTokens(url)
    assert verify(url) == []
    assert np.array_equal(stored.mask(3, 66), here.mask(3, 66))
    assert stored.n_targets == here.n_targets == TokenShards(url).n_targets


def test_another_template_or_length_makes_other_shards(tmp_path: Path, tok: Tokenizer) -> None:
    file, out = save(tmp_path / "chats.jsonl", [row for row, _ in ROWS]), tmp_path / "out"
    encode_conversations(tok, file, out)
    before = contents(out)
    encode_conversations(tok, file, out)
    encode_conversations(tok, file, out, recheck=True)
    assert contents(out) == before
    with pytest.raises(ShardError, match=r"conversations.max_tokens was None, now it is 99"):
        encode_conversations(tok, file, out, max_tokens=99)
    other = Tokenizer.from_spec(replace(tok.to_spec()))
    other.chat_template = TEMPLATE + " "
    with pytest.raises(ShardError, match=r"conversations.template was "):
        encode_conversations(other, file, out)
    pairs = save(tmp_path / "pairs.jsonl", [row for row, _, _ in PAIRS])
    with pytest.raises(ShardError, match="already contains other shards"):
        encode_conversations(tok, pairs, out)


def test_masks_are_not_lost_on_the_way_to_other_shards(tmp_path: Path, tok: Tokenizer) -> None:
    file = save(tmp_path / "chats.jsonl", [{"messages": said("a", "b")}])
    encode_conversations(tok, file, tmp_path / "out")
    with pytest.raises(ShardError, match="masks would be lost"):
        convert_shards(tmp_path / "out", tmp_path / "other", layout="bin")
    with pytest.raises(ShardError, match="masks would be lost"):
        shard_corpus(tmp_path / "out", tok, tok)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("{", "the row is not JSON"),
        ("3", "the row is not a JSON object"),
        ({"text": "a"}, "the row has neither 'messages' nor"),
        ({"prompt": "a"}, "the row has neither 'messages' nor"),
        ({"messages": []}, "'messages' is not a list of messages"),
        ({"messages": ["a"]}, "message 1 of 'messages' is not an object"),
        ({"messages": said("a")}, "the conversation has no message of the assistant"),
        ({"messages": [{"role": "boss", "content": "a"}]}, "message 1 has the unknown role 'boss'"),
        ({"conversations": [{"from": "boss", "value": "a"}]}, "message 1 of 'conversations' is from 'boss'"),
        ({"messages": said("a", "b"), "tools": "["}, "'tools' is not JSON"),
        ({"messages": said("a", "b"), "tools": {"a": 1}}, "'tools' is not a list of objects"),
        ({"messages": [{"content": "a"}], "system": "s"}, "message 2 has the unknown role None"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "message 1 (user) has a part of its content"),
        ({"conversations": [{"from": [1], "value": "a"}]}, "message 1 of 'conversations' is from [1]"),
        ({"messages": said("a", "b\ud83d")}, "message 2 (assistant) has a lone surrogate"),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "the row has 'chosen', unlike the first row"),
    ],
)
def test_a_bad_row_is_an_error_with_its_line(tmp_path: Path, tok: Tokenizer, row: Any, error: str) -> None:
    file = save(tmp_path / "chats.jsonl", [{"messages": said("a", "b")}])
    with file.open("a") as lines:
        lines.write("\n" + (row if isinstance(row, str) else json.dumps(row)))
    with pytest.raises(TokenizerError) as caught:
        encode_conversations(tok, file, tmp_path / "out")
    assert str(caught.value).startswith(f"{file}:3: {error}")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"prompt": "a"}, "the row has no 'chosen', as other rows have"),
        ({"chosen": "a", "rejected": "b"}, "'chosen' is a text, so the row needs a 'prompt'"),
        ({"chosen": said("a", "b"), "rejected": said("a", "b")}, "'chosen' and 'rejected' do not differ"),
    ],
)
def test_a_bad_pair_is_an_error_with_its_line(tmp_path: Path, tok: Tokenizer, row: Any, error: str) -> None:
    file = save(tmp_path / "pairs.jsonl", [PAIRS[0][0], row])
    with pytest.raises(TokenizerError, match=f":2: {error}"):
        encode_conversations(tok, file, tmp_path / "out")


def test_what_cannot_be_encoded_is_an_error_before_a_folder_is_touched(
    tmp_path: Path, tok: Tokenizer
) -> None:
    file = save(tmp_path / "chats.jsonl", [{"messages": said("a", "b")}])
    with pytest.raises(TokenizerError, match="has no chat template"):
        encode_conversations(Tokenizer(tok.vocab, []), file, tmp_path / "out")
    with pytest.raises(CorpusError, match="can be read only once"):
        encode_conversations(tok, "-", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chats.jsonl"]


def test_rows_name_their_conversation() -> None:
    row = {"messages": said("a", "b"), "tools": [{"x": 1}]}
    assert example_of(json.dumps(row)) == (row["messages"], 0, row["tools"])
