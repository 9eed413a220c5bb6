"""The examples of docs/corpora.md."""

import re
from pathlib import Path

import pytest

from bytemill.corpus.compression import SUFFIXES as COMPRESSIONS
from bytemill.corpus.formats import FORMATS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "corpora.md").read_text(encoding="utf-8")


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(examples) == 4
    for code in examples:
        exec(compile(code, "corpora.md", "exec"), names)  # noqa: S102  (the page is ours)
    assert capsys.readouterr().out.splitlines() == [
        "Once upon a time there was a mill.",
        "It milled bytes, day and night.",
        "[[2, 4]]",
        "40",
    ]


def test_every_suffix_is_on_the_page() -> None:
    for each in FORMATS.values():
        (row,) = re.findall(rf"^\| `{each.name}` \|.*$", PAGE, flags=re.MULTILINE)
        for suffix in each.suffixes:
            assert f"`{suffix}`" in row
    assert set(COMPRESSIONS.values()) == {"gzip", "zstd", "xz", "bzip2"}
    assert "gzip, zstd, xz and bzip2" in PAGE
