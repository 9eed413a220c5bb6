"""The folder that the arc writes to: its own, so that it can replace what an earlier run left there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bytemill.errors import OutputError
from bytemill.system.atomic_files import make_folder, output_error, write_json

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class QuickstartFolder:
    """Where everything goes."""

    path: Path

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's file."""
        return self.path / "tokenizer.json"

    @property
    def report(self) -> Path:
        """The page to open."""
        return self.path / "report.html"

    @property
    def result(self) -> Path:
        """The result as JSON. From the beginning it marks the folder as one that may be replaced."""
        return self.path / "quickstart.json"

    @property
    def model(self) -> Path:
        """The folder of the language model's run."""
        return self.path / "model"

    def text(self, part: str) -> Path:
        """The text of "train" or "validation"."""
        return self.path / f"{part}.txt"

    def shards(self, part: str) -> Path:
        """The folder of the shards of "train" or "validation"."""
        return self.path / part

    def claim(self) -> bool:
        """Makes the folder, or takes it over from an earlier run, and tells whether there was one.

        Raises `OutputError` where it holds anything else, or cannot be written to.
        """
        try:
            is_used = self.path.is_dir() and any(self.path.iterdir())
        except OSError as error:
            raise output_error(error, self.path) from error
        was_ours = self.result.is_file()
        if is_used and not was_ours:
            raise OutputError(
                f"{self.path} holds files, and not those of an earlier quickstart",
                hint="give another folder: bytemill quickstart NAME",
            )
        make_folder(self.path)
        write_json(self.result, {"complete": False})
        return was_ours

    def finish(self, result: dict[str, Any]) -> None:
        """Writes the result."""
        write_json(self.result, {"complete": True, **result})
