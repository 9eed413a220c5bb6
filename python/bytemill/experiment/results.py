"""Results of a study: one JSON object per finished cell in `results.jsonl`, in the order of the grid."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.errors import OutputError, RunConfigError
from bytemill.system.atomic_files import make_folder, write_json, write_text

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class StudyFolder:
    """The files of a study."""

    path: Path

    @property
    def results(self) -> Path:
        """One line per finished cell. It depends on the study file and its inputs alone: no times are in it."""
        return self.path / "results.jsonl"

    @property
    def grid(self) -> Path:
        """Names of all cells, and what the report needs to know of the study."""
        return self.path / "study.json"

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    @property
    def failures(self) -> Path:
        """Messages of the cells that failed."""
        return self.path / "failures.json"

    def claim(self, study_file: Path) -> None:
        """Create the folder, and copy the study file into it.

        Raises:
            OutputError: The folder holds other files.
        """
        own = self.path / "study.toml"
        if self.path.is_dir() and not own.exists() and any(self.path.iterdir()):
            raise OutputError(
                f"{self.path} holds files that are not of a study", hint="choose another folder: -o NAME"
            )
        make_folder(self.path)
        if own.resolve() != study_file.resolve():
            write_text(own, study_file.read_text(encoding="utf-8"))

    def write_results(self, results: Sequence[dict[str, Any]]) -> None:
        """Replace the results."""
        write_text(self.results, "".join(json.dumps(result, ensure_ascii=False) + "\n" for result in results))

    def write_grid(self, grid: dict[str, Any]) -> None:
        """Write what the report needs to know of the study."""
        write_json(self.grid, grid)

    def write_failures(self, failures: dict[str, str]) -> None:
        """Write the messages of failed cells, or remove those of an earlier call."""
        if failures:
            write_json(self.failures, failures)
        else:
            self.failures.unlink(missing_ok=True)


def read_study_folder(path: str | Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, str]]:
    """Return the grid, the results so far and the failures of a study.

    Raises:
        RunConfigError: It is not the folder of a study.
    """
    folder = StudyFolder(Path(path))
    try:
        grid: dict[str, Any] = json.loads(folder.grid.read_text(encoding="utf-8"))
        # At line feeds alone: `str.splitlines` also divides at U+2028, which the strings of samples may contain.
        lines = folder.results.read_text(encoding="utf-8").split("\n") if folder.results.exists() else []
        failures: dict[str, str] = {}
        if folder.failures.exists():
            failures = json.loads(folder.failures.read_text(encoding="utf-8"))
        return grid, [json.loads(line) for line in lines if line], failures
    except (OSError, ValueError) as error:
        raise RunConfigError(
            f"{path} is not the folder of a study", hint="make one with: bytemill experiment run STUDY.toml"
        ) from error
