"""Texts that browsers edit, and their ids, which are sent as differences; tokenizers as views ask for them."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from bytemill.studio.errors import ForgottenTextError
from bytemill.studio.library import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bytemill.studio.library import Library
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
class ViewTokenizer:
    """The tokenizer of a view."""

    tokenizer: Tokenizer
    stamp: str
    """Stamp of the files that it was opened from."""
    renumbered: dict[int, int] = field(default_factory=dict[int, int])
    """Ids of special tokens that truncation changed, with their first ids."""


@dataclass(frozen=True)
class Edit:
    """Replace the characters from `start` to `end`, in code points, by `text`."""

    start: int
    end: int
    text: str


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
    stamp: str = ""
    """Stamp of the tokenizer, before and after the change."""


@dataclass
class Text:
    """A text, its version, and its ids by view."""

    content: str
    version: int = 0
    n_bytes: int = 0
    ids: OrderedDict[View, Encoded] = field(default_factory=OrderedDict[View, "Encoded"])
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

    def __init__(self, tokenizer_of: Callable[[View], ViewTokenizer]) -> None:
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
        self, text_id: str, version: int, edits: Sequence[Edit], views: Sequence[View]
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
            tokenizers = [self._tokenizer_of(view) for view in views]
            before = {view: text.ids.get(view) for view in views}
            text.replace(content)
            text.version += 1
            text.ids.clear()
            changes: list[IdsChange] = []
            for view, tokenizer in zip(views, tokenizers, strict=True):
                known, now = before[view], self._ids(text, view, tokenizer)
                # Between ids of two versions of a tokenizer there is no change of a few ids.
                known_ids = known.ids if known is not None and known.stamp == now.stamp else None
                changes.append(replace(ids_change(known_ids, now.ids), stamp=now.stamp))
            return text, changes

    def ids(self, text_id: str, view: View) -> tuple[Text, Encoded]:
        """Return the ids of a text. Raises ForgottenTextError and NotThereError."""
        text = self.get(text_id)
        with text.lock:
            return text, self._ids(text, view, self._tokenizer_of(view))

    @staticmethod
    def _ids(text: Text, view: View, own: ViewTokenizer) -> Encoded:
        known = text.ids.get(view)
        if known is not None and known.stamp == own.stamp:
            return known
        ids = own.tokenizer.encode_to_numpy(
            text.content, allowed_special="all" if view.special else "none"
        ).astype(np.uint32)
        found = Encoded(original_ids(ids, own.renumbered), own.stamp)
        text.ids[view] = found
        while len(text.ids) > MAX_VIEWS:
            text.ids.popitem(last=False)
        return found


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


MAX_TRUNCATED = 6


class TokenizerCache:
    """Keeps the tokenizers that were truncated most recently.

    Args:
        library: Where the tokenizers are.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._truncated: OrderedDict[tuple[str, str, int], Tokenizer] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, view: View) -> ViewTokenizer:
        """Return the tokenizer of a view.

        Raises:
            NotThereError: There is no such tokenizer.
            BytemillError: It cannot be opened or truncated.
        """
        opened = self._library.open_tokenizer(view.tokenizer)
        whole = opened.tokenizer
        if view.vocab_size is None or view.vocab_size >= len(whole):
            return ViewTokenizer(whole, opened.stamp)
        key = view.tokenizer, opened.stamp, view.vocab_size
        with self._lock:
            found = self._truncated.get(key)
        if found is None:
            found = whole.truncate(view.vocab_size)
            with self._lock:
                self._truncated[key] = found
                while len(self._truncated) > MAX_TRUNCATED:
                    self._truncated.popitem(last=False)
        renumbered = {own: whole.special_tokens[token] for token, own in found.special_tokens.items()}
        return ViewTokenizer(found, opened.stamp, renumbered)
