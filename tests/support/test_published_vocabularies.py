"""The data of the repository: small, described, and restored to the published files."""

import base64
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import published_vocabularies

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "data"


def test_the_data_takes_less_than_four_megabytes() -> None:
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 4_000_000


def test_the_readme_of_the_data_names_every_file() -> None:
    text = (DATA / "README.md").read_text(encoding="utf-8")
    for path in [*DATA.glob("*.txt"), *DATA.glob("vocabularies/*.xz")]:
        assert f"`{path.relative_to(DATA).as_posix()}`" in text


def test_restored_files_are_the_published_ones(shared_data: Path) -> None:
    for name, sha256 in published_vocabularies.SHA256.items():
        assert hashlib.sha256((shared_data / name).read_bytes()).hexdigest() == sha256


def test_a_damaged_vocabulary_is_not_restored(tmp_path: Path) -> None:
    tokens = published_vocabularies.unpack((DATA / "vocabularies" / "r50k_base.xz").read_bytes())
    (tmp_path / "r50k_base.xz").write_bytes(published_vocabularies.pack(tokens[:1000]))
    with pytest.raises(ValueError, match=r"r50k_base\.tiktoken: the restored file differs"):
        published_vocabularies.restore(tmp_path, tmp_path)


def test_packing_a_published_file_gives_the_committed_one(shared_data: Path) -> None:
    lines = (shared_data / "r50k_base.tiktoken").read_bytes().splitlines()
    tokens = [base64.b64decode(line.split()[0]) for line in lines]
    assert published_vocabularies.unpack(published_vocabularies.pack(tokens)) == tokens


def test_tests_of_whole_texts_are_left_out_without_them(tmp_path: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/formats/test_vocab_listing.py"],
        cwd=REPOSITORY,
        env={**os.environ, "BYTEMILL_TEST_DATA": str(tmp_path / "absent")},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "test_a_listing_is_that_of_minbpe" in outcome.stdout
    assert "test_a_listing_of_simple_bpe_itself" not in outcome.stdout
    assert "1 deselected" in outcome.stdout
