"""Texts that browsers edit, and their ids, which are sent as differences."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bytemill.studio.library import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bytemill.tokenizer.tokenizer import Tokenizer

MAX_TEXTS = 64
"""Texts that are kept; the one that was used least recently makes room."""
MAX_TOTAL_BYTES = 12_000_000
MAX_VIEWS = 8
"""Tokenizers whose ids are kept for a text."""


class TextTooLargeError(ValueError):
    """A text would have more than 5 MB."""


class EditError(ValueError):
    """An edit is outside the text."""


class StaleVersionError(ValueError):
    """An edit is of another version of the text than the current one."""


@dataclass(frozen=True)
class View:
    """How a text is encoded."""

    tokenizer: str
    """Id in the library."""
    special: bool = True
    """Recognize special tokens."""
    vocab_size: int | None = None
    """Truncate the tokenizer to this many tokens."""


@dataclass(frozen=True)
class Edit:
    """Replace the characters from `start` to `end`, in code points, by `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class IdsChange:
    """A change of ids: `n_removed` ids from `start` on are replaced by `ids`."""

    start: int
    n_removed: int
    ids: NDArray[np.uint32]
    n_tokens: int
    """Number of ids after the change."""


@dataclass
class Text:
    """A text, its version, and its ids by view."""

    content: str
    version: int = 0
    n_bytes: int = 0
    ids: OrderedDict[View, NDArray[np.uint32]] = field(
        default_factory=OrderedDict[View, "NDArray[np.uint32]"]
    )
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
        tokenizer_of: Returns the tokenizer of a view.
    """

    def __init__(self, tokenizer_of: Callable[[View], tuple[Tokenizer, dict[int, int]]]) -> None:
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
        """Return a text. Raises KeyError if it is unknown, or had to make room."""
        with self._lock:
            self._texts.move_to_end(text_id)
            return self._texts[text_id]

    def edit(
        self, text_id: str, version: int, edits: Sequence[Edit], views: Sequence[View]
    ) -> tuple[Text, list[IdsChange]]:
        """Apply edits, one after the other, and return the changes of the ids of each view.

        Raises:
            KeyError: The text is unknown.
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
            before = {view: text.ids.get(view) for view in views}
            text.replace(content)
            text.version += 1
            text.ids.clear()
            return text, [ids_change(before[view], self._ids(text, view)) for view in views]

    def ids(self, text_id: str, view: View) -> tuple[Text, NDArray[np.uint32]]:
        """Return the ids of a text. Raises KeyError."""
        text = self.get(text_id)
        with text.lock:
            return text, self._ids(text, view)

    def _ids(self, text: Text, view: View) -> NDArray[np.uint32]:
        ids = text.ids.get(view)
        if ids is None:
            tokenizer, renumbered = self._tokenizer_of(view)
            ids = tokenizer.encode_to_numpy(
                text.content, allowed_special="all" if view.special else "none"
            ).astype(np.uint32)
            ids = original_ids(ids, renumbered)
            text.ids[view] = ids
            while len(text.ids) > MAX_VIEWS:
                text.ids.popitem(last=False)
        return ids


def original_ids(ids: NDArray[np.uint32], renumbered: dict[int, int]) -> NDArray[np.uint32]:
    """Replace the ids that truncation gave to special tokens by those of the whole tokenizer."""
    if not renumbered:
        return ids
    table = np.arange(int(max(ids.max(initial=0), *renumbered)) + 1, dtype=np.uint32)
    table[list(renumbered)] = list(renumbered.values())
    return table[ids]


def ids_change(before: NDArray[np.uint32] | None, after: NDArray[np.uint32]) -> IdsChange:
    """Return the smallest change of one stretch that turns `before` into `after`.

    >>> import numpy as np
    >>> change = ids_change(np.array([1, 2, 3, 4], np.uint32), np.array([1, 9, 9, 4], np.uint32))
    >>> change.start, change.n_removed, change.ids.tolist()
    (1, 2, [9, 9])
    """
    if before is None:
        return IdsChange(0, 0, after, len(after))
    n = min(len(before), len(after))
    start = _n_equal(before[:n], after[:n])
    n_end = _n_equal(before[::-1][: n - start], after[::-1][: n - start])
    return IdsChange(start, len(before) - start - n_end, after[start : len(after) - n_end], len(after))


def _n_equal(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> int:
    """Return how many elements at the start are equal; `a` and `b` are of the same size."""
    differs = a != b
    return int(differs.argmax()) if differs.any() else len(a)
