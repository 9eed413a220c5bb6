"""Mistral's tekken.json, against tiktoken with the file's ranks, which is what mistral-common encodes with."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import bytemill as bm
from bytemill.errors import TokenizerFileError
from bytemill.formats.registry import Content, load_content

PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
N_SPECIAL = 22
WORDS = [b"th", b"the", b" the", b"an", b"and", b" and", b"\xc3\xa9", b"12", b"\n\n"]
RANKS = {bytes([i]): i for i in range(256)} | {word: 256 + i for i, word in enumerate(WORDS)}


def document(**changes: Any) -> dict[str, Any]:
    """A file that lists two tokens more than its model has."""
    listed = RANKS | {b"zz": len(RANKS), b"zzz": len(RANKS) + 1}
    return {
        "config": {
            "pattern": PATTERN,
            "num_vocab_tokens": len(listed),
            "default_vocab_size": len(RANKS) + N_SPECIAL,
            "default_num_special_tokens": N_SPECIAL,
            "version": "v3",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for token, rank in listed.items()
        ],
        **changes,
    }


def loaded(content: dict[str, Any]) -> bm.Tokenizer:
    return bm.Tokenizer._from_loaded(load_content(Content(json.dumps(content).encode(), "tekken.json")))


TOKENIZER = loaded(document())
ENCODING = tiktoken.Encoding("tekken", pat_str=PATTERN, mergeable_ranks=RANKS, special_tokens={})


@given(text=st.text() | st.text("thean d12é\n", max_size=40))
def test_ids_are_those_of_the_ranks_after_the_special_tokens(text: str):
    text = text.encode(errors="replace").decode()
    assert TOKENIZER.encode_ordinary(text) == [i + N_SPECIAL for i in ENCODING.encode_ordinary(text)]
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_special_tokens_have_the_first_ids(tmp_path: Path):
    assert TOKENIZER.encode("<s>[INST]the[/INST]</s>") == [1, 3, TOKENIZER.token_to_id(b"the"), 4, 2]
    assert TOKENIZER.special_tokens["<SPECIAL_21>"] == 21
    assert TOKENIZER.n_vocab == len(RANKS) + N_SPECIAL
    named = loaded(document(special_tokens=[{"rank": 0, "token_str": "<unk>", "is_control": True}]))
    assert named.special_tokens["<SPECIAL_1>"] == 1
    (tmp_path / "tekken.json").write_text(json.dumps(document()), encoding="utf-8")
    assert bm.Tokenizer.load(tmp_path).fingerprint == TOKENIZER.fingerprint
    TOKENIZER.save(tmp_path / "tokenizer.json")
    assert bm.Tokenizer.load(tmp_path / "tokenizer.json").encode("<s> the thé") == TOKENIZER.encode(
        "<s> the thé"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vocab": document()["vocab"][:-8]}, "does not have the"),
        ({"vocab": [{"rank": 0}]}, r"vocab\[0\]\.token_bytes is not base64"),
        ({"vocab": [5]}, r"vocab\[0\] is 5, not a token with a rank"),
        ({"special_tokens": [{"rank": 99, "token_str": "<x>"}]}, r"special_tokens\[0\]"),
        ({"config": {"pattern": PATTERN}}, r"config\.default_num_special_tokens"),
        ({"config": document()["config"] | {"pattern": "("}}, "pattern"),
    ],
)
def test_damaged_files_are_refused(changes: dict[str, Any], said: str):
    with pytest.raises(TokenizerFileError, match=said):
        loaded(document(**changes))
