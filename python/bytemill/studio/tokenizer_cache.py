"""Tokenizers as views ask for them: whole, or truncated."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from bytemill.studio.texts import ViewTokenizer

if TYPE_CHECKING:
    from bytemill.studio.library import Library
    from bytemill.studio.texts import View
    from bytemill.tokenizer.tokenizer import Tokenizer

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
