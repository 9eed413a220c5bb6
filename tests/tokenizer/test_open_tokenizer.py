"""Tokenizers by path or published name, as the command line takes them."""

from pathlib import Path

import pytest

from bytemill import Tokenizer
from bytemill.errors import TokenizerFileError
from bytemill.tokenizer import open_tokenizer


@pytest.mark.parametrize(
    ("wrong", "meant"), [("gtp2", "gpt2"), ("cl100k", "cl100k_base"), ("lama3", "llama3")]
)
def test_a_mistyped_published_name_is_an_error_with_a_suggestion(wrong: str, meant: str) -> None:
    with pytest.raises(TokenizerFileError, match=f"{wrong}: no such file") as caught:
        open_tokenizer(wrong)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"use {meant}, ")


def test_a_missing_file_gets_no_suggestion() -> None:
    with pytest.raises(TokenizerFileError, match="no such file") as caught:
        open_tokenizer("folder/missing.json")
    assert caught.value.hint == "check the path"


def test_an_existing_path_takes_precedence_over_a_similar_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Tokenizer({i: bytes([i]) for i in range(256)}, []).save("gpt-2", format="huggingface")
    assert open_tokenizer("gpt-2").n_vocab == 256
