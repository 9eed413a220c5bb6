"""A small corpus."""

from pathlib import Path

import pytest

from .packed_documents import END


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder of two files: one of stories with separators between them, one without."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(f"Es war einmal{END}Zweite Größe{END}", "utf-8")
    (folder / "b.txt").write_text("日本語のテキスト, and more of it", "utf-8")
    return folder
