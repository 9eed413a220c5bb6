"""Texts that browsers edit, and their ids, which are sent as differences."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bytemill.errors import BytemillError
from bytemill.studio.files import Recent
from bytemill.studio.library import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bytemill.studio.library import OpenedTokenizer
    from bytemill.studio.schemas import EditSpec, ViewSpec

MAX_TEXTS = 64
"""Texts that are kept; the one that was used least recently makes room."""
MAX_TOTAL_BYTES = 12_000_000
MAX_VIEWS = 8
"""Tokenizers whose ids are kept for a text."""


class ForgottenTextError(BytemillError, LookupError):
    """The studio has forgotten a text to make room for others, or because it was started again."""

    status = 410


class TextTooLargeError(BytemillError, ValueError):
    """A text would have more than 5 MB."""

    status = 413


class EditError(BytemillError, ValueError):
    """An edit is outside the text."""


class StaleVersionError(BytemillError, ValueError):
    """An edit is of another version of the text than the current one."""

    status = 409


@dataclass(frozen=True)
class Encoded:
    """The ids of a text, and the stamp of the tokenizer that made them."""

    ids: NDArray[np.uint32]
    stamp: str


@dataclass(frozen=True)
class IdsChange:
    """A change of ids: `n_removed` ids from `start` on are replaced by `ids`."""

    start: int
    n_removed: int
    ids: NDArray[np.uint32]
    n_tokens: int
    """Number of ids after the change."""
    stamp: str
    """Stamp of the tokenizer, before and after the change."""


@dataclass
class Text:
    """A text, its version, and its ids by view."""

    content: str
    version: int = 0
    n_bytes: int = 0
    ids: Recent[ViewSpec, Encoded] = field(default_factory=lambda: Recent(MAX_VIEWS))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def replace(self, content: str) -> None:
        """Set the content. Raises TextTooLargeError."""
        n_bytes = len(content.encode())
        if n_bytes > MAX_TEXT_BYTES:
            raise TextTooLargeError(f"the text has {n_bytes:,} bytes, more than {MAX_TEXT_BYTES:,}")
        self.content, self.n_bytes = content, n_bytes


class TextStore:
    """Texts by id.

    Args:
        tokenizer_of: Returns a tokenizer by its id, truncated to a size if that is not None.
    """

    def __init__(self, tokenizer_of: Callable[[str, int | None], OpenedTokenizer]) -> None:
        self._tokenizer_of = tokenizer_of
        self._texts: OrderedDict[str, Text] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, content: str) -> tuple[str, Text]:
        """Store a text under a new id. Raises TextTooLargeError."""
        text = Text("")
        text.replace(content)
        text_id = uuid.uuid4().hex
        with self._lock:
            self._texts[text_id] = text
            while len(self._texts) > 1 and (
                len(self._texts) > MAX_TEXTS
                or sum(each.n_bytes for each in self._texts.values()) > MAX_TOTAL_BYTES
            ):
                self._texts.popitem(last=False)
        return text_id, text

    def get(self, text_id: str) -> Text:
        """Return a text. Raises ForgottenTextError if it is unknown, or had to make room."""
        with self._lock:
            found = self._texts.get(text_id)
            if found is None:
                raise ForgottenTextError(
                    f"the studio has forgotten this text: it keeps {MAX_TEXTS}", hint="open it again"
                )
            self._texts.move_to_end(text_id)
            return found

    def edit(
        self, text_id: str, version: int, edits: Sequence[EditSpec], views: Sequence[ViewSpec]
    ) -> tuple[Text, list[IdsChange]]:
        """Apply edits, one after the other, and return the changes of the ids of each view.

        Raises:
            ForgottenTextError: The text is unknown.
            NotThereError: There is no such tokenizer; the text has not changed.
            StaleVersionError: The text has another version.
            EditError: An edit is outside the text.
            TextTooLargeError: The text would be too large.
        """
        text = self.get(text_id)
        with text.lock:
            if version != text.version:
                raise StaleVersionError(f"the text has version {text.version}, not {version}")
            content = text.content
            for edit in edits:
                if not 0 <= edit.start <= edit.end <= len(content):
                    raise EditError(
                        f"{edit.start} to {edit.end} is not in a text of {len(content)} characters"
                    )
                content = content[: edit.start] + edit.text + content[edit.end :]
            tokenizers = [self._tokenizer_of(view.tokenizer, view.vocab_size) for view in views]
            before = text.ids
            text.replace(content)
            text.version += 1
            text.ids = Recent(MAX_VIEWS)
            return text, [
                ids_change(before.get(view), self._ids(text, view, tokenizer))
                for view, tokenizer in zip(views, tokenizers, strict=True)
            ]

    def ids(self, text_id: str, view: ViewSpec) -> tuple[Text, Encoded]:
        """Return the ids of a text. Raises ForgottenTextError and NotThereError."""
        text = self.get(text_id)
        with text.lock:
            return text, self._ids(text, view, self._tokenizer_of(view.tokenizer, view.vocab_size))

    @staticmethod
    def _ids(text: Text, view: ViewSpec, own: OpenedTokenizer) -> Encoded:
        known = text.ids.get(view)
        if known is not None and known.stamp == own.stamp:
            return known
        ids = own.tokenizer.encode_to_numpy(
            text.content, allowed_special="all" if view.special else "none"
        ).astype(np.uint32)
        found = Encoded(original_ids(ids, own.renumbered), own.stamp)
        text.ids.put(view, found)
        return found


def original_ids(ids: NDArray[np.uint32], renumbered: dict[int, int]) -> NDArray[np.uint32]:
    """Replace the ids that truncation gave to special tokens by those of the whole tokenizer."""
    if not renumbered:
        return ids
    table = np.arange(int(max(ids.max(initial=0), *renumbered)) + 1, dtype=np.uint32)
    table[list(renumbered)] = list(renumbered.values())
    return table[ids]


def ids_change(known: Encoded | None, now: Encoded) -> IdsChange:
    """Return the smallest change of one stretch that turns the known ids into those of now.

    >>> import numpy as np
    >>> known, now = (Encoded(np.array(ids, np.uint32), "stamp") for ids in ([1, 2, 3, 4], [1, 9, 9, 4]))
    >>> change = ids_change(known, now)
    >>> change.start, change.n_removed, change.ids.tolist()
    (1, 2, [9, 9])
    """
    after = now.ids
    # Between ids of two versions of a tokenizer there is no change of a few ids.
    if known is None or known.stamp != now.stamp:
        return IdsChange(0, 0, after, len(after), now.stamp)
    before = known.ids
    n = min(len(before), len(after))
    start = _n_equal(before[:n], after[:n])
    n_end = _n_equal(before[::-1][: n - start], after[::-1][: n - start])
    new = after[start : len(after) - n_end]
    return IdsChange(start, len(before) - start - n_end, new, len(after), now.stamp)


def _n_equal(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> int:
    """Return how many elements at the start are equal; `a` and `b` are of the same size."""
    differs = a != b
    return int(differs.argmax()) if differs.any() else len(a)
