"""What format readers yield, before documents are selected and packed into batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bytemill._core import check_documents
from bytemill.corpus.options import SKIP_HINT
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Generator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from bytemill._core import BlockDocuments
    from bytemill.corpus.options import CorpusOptions


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive documents of one source, before selection."""

    data: bytes
    """Valid UTF-8."""
    ends: NDArray[np.int64]
    """End of each document in `data`, shape (n_documents,)."""
    is_open: bool
    """True if the last document continues in the next chunk."""
    n_bytes_read: int
    """Bytes of the source read so far, in the unit of its size (compressed bytes of compressed files)."""
    after: dict[str, Any]
    """State from which the next chunk can be read; JSON values."""
    n_replaced: int = 0
    n_skipped_bytes: int = 0
    n_broken: int = 0
    n_byte_order_marks: int = 0
    error: CorpusError | None = None
    """Error that ends reading after these documents."""

    @classmethod
    def of(
        cls,
        documents: BlockDocuments,
        n_bytes_read: int,
        after: dict[str, Any],
        error: CorpusError | None = None,
        *,
        n_byte_order_marks: int = 0,
    ) -> Chunk:
        """Make a chunk of the documents of a block."""
        return cls(
            documents.text,
            documents.ends,
            documents.is_open,
            n_bytes_read,
            after,
            documents.n_replaced,
            documents.n_skipped_bytes,
            documents.n_broken if error is None else 0,
            n_byte_order_marks,
            error,
        )

    @classmethod
    def of_texts(
        cls,
        texts: Sequence[bytes],
        options: CorpusOptions,
        n_bytes_read: int,
        after: dict[str, Any],
        name_of: Callable[[int], str],
    ) -> Chunk:
        """Make a chunk of documents, checked to be UTF-8.

        Args:
            texts: The documents.
            options: Options of the corpus, which decide about malformed UTF-8.
            n_bytes_read: Bytes of the source read so far.
            after: State from which the next chunk can be read.
            name_of: Returns the name of a document, by its index in `texts`, for the error message.
        """
        import numpy as np

        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return cls.checked(
            b"".join(texts), ends, options=options, n_bytes_read=n_bytes_read, after=after, name_of=name_of
        )

    @classmethod
    def checked(
        cls,
        data: bytes,
        ends: NDArray[np.int64],
        *,
        options: CorpusOptions,
        n_bytes_read: int,
        after: dict[str, Any],
        name_of: Callable[[int], str],
        missing: NDArray[np.bool_] | None = None,
        missing_message: str = "",
    ) -> Chunk:
        """Make a chunk of packed documents, checked to be UTF-8.

        Args:
            data: Their bytes.
            ends: End of each document in `data`.
            options: As in `of_texts`, also below.
            n_bytes_read: As in `of_texts`.
            after: As in `of_texts`.
            name_of: As in `of_texts`.
            missing: Mask of the documents that are missing.
            missing_message: What to report of a missing document.
        """
        documents = check_documents(data, ends, missing, options.errors, options.on_error == "skip")
        error = None
        if documents.broken is not None:
            number, offset, _ = documents.broken
            problem = f"byte offset {offset} of the text is not valid UTF-8"
            problem = missing_message if offset is None else problem
            error = CorpusError(f"{name_of(number)}: {problem}", hint=SKIP_HINT)
        return cls.of(documents, n_bytes_read, after, error)

    @classmethod
    def broken(cls, n_bytes_read: int, after: dict[str, Any]) -> Chunk:
        """Make a chunk of one broken document that is left out."""
        import numpy as np

        return cls(b"", np.empty(0, np.int64), False, n_bytes_read, after, n_broken=1)


class Reader(Protocol):
    """A source of a corpus."""

    @property
    def name(self) -> str:
        """Name in error messages."""
        ...

    @property
    def n_bytes(self) -> int | None:
        """Size in bytes; None if unknown before reading."""
        ...

    @property
    def is_rereadable(self) -> bool:
        """True if a second read yields the same documents."""
        ...

    @property
    def runs_user_code(self) -> bool:
        """True if reading runs the caller's code, which has to stay in the caller's thread."""
        ...

    def is_one_document(self) -> bool:
        """Check whether the source is one document; False if that is unknown before reading."""
        ...

    def describe(self) -> Any:
        """Return what determines the documents, as JSON values."""
        ...

    def read(self, state: dict[str, Any], stop: threading.Event) -> Generator[Chunk]:
        """Yield the chunks from `state` on ({}: from the beginning), the same in every run.

        Args:
            state: `Chunk.after` of an earlier chunk.
            stop: Ends reading soon after it is set, also while waiting for input.

        Raises:
            CorpusError: The source cannot be read.
        """
        ...
