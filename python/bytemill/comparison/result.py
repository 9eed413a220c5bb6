"""The result of a comparison, and the files that it is written to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.comparison.data import ComparisonData
from bytemill.comparison.tables import comma_separated, latex, markdown, other_tables
from bytemill.errors import CorpusError
from bytemill.storage import write_file

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from bytemill.comparison.figures import Values


_ENDINGS = (".html", ".json", ".md", ".csv", ".tex")


@dataclass(frozen=True)
class Comparison(ComparisonData):
    """Figures of tokenizers on text groups.

    Equal tokenizers, texts and settings give equal results, to the last byte.
    """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result as a page (.html), JSON (.json), Markdown (.md), CSV (.csv) or LaTeX (.tex), by the name.

        Raises:
            CorpusError: The name has another ending.
            OutputError: The file cannot be written.
            StorageError: The object store of a URL cannot be written.
        """
        check_output_name(path)
        # Templates are loaded for a page alone.
        from bytemill.comparison.report import report

        writers: dict[str, Callable[[Values], str]] = {
            ".json": lambda _: self.to_json(),
            ".md": lambda values: markdown(values) + other_tables(self),
            ".csv": comma_separated,
            ".tex": latex,
            ".html": lambda _: report(self),
        }
        write_file(path, writers[Path(path).suffix](self.values).encode())


def check_output_name(path: str | os.PathLike[str]) -> None:
    """Raise CorpusError if the ending of a name is none that `Comparison.save` writes."""
    if Path(path).suffix not in _ENDINGS:
        raise CorpusError(
            f"{path} does not say which format to write",
            hint=f"end the name with one of {', '.join(_ENDINGS)}",
        )
