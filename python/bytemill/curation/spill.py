"""Arrays on the disk: appended to, then mapped into memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from bytemill.system.atomic_files import output_errors

if TYPE_CHECKING:
    import os
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


class SpillFolder:
    """A temporary folder that is removed when it is closed.

    Args:
        parent: Where it is created; None for the system's temporary folder.
        purpose: A word for its name.
    """

    def __init__(self, parent: str | os.PathLike[str] | None, purpose: str) -> None:
        parent = Path(parent or tempfile.gettempdir())
        with output_errors(parent / f"bytemill-{purpose}-…"):
            self._folder = tempfile.TemporaryDirectory(prefix=f"bytemill-{purpose}-", dir=parent)
        self.path = Path(self._folder.name)

    def array(self, name: str, dtype: type[Scalar]) -> SpilledArray[Scalar]:
        """Create an empty array in the folder."""
        return SpilledArray(self.path / name, dtype)

    def close(self) -> None:
        """Remove the folder and its arrays."""
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class SpilledArray(Generic[Scalar]):
    """A one-dimensional array in a file of its own, which is open only while values are appended."""

    def __init__(self, path: Path, dtype: type[Scalar]) -> None:
        self._path = path
        self._dtype: np.dtype[Scalar] = np.dtype(dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, values: NDArray[Any]) -> None:
        """Append values, converted to the type of the array."""
        if not len(values):
            return
        converted = np.ascontiguousarray(values, self._dtype)
        with output_errors(self._path), self._path.open("ab") as file:
            file.write(converted.view(np.uint8).data)
        self._size += len(converted)

    def mapped(self) -> NDArray[Scalar]:
        """Return the array. Changes are written to the file."""
        if not self._size:
            return np.empty(0, self._dtype)
        with output_errors(self._path):
            # Without the subclass, whose slices take longer.
            return np.asarray(np.memmap(self._path, self._dtype, "r+"))

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
