"""Comparison of a tokenizer file with the library that it was made for, or with another file.

The ids, the offsets and the decoded text are compared on the caller's texts, on strings of every block of 128 code
points, on strings of the file's own tokens, and on white space and other edge cases. A string that differs is reduced
to a shortest part that differs still.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from bytemill.errors import BytemillError, MissingExtraError, TokenizerError
from bytemill.formats import sentencepiece, tekken
from bytemill.formats.files import read_bytes
from bytemill.formats.registry import Content, find
from bytemill.system.extras import install_hint
from bytemill.tokenizer.conversion import SAMPLE
from bytemill.tokenizer.tokenizer import Tokenizer, open_tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

Kind = Literal["ids", "offsets", "text"]
LIBRARIES = ("tokenizers", "sentencepiece", "tiktoken")
_BLOCK = 128
_N_BLOCKS = 0x110000 // _BLOCK
_EDGES = (
    "| |  |   a|a   |\n|\n\n|\r\n|\t| \n |a\n b|\xa0|\u2028|\u3000|\x85|\ufeff|\ufeffa|\x00|a\x00b|"
    "\x1f|\x7f|\ufffd|\u200b|\u200d|\xad|\U0010ffff|\ufffe|e\u0301|\u0301|ﬁ|Å|ß|İ|ı|ǆ|Σς|한|"
    "\u1112\u1161\u11ab|가\u11a8|か\u3099|①|½|Ⅷ|ﷺ|<0x0A>|<0x00>|\u2581|\u2581a|a\u2581b|Ġ|Ġa|Ċ|##a|"
    "</w>|don't|DON'T|1234567|٣٤"
)
"""White space and characters that tokenizers treat differently, separated by `|`."""
_OTHERS = " |  |\n|\t|\r\n|0|17|2024|.|...|'s|'LL|_|-|/|://|é"
"""What stands between random tokens, separated by `|`."""


class Peer(Protocol):
    """Another implementation of a tokenizer."""

    name: str

    def encode(self, text: str, *, special: bool) -> list[int] | None:
        """Return the ids; None if it has no such mode."""
        ...

    def offsets(self, text: str) -> list[tuple[int, int]] | None:
        """Return the characters that each token covers, special tokens recognized; None if it has no offsets."""
        ...

    def decode(self, ids: list[int]) -> str | None:
        """Return the text of ids; None if it has no text for one of them."""
        ...


@dataclass(frozen=True)
class Difference:
    """A text for which two implementations differ; none of its parts that were tried differs."""

    kind: Kind
    special: bool
    """Whether special tokens are recognized in the text."""
    text: str
    own: Any
    other: Any


@dataclass(frozen=True)
class Verification:
    """The result of comparing a tokenizer with another implementation."""

    engine: str
    peer: str
    n_texts: int
    n_bytes: int
    differences: list[Difference]
    """At most one for each kind and mode."""
    own_rate: float
    """Megabytes per second on one thread, text by text."""
    other_rate: float

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "engine": self.engine,
            "against": self.peer,
            "n_texts": self.n_texts,
            "n_bytes": self.n_bytes,
            "differences": [vars(each) for each in self.differences],
            "megabytes_per_second": {"bytemill": self.own_rate, "other": self.other_rate},
        }


def verify_tokenizer(
    path: str | os.PathLike[str],
    texts: Sequence[str] = (),
    *,
    against: str = "auto",
    n_random: int = 3000,
    blocks: Iterable[int] = range(_N_BLOCKS),
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Compare a tokenizer with the library that its file was made for.

    Args:
        path: A file, a folder, or a name, as in `open_tokenizer`.
        texts: Texts to compare besides those that are made.
        against: `"tokenizers"`, `"sentencepiece"`, `"tiktoken"`, the path or name of another tokenizer, or `"auto"` for
            the library of the file's format.
        n_random: Number of strings made of the tokenizer's tokens.
        blocks: Numbers of the blocks of 128 code points of which a string is made.
        seed: Seed of the random strings.
        progress: Called with the number of texts compared and their total number.

    Raises:
        TokenizerError: The library does not read the file.
        MissingExtraError: The library is not installed.
    """
    tokenizer = open_tokenizer(path)
    peer = open_peer(path, tokenizer, against)
    all_texts = [*texts, *_made_texts(tokenizer, n_random, blocks, seed)]
    found: dict[tuple[Kind, bool], Difference] = {}
    for index, text in enumerate(all_texts):
        for kind, special in _MODES:
            if (kind, special) in found:
                continue
            if _differs(tokenizer, peer, kind, text, special=special) is not None:
                found[kind, special] = _shrunk(tokenizer, peer, kind, text, special=special)
        if progress and index % 64 == 0:
            progress(index, len(all_texts))
    timed = list(texts) or all_texts
    return Verification(
        engine=tokenizer.engine,
        peer=peer.name,
        n_texts=len(all_texts),
        n_bytes=sum(len(text.encode(errors="surrogatepass")) for text in all_texts),
        differences=list(found.values()),
        own_rate=_rate(lambda text: tokenizer.encode(text, num_threads=1), timed),
        other_rate=_rate(lambda text: peer.encode(text, special=False), timed),
    )


_MODES: tuple[tuple[Kind, bool], ...] = (("ids", True), ("ids", False), ("offsets", True), ("text", True))


def _differs(
    tokenizer: Tokenizer, peer: Peer, kind: Kind, text: str, *, special: bool
) -> tuple[Any, Any] | None:
    """Return what both give, if it differs."""
    ids = tokenizer.encode(text, allowed_special="all" if special else "none")
    if kind == "ids":
        own, other = ids, peer.encode(text, special=special)
    elif kind == "offsets":
        own = [tuple(pair) for pair in tokenizer.encode_with_offsets(text).char_offsets.tolist()]
        other = peer.offsets(text)
    else:
        own, other = tokenizer.decode(ids), peer.decode(ids)
    return None if other is None or own == other else (own, other)


def _shrunk(tokenizer: Tokenizer, peer: Peer, kind: Kind, text: str, *, special: bool) -> Difference:
    """Remove parts of the text, long ones first, as long as the rest differs."""

    def differs(part: str) -> bool:
        return _differs(tokenizer, peer, kind, part, special=special) is not None

    size = len(text)
    while size:
        at = 0
        while at < len(text):
            part = text[:at] + text[at + size :]
            if differs(part):
                text = part
            else:
                at += size
        size //= 2
    values = _differs(tokenizer, peer, kind, text, special=special)
    own, other = values or ((), ())
    return Difference(kind, special, text, own, other)


def _rate(encode: Callable[[str], object], texts: Sequence[str]) -> float:
    """Return megabytes per second, measured for half a second at least."""
    n_bytes, start = 0, time.perf_counter()
    while True:
        for text in texts:
            encode(text)
            n_bytes += len(text)
        if (seconds := time.perf_counter() - start) > 0.5:
            return n_bytes / seconds / 1e6


# Texts


def _made_texts(tokenizer: Tokenizer, n_random: int, blocks: Iterable[int], seed: int) -> Iterator[str]:
    yield SAMPLE
    yield from _EDGES.split("|")
    rng = random.Random(seed)  # noqa: S311
    yield from _of_added_tokens(tokenizer)
    for start in (_BLOCK * block for block in blocks):
        if not 0xD800 <= start < 0xE000:
            yield _words([chr(start + i) for i in range(_BLOCK)], rng)
    yield from _of_tokens(tokenizer, n_random, rng)


def _words(characters: Sequence[str], rng: random.Random) -> str:
    return " ".join("".join(rng.choices(characters, k=rng.randint(1, 6))) for _ in range(5))


def _of_added_tokens(tokenizer: Tokenizer, most: int = 200) -> Iterator[str]:
    for token in list(tokenizer.special_tokens)[:most]:
        yield from (
            token,
            f"a{token}b",
            f" {token} ",
            f"x {token}\n\ny",
            token + token,
            token[:-1],
            token.upper(),
        )
        yield from (f"1{token}2", f"_{token}", f"é{token}é", f"\u3000{token}\u3000")


def _of_tokens(tokenizer: Tokenizer, n: int, rng: random.Random) -> Iterator[str]:
    """Yield strings of random tokens, characters, numbers and white space."""
    tokens = [token.decode(errors="ignore") for token in tokenizer.vocab.values()]
    tokens = [token for token in tokens if token]
    added, others = list(tokenizer.special_tokens) or [" "], _OTHERS.split("|")
    for _ in range(n):
        parts: list[str] = []
        for _ in range(rng.randint(1, 24)):
            draw = rng.random()
            if draw < 0.6:
                parts.append(rng.choice(tokens))
            elif draw < 0.9:
                parts.append(rng.choice(others))
            elif draw < 0.95:
                parts.append(rng.choice(added))
            else:
                code = rng.randrange(0x110000 - 0x800)
                parts.append(chr(code if code < 0xD800 else code + 0x800))
        yield "".join(parts)


# Peers


def open_peer(path: str | os.PathLike[str], tokenizer: Tokenizer, against: str) -> Peer:
    """Open the other implementation. Arguments and errors are those of `verify_tokenizer`."""
    if against not in (*LIBRARIES, "auto"):
        return _Bytemill(open_tokenizer(against), against)
    found = find(path) if Path(path).exists() else None
    library = _library_of(found) if against == "auto" else against
    if library is None:
        raise TokenizerError(
            f"no library is known that reads {path}",
            hint="compare it with another file: --against FILE (against=)",
        )
    if library != "tiktoken" and not isinstance(found, Path):
        raise TokenizerError(f"{path} is not one file, which {library} needs")
    try:
        if library == "tiktoken":
            return _Tiktoken(tokenizer)
        return (_Tokenizers if library == "tokenizers" else _SentencePiece)(read_bytes(cast("Path", found)))
    except ImportError as error:
        raise MissingExtraError(str(error), hint=install_hint("any")) from error
    except BytemillError:
        raise
    except Exception as error:  # the libraries have no class of their own
        raise TokenizerError(f"{library} does not read {path}: {error}") from error


def _library_of(found: Path | tuple[Path, Path] | None) -> str | None:
    if not isinstance(found, Path):
        return None if found else "tiktoken"
    data = read_bytes(found)
    if data[:4096].lstrip().startswith(b"{"):
        # mistral-common encodes with tiktoken.
        return "tiktoken" if tekken.recognize(Content(data, str(found))) else "tokenizers"
    if sentencepiece.looks_like_model(data):
        return "sentencepiece"
    return None if data.startswith((b"GGUF", b"minbpe")) else "tiktoken"


class _Tokenizers:
    def __init__(self, data: bytes) -> None:
        import tokenizers

        self.name = f"tokenizers {tokenizers.__version__}"
        self._with_special: Any = tokenizers.Tokenizer.from_buffer(data)
        self._without: Any = tokenizers.Tokenizer.from_buffer(data)
        for each in (self._with_special, self._without):
            each.no_truncation()
            each.no_padding()
            # It may trim white space from the offsets of tokens.
            each.post_processor = None
            if getattr(each.model, "dropout", None) is not None:
                each.model.dropout = None
        self._without.encode_special_tokens = True

    def encode(self, text: str, *, special: bool) -> list[int]:
        return (self._with_special if special else self._without).encode(text, add_special_tokens=False).ids

    def offsets(self, text: str) -> list[tuple[int, int]]:
        found = self._with_special.encode(text, add_special_tokens=False).offsets
        # It may count a token beyond the end of a normalized text.
        return [(min(start, len(text)), min(end, len(text))) for start, end in found]

    def decode(self, ids: list[int]) -> str:
        return self._with_special.decode(ids, skip_special_tokens=False)


class _SentencePiece:
    def __init__(self, data: bytes) -> None:
        import sentencepiece as library

        self.name = f"sentencepiece {library.__version__}"
        self._processor: Any = library.SentencePieceProcessor(model_proto=data)

    def encode(self, text: str, *, special: bool) -> list[int] | None:
        # The library recognizes no control symbols.
        return None if special else self._processor.encode(text)

    def offsets(self, text: str) -> None:  # noqa: ARG002
        return None

    def decode(self, ids: list[int]) -> str | None:
        # It leaves out control symbols and shows unknown characters as a sign of its own.
        has_others = any(self._processor.is_control(i) or self._processor.is_unknown(i) for i in ids)
        return None if has_others else self._processor.decode(ids)


class _Tiktoken:
    def __init__(self, tokenizer: Tokenizer) -> None:
        import tiktoken

        self.name = f"tiktoken {tiktoken.__version__}"
        self._encoding = tokenizer.to_tiktoken()

    def encode(self, text: str, *, special: bool) -> list[int]:
        if special:
            return self._encoding.encode(text, allowed_special="all")
        return self._encoding.encode_ordinary(text)

    def offsets(self, text: str) -> None:  # noqa: ARG002
        return None

    def decode(self, ids: list[int]) -> str:
        return self._encoding.decode(ids)


class _Bytemill:
    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer

    def encode(self, text: str, *, special: bool) -> list[int]:
        return self._tokenizer.encode(text, allowed_special="all" if special else "none")

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [tuple(pair) for pair in self._tokenizer.encode_with_offsets(text).char_offsets.tolist()]

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids)
