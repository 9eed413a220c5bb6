"""Encoding with BPE-dropout: other divisions of the same text in every epoch."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

from bytemill._core import Encoder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bytemill.data.manifest import DropoutSettings
    from bytemill.formats.encoder import AnyEncoder


class DropoutEncoder:
    """An encoder of whole documents, whose merges are left out by chance.

    What is left out depends on the seed, the epoch and the text of the document alone: not on its place, on threads or
    on interruptions. Equal documents are divided alike in one epoch.
    """

    def __init__(self, core: AnyEncoder, settings: DropoutSettings) -> None:
        """Raise TokenizerError if the tokenizer is not byte-level BPE with merges."""
        if not isinstance(core, Encoder):
            raise core.needs_core("dropout")
        self._core = core
        self._settings = settings
        self._key = settings.seed.to_bytes(8, "little") + settings.epoch.to_bytes(8, "little")
        self.dtype: Literal["uint16", "uint32"] = core.dtype
        self.encode("", "all", None)

    def encode(self, text: str, allowed_special: Any, num_threads: int | None) -> list[int]:  # noqa: ARG002
        """Return the ids of a document. Raises as `Tokenizer.encode` does."""
        digest = hashlib.blake2b(text.encode(), digest_size=8, key=self._key).digest()
        seed = int.from_bytes(digest, "little")
        return self._core.encode_with_dropout(text, allowed_special, self._settings.probability, seed)

    def encode_batch(
        self, texts: Iterable[str], allowed_special: str | Collection[str], num_threads: int | None
    ) -> Sequence[list[int]]:
        """Return the ids of each document."""
        return [self.encode(text, allowed_special, num_threads) for text in texts]
