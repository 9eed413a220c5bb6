"""What docs/guides/corpora.md says about formats."""

import re
from pathlib import Path

from bytemill.corpus.formats import COMPRESSIONS, FORMATS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "corpora.md").read_text(encoding="utf-8")


def test_every_suffix_is_on_the_page() -> None:
    for each in FORMATS.values():
        (row,) = re.findall(rf"^\| `{each.name}` \|.*$", PAGE, flags=re.MULTILINE)
        for suffix in each.suffixes:
            assert f"`{suffix}`" in row
    assert set(COMPRESSIONS.values()) == {"gzip", "zstd", "xz", "bzip2"}
    assert "gzip, zstd, xz and bzip2" in PAGE
