"""A tokenizer whose ids can be written down by hand, and a small corpus."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bytemill import Tokenizer

from .packed_documents import END, Documents, tokenizer_of_bytes


@pytest.fixture(scope="session")
def byte_tokenizer() -> Tokenizer:
    return tokenizer_of_bytes()


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., Tokenizer]:
    """Makes byte tokenizers with another dtype, or with another special token more."""
    return tokenizer_of_bytes


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder of two files: one of stories with separators between them, one without."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(f"Es war einmal{END}Zweite Größe{END}", "utf-8")
    (folder / "b.txt").write_text("日本語のテキスト, and more of it", "utf-8")
    return folder


@pytest.fixture(scope="session")
def make_documents() -> Callable[..., Documents]:
    return Documents
