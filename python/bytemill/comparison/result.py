"""The result of a comparison."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.comparison.tables import comma_separated, latex, markdown
from bytemill.errors import CorpusError
from bytemill.system.atomic_files import write_text

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from bytemill.comparison.values import Values


@dataclass(frozen=True)
class Parallel:
    """Cost of the same content in several languages, for each tokenizer."""

    reference: str
    n_lines: int
    premiums: dict[str, dict[str, float]]
    """Tokenizer -> language -> tokens, relative to the reference."""
    gini: dict[str, float | None]
    """Tokenizer -> Gini coefficient over the languages' tokens."""


@dataclass(frozen=True)
class Comparison:
    """Figures of tokenizers on text groups.

    Equal tokenizers, texts and settings give equal results, to the last byte.
    """

    tokenizers: dict[str, dict[str, Any]]
    """Name -> n_vocab, pattern, fingerprint."""
    groups: dict[str, dict[str, Any]]
    """Name -> inputs, n_bytes, n_units, sha256."""
    values: Values
    settings: dict[str, Any]
    version: str
    parallel: Parallel | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "bytemill_version": self.version,
            "settings": self.settings,
            "tokenizers": self.tokenizers,
            "groups": self.groups,
            "values": {
                group: {
                    figure: {name: value.to_dict() for name, value in own.items()}
                    for figure, own in figures.items()
                }
                for group, figures in self.values.items()
            },
            "parallel": None
            if self.parallel is None
            else {
                "reference": self.parallel.reference,
                "n_lines": self.parallel.n_lines,
                "premiums": self.parallel.premiums,
                "gini": self.parallel.gini,
            },
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result: as JSON (.json), Markdown (.md), CSV (.csv) or LaTeX (.tex), by the name.

        Raises:
            CorpusError: The name has another ending.
            OutputError: The file cannot be written.
        """
        writers: dict[str, Callable[[Values], str]] = {
            ".json": lambda _: self.to_json(),
            ".md": markdown,
            ".csv": comma_separated,
            ".tex": latex,
        }
        suffix = Path(path).suffix
        if suffix not in writers:
            raise CorpusError(
                f"{path} does not say which format to write",
                hint=f"end the name with one of {', '.join(writers)}",
            )
        write_text(path, writers[suffix](self.values))

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n"
