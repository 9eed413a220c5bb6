"""Which files of a folder are a corpus."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from bytemill.corpus.formats import SUFFIXES, format_of_name
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.corpus.options import Format

_NOT_DATA = frozenset({"dataset_info.json", "dataset_dict.json", "dataset_infos.json", "state.json"})
"""What Hugging Face's datasets put beside their data."""


def files_in(folder: str, format: Format | Literal["auto"]) -> list[str]:  # noqa: A002
    """The files of a folder and of the folders in it that are a corpus, sorted. Raises `CorpusError` for none."""
    found: list[str] = []

    def fail(error: OSError) -> None:
        raise CorpusError(
            f"cannot read {error.filename}: {error.strerror}", hint="check permissions"
        ) from error

    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(parent, name) for name in files]  # noqa: PTH118  (keeps a leading "./")
    return corpus_files(folder, sorted(found), format)


def corpus_files(folder: str, files: Sequence[str], format: Format | Literal["auto"]) -> list[str]:  # noqa: A002
    """Those of the files of a folder that are a corpus: of one known format, or of the one that is asked for.

    As "text" any file is taken. Raises `CorpusError` where there is none, or files of several formats.
    """
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
                hint="say which with format=… (--format …), or give a glob",
            )
        chosen = [name for name, found in formats.items() if format in ("auto", found)]
    if not chosen:
        wanted = ", ".join(suffix for suffix, kind in SUFFIXES.items() if format in ("auto", kind))
        raise CorpusError(
            f"the folder {folder} holds no file that looks like a corpus",
            hint=f"--format text takes any file as text; otherwise names end with {wanted}, or one of these and "
            ".gz, .zst, .xz or .bz2",
        )
    return chosen
