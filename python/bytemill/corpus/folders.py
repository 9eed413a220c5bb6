"""Selection of the files of a folder that belong to a corpus."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

from bytemill.corpus.formats import check_format, format_of_name, suffixes
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOT_DATA = frozenset({"dataset_info.json", "dataset_dict.json", "dataset_infos.json", "state.json"})
"""Metadata files of Hugging Face datasets."""


def files_in(folder: str, format: str) -> list[str]:  # noqa: A002
    """Return the corpus files of a folder and its subfolders, sorted. Raises `CorpusError` if there are none."""
    found: list[str] = []

    def fail(error: OSError) -> None:
        raise CorpusError(
            f"cannot read {error.filename}: {error.strerror}", hint="check permissions"
        ) from error

    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(parent, name) for name in files]  # noqa: PTH118  (keeps a leading "./")
    return corpus_files(folder, sorted(found), format)


def corpus_files(folder: str, files: Sequence[str], format: str) -> list[str]:  # noqa: A002
    """Select the files that have a known format, or the explicit one; "text" selects all files.

    Raises:
        CorpusError: No file is left, or the files have several formats.
    """
    check_format(format)
    base = len(folder)
    seen = [name for name in files if not any(part.startswith(".") for part in PurePath(name[base:]).parts)]
    if format == "text":
        chosen = seen
    else:
        known = [name for name in seen if PurePath(name).name not in _NOT_DATA]
        formats = {name: found for name in known if (found := format_of_name(name)) is not None}
        if format == "auto" and len(kinds := Counter(formats.values())) > 1:
            listing = ", ".join(f"{kind} ({n:,})" for kind, n in kinds.most_common())
            raise CorpusError(
                f"the folder {folder} holds files of several formats: {listing}",
                hint="choose one with --format (format=), or use a glob",
            )
        chosen = [name for name, found in formats.items() if format in ("auto", found)]
    if not chosen:
        wanted = ", ".join(suffixes(format))
        raise CorpusError(
            f"the folder {folder} contains no corpus file",
            hint=f"--format text reads every file as text; otherwise file names end with {wanted}, or one of these "
            "plus .gz, .zst, .xz or .bz2",
        )
    return chosen
