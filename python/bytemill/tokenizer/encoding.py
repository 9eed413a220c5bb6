"""Encoding methods of a tokenizer: text to ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.tokenizer.explanation import Explanations, explain
from bytemill.tokenizer.offsets import EncodedText, encode_with_offsets
from bytemill.tokenizer.special_options import recognized_tokens
from bytemill.tokenizer.unstable import encode_with_unstable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

    from bytemill._core import Encoder
    from bytemill.tokenizer.types import AllowedSpecial, DisallowedSpecial, TokenArray


class EncodingMethods:
    """Methods of `Tokenizer` that take text.

    `allowed_special` controls special tokens in a text: `"all"` (the default) recognizes them, `"none"` treats them as
    text, `"none_raise"` raises `SpecialTokenError`, and a set recognizes its members only. Of overlapping special
    tokens the leftmost is recognized, and of those that start together the longest. Use `encode_ordinary` for
    untrusted text: it never recognizes special tokens.

    `disallowed_special` has tiktoken's meaning: a text that contains one of these strings (`"all"`: a special token
    that is not allowed) raises `SpecialTokenError`. If it is set, `allowed_special` defaults to no tokens, as in
    tiktoken. `bytemill.compat.tiktoken` has tiktoken's other defaults too.

    A lone surrogate in a `str` is encoded as U+FFFD; surrogate pairs are joined. Methods with `num_threads` use all
    available cores by default, and their result does not depend on it.
    """

    core: Encoder
    special_tokens: dict[str, int]

    def _recognized(
        self, texts: Iterable[str], allowed: AllowedSpecial | None, disallowed: DisallowedSpecial | None
    ) -> AllowedSpecial:
        if disallowed is None:
            return "all" if allowed is None else allowed
        return recognized_tokens(texts, self.special_tokens, allowed, disallowed)

    def encode(
        self,
        text: str,
        *,
        allowed_special: AllowedSpecial | None = None,
        disallowed_special: DisallowedSpecial | None = None,
        num_threads: int | None = None,
    ) -> list[int]:
        """Return the ids of `text`. Long texts are encoded on `num_threads` threads."""
        recognized = self._recognized([text], allowed_special, disallowed_special)
        return self.core.encode(text, recognized, num_threads)

    def encode_ordinary(self, text: str, *, num_threads: int | None = None) -> list[int]:
        """Return the ids of `text` with special tokens treated as text."""
        return self.core.encode(text, "none", num_threads)

    def encode_batch(
        self,
        texts: Iterable[str],
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial | None = None,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> list[list[int]]:
        """Return the ids of each text. The whole iterable is read before encoding starts.

        Raises:
            TypeError: An item is not a `str`; the message has its index.
        """
        if disallowed_special is not None:
            texts = list(texts)
        recognized = self._recognized(texts, allowed_special, disallowed_special)
        return self.core.encode_batch(texts, recognized, num_threads)

    def encode_ordinary_batch(
        self, texts: Iterable[str], *, num_threads: int | None = None
    ) -> list[list[int]]:
        """Return the ids of each text with special tokens treated as text."""
        return self.core.encode_batch(texts, "none", num_threads)

    def encode_to_numpy(
        self,
        text: str,
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial | None = None,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> TokenArray:
        """Return the ids of `text` as a 1-D array: uint16 if every id of the vocabulary fits, else uint32."""
        recognized = self._recognized([text], allowed_special, disallowed_special)
        return self.core.encode_to_numpy(text, recognized, num_threads)

    def encode_batch_to_numpy(
        self,
        texts: Iterable[str],
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial | None = None,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> tuple[TokenArray, NDArray[np.int64]]:
        """Return the ids of n texts in one array, and n + 1 offsets (int64), as in Arrow's lists.

        The ids of text k are `ids[offsets[k] : offsets[k + 1]]`; `np.split(ids, offsets[1:-1])` returns one array per
        text. The whole iterable is read before encoding starts.

        Raises:
            TypeError: An item is not a `str`; the message has its index.

        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> ids, offsets = tok.encode_batch_to_numpy(["the", "", "a th"])
        >>> ids.tolist(), offsets.tolist()
        ([256, 101, 97, 32, 256], [0, 2, 2, 5])
        """
        if disallowed_special is not None:
            texts = list(texts)
        recognized = self._recognized(texts, allowed_special, disallowed_special)
        return self.core.encode_batch_to_numpy(texts, recognized, num_threads)

    def encode_files(
        self,
        paths: Iterable[str | PathLike[str]],
        *,
        num_threads: int | None = None,
        allowed_special: AllowedSpecial = "all",
    ) -> list[TokenArray]:
        """Return the ids of each file: one array per path, in the order of `paths`.

        Each file is one UTF-8 text with the ids of `encode_to_numpy(path.read_bytes().decode())`. Line ends and a
        byte-order mark are kept. Files are read in chunks, so no file is in memory as a whole.

        Args:
            paths: Files to encode.
            num_threads: Threads for all files together.
            allowed_special: Special tokens to recognize.

        Raises:
            OSError: A file cannot be read. A missing file, a folder or a pipe raises before encoding starts.
            UnicodeDecodeError: A file is not UTF-8; `start` is the offset in the file.
            SpecialTokenError: A file contains a special token and `allowed_special` is `"none_raise"`.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = [Path(folder, "a.txt"), Path(folder, "b.txt")]
        ...     n_bytes = [path.write_bytes(text) for path, text in zip(paths, [b"the", b""])]
        ...     [ids.tolist() for ids in tok.encode_files(paths)]
        [[256, 101], []]
        """
        return self.core.encode_files(paths, allowed_special, num_threads)

    def encode_with_unstable(
        self,
        text: str,
        *,
        allowed_special: AllowedSpecial | None = None,
        disallowed_special: DisallowedSpecial | None = None,
    ) -> tuple[list[int], list[list[int]]]:
        """Return the ids that further text cannot change, and the possible continuations, as in tiktoken.

        Each continuation is a shortest list of ids that completes `text`: its last token starts inside the text and may
        extend beyond it. Continuations are sorted. There are none after a special token.

        Raises:
            TokenizerError: The last pre-token is so long (thousands of bytes) that this would take minutes.

        >>> from bytemill import Tokenizer
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"th", 257: b"the"}
        >>> Tokenizer(vocab, [(b"t", b"h"), (b"th", b"e")]).encode_with_unstable("a th")
        ([97], [[32, 256], [32, 257]])
        """
        recognized = self._recognized([text], allowed_special, disallowed_special)
        return encode_with_unstable(self.core, text, recognized)

    def encode_with_offsets(
        self, text: str, *, allowed_special: AllowedSpecial = "all", num_threads: int | None = None
    ) -> EncodedText:
        """Return the ids of `text` with the byte and character offsets of each token.

        Byte offsets refer to the UTF-8 of the text; each token starts where the previous one ends. Character offsets
        refer to `text`; a token that starts or ends inside a character covers the whole character, so tokens that share
        a character overlap. A lone surrogate counts as one character and three bytes (U+FFFD), a surrogate pair as two
        characters and four bytes. White space absorbed by a special token belongs to that token. Where a normalizer
        changes the text, offsets are those of Hugging Face's library: see `EncodedText`.

        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> encoded = tok.encode_with_offsets("né!")
        >>> encoded.tokens
        [b'n', b'\xc3', b'\xa9', b'!']
        >>> encoded.byte_offsets.tolist()
        [[0, 1], [1, 2], [2, 3], [3, 4]]
        >>> encoded.char_offsets.tolist()
        [[0, 1], [1, 2], [1, 2], [2, 3]]
        """
        return encode_with_offsets(self.core, text, allowed_special, num_threads)

    def encode_iterable(
        self, iterable: Iterable[str], *, allowed_special: AllowedSpecial = "all"
    ) -> Iterator[int]:
        """Yield the ids of `"".join(iterable)` lazily, in constant memory.

        Chunks are read a few kilobytes ahead. Memory grows only while the text cannot be split: inside one long
        pre-token, and with a regular expression as pattern up to the next special token. A surrogate pair split between
        two chunks becomes two U+FFFD.

        Raises:
            TypeError: A chunk is not a `str`; the message has its index.
        """
        return self.core.encode_iterable(iterable, allowed_special)

    def count(self, text: str, *, allowed_special: AllowedSpecial = "all") -> int:
        """Return the number of ids of `text`."""
        return self.core.count(text, allowed_special)

    def explain(self, text: str, *, allowed_special: AllowedSpecial = "all") -> Explanations:
        """Return the special tokens and pre-tokens of `text`, each with its merges in order.

        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
        >>> for part in tok.explain("the the"):
        ...     print(part)
        'the' -> 'th' 'e' (256 101): t+h
        ' the' -> ' ' 'th' 'e' (32 256 101): t+h
        """
        return explain(self.core, text, allowed_special)
