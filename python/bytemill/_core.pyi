"""Types of the Rust module. `tests/test_core_types.py` checks them against the compiled module."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, BinaryIO, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

_TokenArray: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32]
_Allowed: TypeAlias = Literal["all", "none", "none_raise"] | Collection[str]

__version__: str
NAMED_PATTERNS: dict[str, str]
"""Name -> regular expression of the patterns with a hand-written splitter (gpt2, cl100k, o200k, llama3)."""

UNICODE_VERSION: str
"""Version of the Unicode character database behind the letter, number and white-space classes."""

def pretoken_spans(text: str, pattern: str | None) -> list[tuple[int, int]]:
    """Byte offsets (start, end) of the pre-tokens of `text`, which tile it. `pattern`: name, expression, or None."""

def named_pattern(pattern: str) -> str | None:
    """The name of the hand-written splitter that serves `pattern` (a name or an expression), else None."""

def check_pattern(pattern: str | None) -> None:
    """Raise ValueError where `pattern` is neither a known name nor an expression that compiles."""

def needed_merges(merges: Sequence[tuple[bytes, bytes]]) -> list[int]:
    """The places of the merges that some text needs: of several that make one token the one that happens.

    Raises ValueError for a merge that is there twice.
    """

def clean_text(block: bytes, is_last: bool, errors: Literal["strict", "replace", "skip"]) -> BlockDocuments:
    """A block of one long document, which is open unless the block `is_last`.

    A character that the block cuts off at its end is not consumed. With "strict", the text ends before what is not
    UTF-8.
    """

def check_documents(
    data: bytes,
    ends: NDArray[np.int64],
    missing: NDArray[np.bool_] | None,
    errors: Literal["strict", "replace", "skip"],
    leaves_out: bool,
) -> BlockDocuments:
    """Documents one after another, each checked to be UTF-8 and not `missing`. Raises ValueError for false ends."""

def select_documents(
    data: bytes, ends: NDArray[np.int64], keep: NDArray[np.bool_]
) -> tuple[bytes, NDArray[np.int64]]:
    """The documents that are to be kept: their text, and where they end in it."""

@final
class BlockDocuments:
    """The documents of a block."""

    text: bytes
    """Valid UTF-8."""
    ends: NDArray[np.int64]
    """Where each document ends in the text."""
    is_open: bool
    """True where the last document goes on in the next block."""
    consumed: int
    """Bytes of the block that are done with: the next block begins behind them."""
    n_lines: int
    """Line ends among them; where a broken document ended the work, those before it."""
    n_replaced: int
    n_skipped_bytes: int
    n_broken: int
    broken: tuple[int, int | None, str] | None
    """The broken document that ended the work: lines (packed documents: documents) of the block before it; the offset
    in the block of what is not UTF-8, else None; what is wrong, else ""."""

@final
class TextSplitter:
    """Cuts plain text into documents: lines, or what ends with a separator, which stays in the text.

    Lines come without their ends (LF or CRLF), and empty ones not at all. `leaves_out` leaves out documents that are
    not UTF-8 (with "strict"); otherwise the first one ends the work.
    """

    def __init__(
        self, separator: str | None, errors: Literal["strict", "replace", "skip"], leaves_out: bool
    ) -> None: ...
    def split(self, block: bytes, is_inside: bool, is_last: bool) -> BlockDocuments:
        """The documents of a block, which begins inside a document where `is_inside`.

        A document that the block cuts off is not consumed. Where it is the only one it is given open; with `leaves_out`
        and "strict" nothing is consumed then, and the caller comes back with a longer block.
        """

@final
class JsonLines:
    """Takes one string, which the names in `path` lead to, out of each line's JSON object."""

    def __init__(
        self, path: Sequence[str], errors: Literal["strict", "replace", "skip"], leaves_out: bool
    ) -> None: ...
    def parse(self, block: bytes, end: int) -> BlockDocuments:
        """The documents of the lines in `block[:end]`, which are whole."""

@final
class Encoder:
    """A vocabulary ready to encode and decode. Immutable; several threads may use one."""

    @staticmethod
    def from_merges(
        vocab: Mapping[int, bytes],
        merges: Sequence[tuple[bytes, bytes]],
        special_tokens: Mapping[str, int],
        pattern: str | None,
        ignore_merges: bool,
        special_rules: Mapping[str, int] | None = None,
        nfc: bool = False,
    ) -> Encoder:
        """BPE by an ordered list of merges (the rank of a merge is its place in the list).

        `vocab` holds every ordinary token and may hold the special tokens too. Raises ValueError where
        vocabulary, merges and special tokens contradict each other, naming the first contradiction.

        `special_rules` has bits for special tokens that are found by more than their text: 1 only as a single word,
        2 with white space before, 4 with white space behind, 8 only in what those without this bit leave over. `nfc`
        brings what lies between special tokens into NFC.
        """

    @staticmethod
    def from_ranks(
        ranks: Mapping[bytes, int],
        special_tokens: Mapping[str, int],
        pattern: str | None,
        special_rules: Mapping[str, int] | None = None,
        nfc: bool = False,
        drops_unmatched: bool = False,
    ) -> Encoder:
        """BPE by token ranks, as in .tiktoken files: the rank is the id and the priority.

        With `drops_unmatched`, text that the pattern does not match has no ids, as in tiktoken.
        """

    n_vocab: int
    """Highest id + 1."""
    dtype: Literal["uint16", "uint32"]
    pattern: str | None
    """The expression (never the name), None for no pre-tokenization."""
    special_tokens: dict[str, int]
    ranked: bool
    """True where the ids are priorities (a rank file) that no list of merges stands for; `merges()` is empty then."""
    nfc: bool
    """True where the text between special tokens is brought into NFC (which those of rule 8 see, and no others)."""
    ignore_merges: bool
    """True where a pre-token that is itself a token is that token even if its merges do not lead there."""

    def vocab(self) -> dict[int, bytes]:
        """Tokens by id, as given: ordinary ones, and special ones where the vocabulary listed them."""
    def sorted_tokens(self) -> list[bytes]:
        """The tokens in the order of their bytes, without those that are special and nothing else."""
    def merges(self) -> list[tuple[bytes, bytes]]: ...
    def canonical_form(self) -> bytes:
        """What decides the ids, and nothing else: two encoders with equal bytes give equal ids for every text."""
    def token_bytes(self, token_id: int) -> bytes:
        """Raises KeyError for an id that no token has."""
    def bytes_to_id(self, token: bytes) -> int | None: ...
    def merge_steps(self, pretoken: bytes) -> list[tuple[int, int, int, int]]:
        """Merges of one pre-token in the order they happen: (rank, left id, right id, index of the left part)."""
    def segments(self, text: str, allowed_special: _Allowed) -> list[tuple[str, int | None]]:
        """The special tokens in a text, with their ids, and the text between them as it is split."""
    def merge_of(self, token_id: int) -> tuple[int, int, int] | None:
        """(rank, left id, right id) of the merge that makes the token, None where none does.

        Where `ranked`, the rank counts the tokens of more than one byte, and the parts are those that the token's own
        bytes are in before the last merge.
        """
    def encode(self, text: str, allowed_special: _Allowed, num_threads: int | None) -> list[int]: ...
    def encode_with_unstable(self, text: str, allowed_special: _Allowed) -> tuple[list[int], list[list[int]]]:
        """The ids that more text cannot change, and what may follow them: see `Tokenizer.encode_with_unstable`."""
    def encode_bytes(self, data: bytes) -> list[int]:
        """Ids of arbitrary bytes without special tokens; what is not UTF-8 forms pre-tokens of its own."""
    def encode_batch(
        self, texts: Iterable[str], allowed_special: _Allowed, num_threads: int | None
    ) -> list[list[int]]:
        """Raises TypeError naming the index of an item that is no str."""
    def encode_to_numpy(
        self, text: str, allowed_special: _Allowed, num_threads: int | None
    ) -> _TokenArray: ...
    def encode_batch_to_numpy(
        self, texts: Iterable[str], allowed_special: _Allowed, num_threads: int | None
    ) -> tuple[_TokenArray, NDArray[np.int64]]:
        """The ids of all texts, and n + 1 offsets: where those of each text begin, and where the last end."""
    def encode_files(
        self, paths: Iterable[str | PathLike[str]], allowed_special: _Allowed, num_threads: int | None
    ) -> list[_TokenArray]:
        """Raises OSError, UnicodeDecodeError and `SpecialTokenError`, which name the file and the byte in it."""
    def encode_with_spans(
        self, text: str, allowed_special: _Allowed, num_threads: int | None
    ) -> tuple[_TokenArray, NDArray[np.int64]]:
        """The ids, and a row for each with start and end of its bytes in the UTF-8 of the text.

        Raises ValueError where the tokenizer does not encode the text as it is.
        """
    def count(self, text: str, allowed_special: _Allowed) -> int: ...
    def encode_iterable(self, pieces: Iterable[str], allowed_special: _Allowed) -> Iterator[int]: ...
    def stream(
        self,
        allowed_special: _Allowed,
        errors: Literal["strict", "replace"],
        num_threads: int | None,
    ) -> StreamEncoder: ...
    def decode(self, ids: Sequence[int] | NDArray[Any], errors: str) -> str:
        """As `decode_bytes(ids).decode("utf-8", errors)`."""
    def decode_bytes(self, ids: Sequence[int] | NDArray[Any]) -> bytes:
        """Raises KeyError naming the first id that no token has."""
    def decode_batch(self, batch: Iterable[Sequence[int] | NDArray[Any]], errors: str) -> list[str]: ...

@final
class DocumentEncoder:
    """Encodes packed documents, batch after batch, each document to the ids of its text alone."""

    def __init__(
        self,
        encoder: Encoder,
        allowed_special: _Allowed,
        num_threads: int | None,
        prefix: Sequence[int],
        suffix: int | None = None,
        stripped: int | None = None,
        split: tuple[int, int] | None = None,
    ) -> None:
        """Every document with ids begins with `prefix`, does not end with `stripped`, and ends with `suffix`; what
        stands there already is not added. `split` is (seed, limit): documents whose first MiB has an XXH3 below the
        limit fall on side 1.
        """
    def encode(
        self, batches: Sequence[tuple[bytes | memoryview, NDArray[np.int64], bool]]
    ) -> list[tuple[list[_TokenArray], NDArray[np.uint64], list[int], int]]:
        """What batches (data, ends of documents, is_open) give on side 0 and 1: ids in pieces, where documents with ids
        end among them, bytes of text by batches, number of documents without ids.
        """
    def carry(self) -> tuple[str, int, int | None, list[int], int | None] | None:
        """What is left of a document that is open: text, bytes before it, side, ids held back, last id given."""
    def go_on(self, carry: tuple[str, int, int | None, list[int], int | None] | None) -> None:
        """Go on where another encoder of the same options had this `carry`."""

@final
class RankFile:
    """The tokens of a rank file."""

    @staticmethod
    def read(data: bytes) -> RankFile | None:
        """The tokens in a file's content; None for what is damaged or not quite as such files are written."""

    n_ranks: int
    def token(self, rank: int) -> bytes | None:
        """The token of a rank."""

    def encoder(self, special_tokens: Mapping[str, int], pattern: str | None) -> Encoder:
        """As `Encoder.from_ranks`. The tokens go into the encoder: raises ValueError for a second one."""

@final
class TokenizerJson:
    """The vocabulary and the merges of a tokenizer.json."""

    @staticmethod
    def read(data: bytes) -> tuple[TokenizerJson, str] | None:
        """Both in a file's content, and the rest of it as JSON, with an empty `model.vocab` and `model.merges`.

        None for what is damaged or not quite as such files are written.
        """

    n_entries: int
    """How many entries the vocabulary has."""
    n_merges: int
    def id_of(self, spelling: str) -> int | None:
        """The id of an entry of the vocabulary."""

    def encoder(
        self,
        special_tokens: Mapping[str, int],
        pattern: str | None,
        ignore_merges: bool,
        special_rules: Mapping[str, int] | None = None,
        nfc: bool = False,
    ) -> Encoder | None:
        """The encoder of this file, in which special tokens are ordinary ones only where merges make them.

        None where file and special tokens contradict each other. The tokens go into the encoder: raises ValueError
        for a second one.
        """

@final
class StreamEncoder:
    """Encodes one document that arrives in pieces, in constant memory, to what `encode` gives for the whole."""

    def feed(self, data: str | bytes | bytearray | memoryview) -> _TokenArray:
        """Takes the next piece and gives the ids that are certain by now (possibly none).

        Bytes may be cut inside a character. Raises UnicodeDecodeError (with `errors="strict"`), whose
        `start` counts from the beginning of the stream.
        """
    def finish(self) -> _TokenArray:
        """The remaining ids; afterwards the stream is ready for the next document."""
    n_bytes: int
    """Bytes taken since construction."""
    n_replaced: int
    """Malformed sequences replaced by U+FFFD since construction."""

def read_counts_header(path: str) -> str:
    """The header of a file of counts. Raises OSError, `TokenizerError` where it is none, or of another version."""

@final
class PretokenCounter:
    """Counts the pre-tokens of a corpus in parallel."""

    def __init__(
        self,
        pattern: str | None,
        special_tokens: Sequence[str],
        num_threads: int | None,
        chunk_bytes: int | None,
        table_bytes: int | None = None,
    ) -> None:
        """`table_bytes` bounds the tables of all threads once a folder is set."""
    def set_folder(self, folder: str) -> None:
        """Write full tables to this folder from now on."""
    def set_weight(self, weight: int) -> None:
        """Count each pre-token `weight` times from now on."""
    def add_file(
        self,
        path: str,
        errors: Literal["strict", "replace"],
        progress: Callable[[int], None] | None,
        start: int = 0,
        seconds: float | None = None,
    ) -> tuple[int, bool]:
        """Count one file as a document.

        Args:
            path: The file.
            errors: Handling of malformed UTF-8.
            progress: Called with the bytes read of this file, about ten times a second.
            start: Byte offset to start at.
            seconds: Stop after this time, where the text can be cut (not with "replace").

        Returns:
            The offset at which a later call can start, and whether it is the end of the file.

        Raises:
            OSError: The file cannot be read.
            UnicodeDecodeError: Malformed UTF-8; `start` is the byte offset in the file.
        """
    def add_stream(
        self,
        stream: BinaryIO,
        errors: Literal["strict", "replace"],
        progress: Callable[[int], None] | None,
    ) -> None:
        """Count a binary stream as a document; see `add_file`."""
    def add_texts(self, texts: Sequence[str]) -> None:
        """Count texts, each a document."""
    def add_documents(self, data: bytes | memoryview, ends: NDArray[np.int64], is_open: bool) -> None:
        """Count packed documents; if `is_open`, the last one continues in the next call.

        Raises:
            TokenizerError: The ends do not fit the data.
            UnicodeDecodeError: The data is not UTF-8.
        """
    def add_counts(self, path: str, weight: int) -> None:
        """Add the counts of a file, `weight` times. Raises OSError, or `TokenizerError` if it is damaged."""
    def checkpoint(self) -> str:
        """Write all counts to the folder and return the state for `resume`, as JSON. Raises `OutputError`."""
    def resume(self, state: str, folder: str) -> None:
        """Restore a checkpoint in a new counter with the same pattern and special tokens.

        Raises `TokenizerError` or OSError if the files are missing or damaged.
        """
    def finish(self, denominator: int = 1, may_stay: bool = False) -> PretokenCounts:
        """Wait for the threads and return the counts; the counter is unusable afterwards.

        Args:
            denominator: Weights are multiples of 1 / denominator.
            may_stay: Leave counts that were written to disk there, merged.
        """

@final
class PretokenCounts:
    n_bytes: int
    n_pretokens: int
    n_unique: int
    n_unique_bytes: int
    n_special: int
    special_counts: list[int]
    """Occurrences of each special token, in the order of the constructor."""
    n_replaced: int
    read_seconds: float
    """Time the reading thread spent in read(2) and in checking UTF-8; it overlaps with counting."""
    memory_bytes: int
    is_on_disk: bool
    spilled: tuple[int, int, float]
    """Bytes written to disk, tables written, and seconds of the threads that did."""
    @staticmethod
    def from_items(items: Iterable[tuple[bytes, int]]) -> PretokenCounts: ...
    @staticmethod
    def load(path: str) -> PretokenCounts:
        """Load a file of counts. Raises OSError, or `TokenizerError` if it is damaged."""
    def save(self, path: str, header: str) -> None:
        """Write a file of counts. Raises `OutputError`."""
    def copy(self) -> PretokenCounts:
        """Return a copy. Raises ValueError for counts on disk."""
    def drop_below(self, least: int) -> tuple[int, int]:
        """Drop rarer pre-tokens; return their number and their occurrences."""
    def items(self) -> list[tuple[bytes, int]]: ...
    def learn_merges(
        self,
        n_merges: int,
        ties: Literal["bytes", "huggingface"],
        min_frequency: int,
        num_threads: int | None,
        progress: Callable[[int], None] | None,
        *,
        max_bytes: int | None = None,
        consume: bool = False,
    ) -> tuple[list[tuple[bytes, bytes]], list[int]]:
        """Up to `n_merges` merges in order, and the count of each pair when it was merged.

        With `consume` the counts are freed on the way, and learning takes no more than `max_bytes`, theirs among them.

        Fewer where no pair is left with at least `min_frequency` occurrences. Raises KeyboardInterrupt.
        """
