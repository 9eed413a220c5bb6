"""Fixtures that several test modules share."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def shared_data_folder() -> Path | None:
    """The folder of real texts and vocabularies: $BYTEMILL_TEST_DATA, else ../shared/data beside the repository."""
    candidate = Path(os.environ.get("BYTEMILL_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    return candidate if candidate.is_dir() else None


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real texts and vocabularies; the test is skipped where it is absent."""
    folder = shared_data_folder()
    if folder is None:
        pytest.skip("real texts and vocabularies are not here: set BYTEMILL_TEST_DATA to their folder")
    return folder
