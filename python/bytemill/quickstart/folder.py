"""The output folder of the quickstart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bytemill.errors import OutputError
from bytemill.system.atomic_files import make_folder, output_error, write_json

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class QuickstartFolder:
    """Paths in the output folder. A later run replaces the files of an earlier one."""

    path: Path

    @property
    def tokenizer(self) -> Path:
        """The tokenizer file."""
        return self.path / "tokenizer.json"

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.path / "report.html"

    @property
    def result(self) -> Path:
        """The result as JSON. It is written first, to mark the folder as one that a later run may replace."""
        return self.path / "quickstart.json"

    @property
    def model(self) -> Path:
        """The run folder of the language model."""
        return self.path / "model"

    def text(self, part: str) -> Path:
        """The text file of a part: "train" or "validation"."""
        return self.path / f"{part}.txt"

    def shards(self, part: str) -> Path:
        """The shard folder of a part: "train" or "validation"."""
        return self.path / part

    def prepare(self) -> None:
        """Create the folder, or reuse that of an earlier run.

        Raises:
            OutputError: The folder holds other files, or cannot be written to.
        """
        try:
            is_used = self.path.is_dir() and any(self.path.iterdir())
        except OSError as error:
            raise output_error(error, self.path) from error
        if is_used and not self.result.is_file():
            raise OutputError(
                f"{self.path} holds files that are not from an earlier quickstart",
                hint="choose another folder: bytemill quickstart NAME",
            )
        make_folder(self.path)
        write_json(self.result, {"complete": False})

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result and mark the run as complete."""
        write_json(self.result, {"complete": True, **result})
