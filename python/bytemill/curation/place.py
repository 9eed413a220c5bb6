"""The output of a curation: a folder, or a folder in an object store."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.curation.tasks import KEPT, REMOVED
from bytemill.data.stage import FolderStage, StoreStage
from bytemill.data.unfinished import RESTART_HINT
from bytemill.errors import CurationError
from bytemill.storage import StoreFolder, url_of, write_file
from bytemill.system.atomic_files import indented_json, make_folder
from bytemill.system.locks import lock_output
from bytemill.system.records import parse_json_object

if TYPE_CHECKING:
    import os
    from collections.abc import Generator

    from bytemill.data.stage import Stage

MEASURED = "measured"
"""The folder of what tasks leave."""
RESULT = "curation.json"
PLAN = "plan.json"


@dataclass(frozen=True)
class Place:
    """The output: a folder, or a folder in an object store."""

    target: Path | StoreFolder
    stage: Stage

    @classmethod
    def of(cls, output: str | os.PathLike[str]) -> Place:
        """Return the place of a path or URL."""
        url = url_of(output)
        if url is None:
            folder = Path(output).absolute()
            return cls(folder, FolderStage(folder / MEASURED / "units"))
        store = StoreFolder(url)
        return cls(store, StoreStage(store / MEASURED / "units"))

    def __str__(self) -> str:
        return str(self.target)

    @property
    def plan(self) -> Path | str:
        """The file of the plan, or its URL."""
        if isinstance(self.target, StoreFolder):
            return f"{self.target}/{MEASURED}/{PLAN}"
        return self.target / MEASURED / PLAN

    @contextlib.contextmanager
    def opened(self) -> Generator[None]:
        """Prepare the output, and lock a folder."""
        if isinstance(self.target, StoreFolder):
            self.target.require_writable()
            self.stage.create()
            yield
            return
        make_folder(self.target)
        with lock_output(self.target):
            yield

    def clear(self) -> None:
        """Remove the result of another curation."""
        self.remove_result()
        self.stage.remove()
        names = (KEPT, REMOVED, MEASURED)
        if isinstance(self.target, StoreFolder):
            for name in names:
                (self.target / name).delete((self.target / name).list())
            return
        for name in names:
            FolderStage(self.target / name).remove()

    def read_result(self) -> dict[str, Any] | None:
        """Return the result of a finished curation, or None."""
        if isinstance(self.target, StoreFolder):
            found = self.target.get(RESULT)
            data = None if found is None else found.data
        else:
            path = self.target / RESULT
            data = path.read_bytes() if path.is_file() else None
        return (
            None if data is None else parse_json_object(data, f"{self}/{RESULT}", CurationError, RESTART_HINT)
        )

    def remove_result(self) -> None:
        """Remove the result, so that the curation counts as unfinished."""
        if isinstance(self.target, StoreFolder):
            self.target.delete([RESULT])
        else:
            (self.target / RESULT).unlink(missing_ok=True)

    def read_plan(self) -> dict[str, Any] | None:
        """Return the plan, whatever its identity."""
        if isinstance(self.plan, Path):
            data = self.plan.read_bytes() if self.plan.is_file() else None
        else:
            found = cast("StoreFolder", self.target).get(f"{MEASURED}/{PLAN}")
            data = None if found is None else found.data
        return None if data is None else parse_json_object(data, str(self.plan), CurationError, RESTART_HINT)

    def finish(self, document: dict[str, Any]) -> dict[str, Any]:
        """Write the result."""
        path = f"{self.target}/{RESULT}" if isinstance(self.target, StoreFolder) else self.target / RESULT
        write_file(path, indented_json(document))
        return document
