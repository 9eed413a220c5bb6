"""What the readers of the formats give, before documents are chosen and packed into batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Generator

    import numpy as np
    from numpy.typing import NDArray

    from bytemill._core import BlockDocuments
    from bytemill.errors import CorpusError


@dataclass(frozen=True, slots=True)
class Piece:
    """Documents of one source that are read at once, whichever of them are wanted."""

    data: bytes
    """Valid UTF-8."""
    ends: NDArray[np.int64]
    """Where each document ends in it."""
    is_open: bool
    """True where the last document goes on in the next piece."""
    n_bytes_read: int
    """Bytes of the source read so far, of those that its size counts."""
    after: dict[str, Any]
    """From where to read the next piece: values that JSON can hold."""
    n_replaced: int = 0
    n_skipped_bytes: int = 0
    n_broken: int = 0
    error: CorpusError | None = None
    """What ends the reading behind these documents."""

    @classmethod
    def of(
        cls,
        documents: BlockDocuments,
        n_bytes_read: int,
        after: dict[str, Any],
        error: CorpusError | None = None,
    ) -> Piece:
        """The documents of a block."""
        return cls(
            documents.text,
            documents.ends,
            documents.is_open,
            n_bytes_read,
            after,
            documents.n_replaced,
            documents.n_skipped_bytes,
            documents.n_broken if error is None else 0,
            error,
        )


class Reader(Protocol):
    """A source of a corpus, whatever it is."""

    @property
    def name(self) -> str:
        """What it is called in errors."""
        ...

    @property
    def n_bytes(self) -> int | None:
        """Its size, None where only reading tells."""
        ...

    @property
    def comes_again(self) -> bool:
        """True where the same documents come when it is read a second time."""
        ...

    @property
    def runs_own_code(self) -> bool:
        """True where reading runs code of the caller's, which has to stay in the caller's thread."""
        ...

    def is_one_document(self) -> bool:
        """True where all of it is one document; False too where only reading tells, and has not begun."""
        ...

    def describe(self) -> Any:
        """What decides the documents, as JSON can hold it."""
        ...

    def read(self, state: dict[str, Any], stop: threading.Event) -> Generator[Piece]:
        """The pieces from `state` on ({}: from the beginning), the same in every run.

        Where reading may have to wait it gives up as soon as `stop` is set. Raises `CorpusError`.
        """
        ...
