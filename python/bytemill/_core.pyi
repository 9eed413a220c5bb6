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
"""Name -> regular expression of the known patterns, which have a hand-written splitter."""

N_COUNT_PARTITIONS: int
"""Number of partitions that counts on disk have."""

UNICODE_VERSION: str
"""Version of the Unicode character database behind the letter, number and white-space classes."""

def safe_cut(pattern: str | None, special_tokens: Sequence[str], window: str) -> int | None:
    """Return an offset in UTF-8 at which a text that contains `window` can be cut without changing its pre-tokens."""

def instruction_sets() -> list[str]:
    """Return the instruction sets that this processor has and the core uses, the fastest first."""

def pretoken_spans(text: str, pattern: str | None) -> list[tuple[int, int]]:
    """Return the byte offsets (start, end) of the pre-tokens of `text`. `pattern`: name, expression, or None."""

def named_pattern(pattern: str) -> str | None:
    """Return the name of the known pattern that `pattern` (a name or an expression) is equivalent to, or None."""

def check_pattern(pattern: str | None) -> None:
    """Raise ValueError if `pattern` is neither a known name nor an expression that compiles."""

def matcher(pattern: str | None) -> Literal["masks", "automaton", "backtracking"]:
    """Return what matches a name or an expression, the fastest first. Raises ValueError."""

def needed_merges(merges: Sequence[tuple[bytes, bytes]]) -> list[int]:
    """Return the indices of the merges that can happen: at most one per token.

    Raises ValueError for a merge that appears twice.
    """

def piece_merges(
    vocab: Mapping[int, bytes], scores: Mapping[int, float]
) -> tuple[list[tuple[bytes, bytes]], list[int] | None]:
    """Return every way to split every token with a score into two, best scores first, and the ranks of these merges.

    The ranks are None if no two are equal. A single character may be a part without being a token.
    """

def read_pieces(data: bytes) -> tuple[list[str], list[float], list[int], bytes] | None:
    """Return texts, scores and types of the pieces of a SentencePiece model, and its other fields.

    None for a file that is damaged or unusual.
    """

def clean_text(block: bytes, is_last: bool, errors: Literal["strict", "replace", "skip"]) -> BlockDocuments:
    """Check a block of one long document, which stays open unless the block `is_last`.

    A character that is incomplete at the end of the block is not consumed. With "strict", the text ends before the
    first invalid UTF-8.
    """

def check_documents(
    data: bytes,
    ends: NDArray[np.int64],
    missing: NDArray[np.bool_] | None,
    errors: Literal["strict", "replace", "skip"],
    leaves_out: bool,
) -> BlockDocuments:
    """Check packed documents: each must be UTF-8 and not `missing`. Raises ValueError for invalid `ends`."""

def select_documents(
    data: bytes, ends: NDArray[np.int64], keep: NDArray[np.bool_]
) -> tuple[bytes, NDArray[np.int64]]:
    """Return the text of the documents to keep, and the offset at which each ends."""

@final
class BlockDocuments:
    """The documents of a block."""

    text: bytes
    """Valid UTF-8."""
    ends: NDArray[np.int64]
    """Offset in the text at which each document ends."""
    is_open: bool
    """Whether the last document continues in the next block."""
    consumed: int
    """Bytes of the block that were processed; the next block begins after them."""
    n_lines: int
    """Line ends among them; if an invalid document ended processing, those before it."""
    n_replaced: int
    n_skipped_bytes: int
    n_broken: int
    broken: tuple[int, int | None, str] | None
    """The invalid document that ended processing: number of lines (packed documents: documents) of the block before it;
    offset of invalid UTF-8 in the block, or None; what is wrong, or ""."""

@final
class TextSplitter:
    """Splits plain text into documents: lines, or text that ends with a separator, which stays in the text.

    Lines lose their ends (LF or CRLF); empty lines are skipped. With "strict", `leaves_out` skips documents that are
    not UTF-8; otherwise the first one ends processing.
    """

    def __init__(
        self, separator: str | None, errors: Literal["strict", "replace", "skip"], leaves_out: bool
    ) -> None: ...
    def split(self, block: bytes, is_inside: bool, is_last: bool) -> BlockDocuments:
        """Return the documents of a block, which begins inside a document if `is_inside`.

        An incomplete document is not consumed. If it is the only one, it is returned open; with `leaves_out` and
        "strict" nothing is consumed instead, and the caller retries with a longer block.
        """

@final
class JsonLines:
    """Extracts one string, at the path of names `path`, from each line's JSON object."""

    def __init__(
        self, path: Sequence[str], errors: Literal["strict", "replace", "skip"], leaves_out: bool
    ) -> None: ...
    def parse(self, block: bytes, end: int) -> BlockDocuments:
        """Return the documents of the complete lines in `block[:end]`."""

@final
class Encoder:
    """A vocabulary with the tables for encoding and decoding. Immutable and thread-safe."""

    @staticmethod
    def from_merges(
        vocab: Mapping[int, bytes],
        merges: Sequence[tuple[bytes, bytes]],
        special_tokens: Mapping[str, int],
        pattern: str | None,
        ignore_merges: bool,
        special_rules: Mapping[str, int] | None = None,
        normalizer: Sequence[tuple[str, ...]] = ...,
        in_any_order: bool = False,
        shape: tuple[bool, bool, str | None, bool, bool] = ...,
    ) -> Encoder:
        """Create an encoder from an ordered list of merges.

        Args:
            vocab: Every ordinary token by id; may also contain the special tokens.
            merges: Pairs of tokens in rank order.
            special_tokens: Special tokens and their ids.
            pattern: Name, expression, or None.
            ignore_merges: Encode a pre-token that is a token as that token, whatever the merges.
            special_rules: Bit masks for special tokens: 1 matches only a single word, 2 absorbs white space before, 4
                absorbs white space after, 8 matches only in text that tokens without this bit leave over, 16 is not
                normalized itself, 32 is recognized whatever is allowed.
            normalizer: Steps that change the text between special tokens, each a name and its arguments (see
                `bytemill.formats.spec.NormalizerSteps`).
            in_any_order: Accept merges before those of their parts, if each of them happens in some text.
            shape: How pre-tokens change before they are merged: see `bytemill.formats.spec.PretokenShape`.

        Raises:
            TokenizerError: Vocabulary, merges and special tokens contradict each other.
        """

    @staticmethod
    def from_characters(
        vocab: Mapping[int, bytes],
        aliases: Mapping[int, bytes],
        merges: Sequence[tuple[bytes, bytes]],
        special_tokens: Mapping[str, int],
        pattern: str | None,
        ignore_merges: bool,
        unknown: tuple[int, bool] | None,
        special_rules: Mapping[str, int] | None = None,
        normalizer: Sequence[tuple[str, ...]] = ...,
        ranks: Sequence[int] | None = None,
        scores: Mapping[int, float] | None = None,
        shape: tuple[bool, bool, str | None, bool, bool] = ...,
    ) -> Encoder:
        """Create an encoder whose smallest tokens are characters, as in SentencePiece.

        Args:
            vocab: Every token by id, as UTF-8. Without `unknown`, also a token for each byte that is no character of
                the vocabulary.
            aliases: Further tokens, which no text encodes to. They may have the bytes of other tokens.
            merges: Pairs of tokens in rank order; may name every way to split a token, in any order.
            special_tokens: Special tokens and their ids.
            pattern: Name, expression, or None. Without one, texts are split before spaces if no merge crosses these
                places, which changes no ids.
            ignore_merges: As in `from_merges`.
            unknown: Id that stands for an unknown character, and whether it stands for several in a row.
            special_rules: As in `from_merges`.
            normalizer: As in `from_merges`.
            ranks: Rank of each merge, if some are equal: of these the leftmost in a text comes first.
            scores: Scores of the tokens that are merged, by id, in place of merges and ranks: see `piece_merges`.
            shape: As in `from_merges`.

        Raises:
            TokenizerError: The arguments contradict each other, or the order of the merges cannot replace equal ranks.
        """

    @staticmethod
    def from_ranks(
        ranks: Mapping[bytes, int],
        special_tokens: Mapping[str, int],
        pattern: str | None,
        special_rules: Mapping[str, int] | None = None,
        normalizer: Sequence[tuple[str, ...]] = ...,
        drops_unmatched: bool = False,
    ) -> Encoder:
        """Create an encoder from token ranks, as in .tiktoken files: the rank is both id and priority.

        With `drops_unmatched`, text that the pattern does not match is dropped, and several special tokens may have one
        id, as in tiktoken; decoding returns the first of them.
        """

    n_vocab: int
    """Highest id + 1."""
    dtype: Literal["uint16", "uint32"]
    pattern: str | None
    """The regular expression, or None for no pre-tokenization."""
    special_tokens: dict[str, int]
    shape: tuple[bool, bool, str | None, bool, bool] | None
    """How pre-tokens change before they are merged (`bytemill.formats.spec.PretokenShape`); None if not at all."""
    ranked: bool
    """Whether the encoder merges by ranks without an equivalent list of merges; `merges()` is empty then."""
    normalizer: tuple[tuple[str, ...], ...]
    """Steps that change the text between special tokens. Only special tokens with rule 8 see the result."""
    fallback: tuple[Literal["bytes", "unknown"], int | None, bool] | None
    """In a vocabulary of characters, what unknown ones become: tokens of bytes, or an id for one or (True) several."""
    ignore_merges: bool
    """Whether a pre-token that is a token is encoded as that token, whatever the merges."""

    def vocab(self) -> dict[int, bytes]:
        """Return the tokens by id: ordinary ones, and special ones if the vocabulary contained them."""
    def sorted_tokens(self) -> list[bytes]:
        """Return the ordinary tokens in byte order."""
    longest_token: int
    """Length of the longest ordinary token in bytes."""
    def tokens_beginning_with(self, prefix: bytes) -> list[tuple[bytes, int]]:
        """Return the ordinary tokens that begin with `prefix` and their ids, in byte order."""
    def merges(self) -> list[tuple[bytes, bytes]]: ...
    def compiled(self, rest: str, n_entries: int, n_merges: int) -> bytes:
        """Return the vocabulary as a block for `TokenizerJson.read_compiled`."""
    def safe_cut(self, window: str, allowed_special: _Allowed) -> int | None:
        """Return an offset in UTF-8 at which a text that contains `window` can be cut without changing its ids."""
    def canonical_form(self) -> bytes:
        """Return a form of everything that affects ids: encoders with equal bytes give equal ids for every text."""
    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of a token. Raises `UnknownTokenError`."""
    def bytes_to_id(self, token: bytes) -> int | None: ...
    def parts(self, pretoken: bytes) -> list[int]:
        """Return where the parts of a pre-token start before any merge: bytes, or characters of the vocabulary."""
    def merge_steps(self, pretoken: bytes) -> list[tuple[int, bytes, bytes, int]]:
        """Return the merges of one pre-token in order: (rank, left part, right part, index of the left part)."""
    def segments(self, text: str, allowed_special: _Allowed) -> list[tuple[str, int | None]]:
        """Return the special tokens in a text with their ids, and the normalized text between them."""
    def merge_of(self, token_id: int) -> tuple[int, int, int] | None:
        """Return (rank, left id, right id) of the merge that produces the token, if any.

        If `ranked`, the rank counts the tokens of more than one byte, and the parts are those that merging the token's
        own bytes yields before the last merge.
        """
    def encode(self, text: str, allowed_special: _Allowed, num_threads: int | None) -> list[int]: ...
    def append(self, ids: list[int], text: str, allowed_special: _Allowed) -> tuple[int, list[int]] | None:
        """Return how many of the last ids of a text stay if `text` follows it, and the ids behind them.

        None if more ids from the end of the text are needed. Raises `TokenizerError` if the ids are seen to be others
        than those of the text that they spell.
        """
    def encode_beginning(
        self, text: str, is_start: bool, allowed_special: _Allowed
    ) -> tuple[int, list[int], list[int]]:
        """Return how many characters of a text that goes on further text cannot change, their ids, and the other ids.

        Unless `is_start`, the text continues another one at such a place.
        """
    def encode_with_dropout(
        self, text: str, allowed_special: _Allowed, probability: float, seed: int
    ) -> list[int]:
        """Return ids of a text, each merge being left out with the given probability. No pre-token is looked up whole.

        Raises `TokenizerError` unless the smallest tokens are bytes and merges are known.
        """
    def last_pretoken(self, text: str, allowed_special: _Allowed) -> bytes | None:
        """Return the last pre-token; None if the text is empty or ends with a special token."""
    def encode_pretoken(self, data: bytes, *, look_up: bool) -> list[int]:
        """Return the ids of bytes as one pre-token, or with `look_up` False what merging alone makes of them."""
    def encode_bytes(self, data: bytes) -> list[int]:
        """Return the ids of arbitrary bytes without special tokens; invalid UTF-8 forms separate pre-tokens."""
    def encode_batch(
        self, texts: Iterable[str], allowed_special: _Allowed, num_threads: int | None
    ) -> list[list[int]]:
        """Return the ids of each text. Raises TypeError with the index of an item that is not a str."""
    def encode_to_numpy(
        self, text: str, allowed_special: _Allowed, num_threads: int | None
    ) -> _TokenArray: ...
    def encode_batch_to_numpy(
        self, texts: Iterable[str], allowed_special: _Allowed, num_threads: int | None
    ) -> tuple[_TokenArray, NDArray[np.int64]]:
        """Return the ids of n texts in one array, and the n + 1 offsets that delimit each text."""
    def encode_files(
        self, paths: Iterable[str | PathLike[str]], allowed_special: _Allowed, num_threads: int | None
    ) -> list[_TokenArray]:
        """Return the ids of each file. Raises OSError, UnicodeDecodeError, `SpecialTokenError` with file and offset."""
    def encode_with_spans(
        self, text: str, allowed_special: _Allowed, num_threads: int | None
    ) -> tuple[_TokenArray, NDArray[np.int64]]:
        """Return the ids, and an (n, 2) array of their byte offsets in the UTF-8 of the text.

        Raises `TokenizerError` if the normalizer changes the text.
        """
    def count(self, text: str, allowed_special: _Allowed) -> int: ...
    def encode_iterable(self, chunks: Iterable[str], allowed_special: _Allowed) -> Iterator[int]: ...
    def stream(
        self,
        allowed_special: _Allowed,
        errors: Literal["strict", "replace"],
        num_threads: int | None,
    ) -> StreamEncoder: ...
    def decode(self, ids: Sequence[int] | NDArray[Any], errors: str) -> str:
        """Return `decode_bytes(ids).decode("utf-8", errors)`."""
    def decode_bytes(self, ids: Sequence[int] | NDArray[Any]) -> bytes:
        """Return the bytes of `ids`. Raises `UnknownTokenError` with the first unknown id."""
    def decode_batch(self, batch: Iterable[Sequence[int] | NDArray[Any]], errors: str) -> list[str]: ...

@final
class TokenDecoder:
    """Computes the logits after a token on the CPU, in float32, and adds its keys and values to the caches.

    Arrays are float32, contiguous, and used in place: changes are seen by the next call. A quantized matrix is a tuple
    of its codes (int8, or uint8 with two of 4 bits) and the bits of its float16 scales (uint16).
    """

    def __init__(
        self,
        shape: dict[str, Any],
        weights: dict[str, NDArray[np.float32] | tuple[NDArray[Any], NDArray[np.uint16]] | None],
        blocks: list[dict[str, NDArray[np.float32] | tuple[NDArray[Any], NDArray[np.uint16]] | None]],
        caches: list[tuple[NDArray[np.float32], NDArray[np.float32]]],
        num_threads: int,
    ) -> None:
        """Start the threads.

        Args:
            shape: vocab_size, d_model, d_head, n_heads, n_kv_heads, norm_first, centred, eps, activation, soft_cap.
            weights: embedding, positions, rotations, final.weight, final.bias, head.
            blocks: ln1, ln2, q, k, v, output, w1, w2, w3, each with .weight and .bias, and q_norm, k_norm.
            caches: Keys and values of each block, each (n_kv_heads, capacity, d_head).
            num_threads: Number of threads, the caller's included.
        """

    def next_logits(self, token_id: int, position: int, *, alone: bool = False) -> NDArray[np.float32]:
        """Return (vocab_size,), computed on all threads, or on the calling one alone.

        Raises ValueError if sizes contradict each other, or if the id or the position is beyond the tables.
        """

_ShingleSets: TypeAlias = tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64]]

def sketch_texts(
    data: bytes | memoryview, ends: NDArray[np.int64], n: int, num_threads: int | None = None
) -> _ShingleSets:
    """Return the sketches of packed documents (128 numbers each), the hashes of their word n-grams (ascending for
    each), and
    where those of each document end.

    Raises ValueError unless `ends` divide `data`, valid UTF-8, into documents and `n` is 1 to 64.
    """

def sketch_ids(
    ids: _TokenArray, ends: NDArray[np.int64], n: int, num_threads: int | None = None
) -> _ShingleSets:
    """Return the same for n-grams of token ids; `ends` are offsets in `ids`."""

def find_clusters(
    sketches: NDArray[np.uint32],
    shingles: NDArray[np.uint64],
    ends: NDArray[np.uint64],
    bands: int,
    rows: int,
    threshold: float,
    num_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[
    NDArray[np.uint32],
    NDArray[np.float64],
    tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float64]],
    int,
    int,
]:
    """Find clusters of documents by what `sketch_texts` returns for them.

    Returns for each document the first one of its cluster and the Jaccard similarity to it, the pairs that join the
    clusters
    with their similarities, and the numbers of pairs whose sketches and whose sets were compared.

    Raises ValueError if sizes or settings contradict each other.
    """

def text_units(
    data: bytes | memoryview, ends: NDArray[np.int64], paragraphs: bool
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Return hashes, starts and stops of the lines or paragraphs of packed documents, without white space around
    them, and
    their number up to the end of each document.

    Raises ValueError unless `ends` divide `data`, valid UTF-8, into documents.
    """

@final
class TextMarks:
    """Documents, and the places in them that token boundaries should respect."""

    def __init__(self, data: bytes, ends: NDArray[np.int64]) -> None:
        """Find the places. Raises ValueError unless `ends` divide `data`, valid UTF-8, into documents."""

    def numbers(self) -> dict[str, NDArray[np.int64]]:
        """Return by document: n_characters, n_words (UAX #29, with a letter or digit), n_short_numbers, n_long_numbers
        (runs of up to 3 and of more ASCII digits), n_indents (of at least 2 spaces or a tab).
        """

    def count(
        self,
        ids: _TokenArray,
        ends: NDArray[np.int64],
        tokens: TokenBytes,
        histogram: NDArray[np.int64],
    ) -> tuple[dict[str, NDArray[np.int64]], TokenBoundaries]:
        """Count what the tokens of the documents keep whole, and add the uses of each id to `histogram`.

        Also returns the boundaries; in a document that the tokens do not spell, those before the first difference. By
        document: n_tokens, round_trips (1 if the tokens are the text, else 0), and -1 if they are not:
        n_whole_words, n_split_characters, n_whole_short_numbers, n_grouped_numbers (long ones cut into groups of three
        from the right), n_whole_indents (the last space may belong to what follows).

        Args:
            ids: Ids of all documents.
            ends: Offset in `ids` at which those of each document end.
            tokens: The bytes of the vocabulary.
            histogram: One number per id, changed in place.
        """

@final
class TokenBytes:
    """The bytes of a vocabulary's tokens."""

    def __init__(self, data: bytes, offsets: NDArray[np.uint32], adds_space: bool = False) -> None:
        """Take all tokens by id, and the start of each in `data`, with the end of the last one.

        With `adds_space`, the first token of a document may begin with a space that is not part of it.

        Raises ValueError if the offsets do not divide the bytes.
        """

@final
class TokenBoundaries:
    """The boundaries between the tokens of documents; the ends of documents do not count."""

    def n(self) -> int:
        """Return their number."""

    def n_shared(self, other: TokenBoundaries) -> int:
        """Return how many of them are boundaries in `other` too, for the same documents."""

def document_side(text: str, seed: int, below: int) -> Literal[0, 1]:
    """Return the side of a whole document in a `split` of `DocumentEncoder`."""

@final
class DocumentEncoder:
    """Encodes packed documents batch by batch. The ids of a document depend on its text alone."""

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
        """Create an encoder of documents. Documents without ids get neither prefix nor suffix.

        Args:
            encoder: The encoder.
            allowed_special: Special tokens to recognize.
            num_threads: Number of threads.
            prefix: Ids at the start of every document, added unless already there.
            suffix: Id at the end of every document, added unless already there.
            stripped: Id to remove at the end of every document.
            split: (seed, limit): documents whose first MiB has an XXH3 below the limit are on side 1, others on side 0.
        """
    def encode(
        self, batches: Sequence[tuple[bytes | memoryview, NDArray[np.int64], bool]]
    ) -> list[tuple[list[_TokenArray], NDArray[np.uint64], list[int], int]]:
        """Encode batches (data, ends of documents, is_open).

        Returns for side 0 and 1: ids in chunks, offsets at which documents with ids end, bytes of text per batch, and
        the number of documents without ids.
        """
    def carry(self) -> tuple[str, int, int | None, list[int], int | None] | None:
        """Return the state of an open document: text, bytes before it, side, pending ids, last id returned."""
    def resume(self, carry: tuple[str, int, int | None, list[int], int | None] | None) -> None:
        """Continue from the `carry` of another encoder with the same options."""

@final
class RankFile:
    """The tokens of a rank file."""

    @staticmethod
    def read(data: bytes) -> RankFile | None:
        """Parse a file's content; None for files that the reference reader must read or reject."""

    n_ranks: int
    def token(self, rank: int) -> bytes | None:
        """Return the token of a rank."""

    def encoder(self, special_tokens: Mapping[str, int], pattern: str | None) -> Encoder:
        """Move the tokens into an encoder (see `Encoder.from_ranks`). Raises ValueError when called twice."""

    @staticmethod
    def read_tekken(data: bytes) -> tuple[RankFile, str] | None:
        """Parse a tekken.json and return the rest as JSON, with an empty `vocab`. None as for `read`."""

    def tekken_encoder(
        self, special_tokens: Mapping[str, int], pattern: str | None, n_ranks: int, first_id: int
    ) -> Encoder | None:
        """Move the first `n_ranks` tokens into an encoder that looks up whole pre-tokens; ids begin with `first_id`.

        None if the file contradicts itself, or if no list of merges gives the ids of the ranks.
        """

@final
class StringArray:
    """An array of strings in a GGUF file."""

    n_strings: int
    def __init__(self, texts: Sequence[str]) -> None: ...
    @staticmethod
    def read(block: bytes, n: int, is_big_endian: bool) -> tuple[StringArray, int] | None:
        """Read the first `n` strings of a block, each with its length before it, and return the number of their bytes.

        None if the block ends before, or if a string is very long or not UTF-8.
        """
    def texts(self) -> list[str]:
        """Return the strings."""
    def results_among(self, texts: Sequence[str]) -> set[str]:
        """Return those of some texts that merges in this array make: two parts with a space between them."""

@final
class TokenizerJson:
    """The vocabulary and the merges of a tokenizer.json."""

    @staticmethod
    def read(data: bytes) -> tuple[TokenizerJson, str] | None:
        """Parse a file's content and return the rest as JSON, with empty `model.vocab` and `model.merges`.

        None for files that the reference reader must read or reject.
        """

    @staticmethod
    def of_strings(tokens: StringArray, merges: StringArray, left_out: set[int]) -> TokenizerJson | None:
        """Read the tokens by id and the merges of a GGUF file, without empty tokens and the ids in `left_out`.

        None as for `read`.
        """
    @staticmethod
    def read_compiled(block: bytes) -> tuple[TokenizerJson | CharacterJson, str] | None:
        """Read a block of `Encoder.compiled`; None if it is damaged or of another version."""

    n_entries: int
    """Size of the vocabulary."""
    n_merges: int
    missing_byte: int | None
    """The first byte that UTF-8 uses and that is no token."""
    def id_of(self, text: str) -> int | None:
        """Return the id of a token given as byte-level text."""

    def encoder(
        self,
        special_tokens: Mapping[str, int],
        pattern: str | None,
        ignore_merges: bool,
        special_rules: Mapping[str, int] | None = None,
        normalizer: Sequence[tuple[str, ...]] = ...,
        shape: tuple[bool, bool, str | None, bool, bool] = ...,
    ) -> Encoder | None:
        """Move tokens and merges into an encoder, in which special tokens are ordinary only if merges produce them.

        None if file and special tokens contradict each other. Raises ValueError when called twice.
        """

@final
class CharacterJson:
    """The vocabulary and the merges of a tokenizer.json of BPE over characters."""

    @staticmethod
    def read(data: bytes) -> tuple[CharacterJson, str] | None:
        """See `TokenizerJson.read`."""

    n_entries: int
    """Size of the vocabulary."""
    n_merges: int
    def id_of(self, text: str) -> int | None:
        """Return the id of a token as the file writes it. None for all if read from a block of `Encoder.compiled`."""

    def encoder(
        self,
        special_tokens: Mapping[str, int],
        pattern: str | None,
        ignore_merges: bool,
        has_meta: bool,
        unknown: tuple[int, bool] | None,
        special_rules: Mapping[str, int] | None = None,
        normalizer: Sequence[tuple[str, ...]] = ...,
        shape: tuple[bool, bool, str | None, bool, bool] = ...,
    ) -> Encoder | None:
        """See `TokenizerJson.encoder` and `Encoder.from_characters`. With `has_meta`, `▁` stands for a space."""

@final
class StreamEncoder:
    """Encodes a document that arrives in chunks, in constant memory, to the ids of the whole."""

    def feed(self, data: str | bytes | bytearray | memoryview) -> _TokenArray:
        """Encode the next chunk and return the ids that are certain, possibly none. Bytes may end inside a character.

        Raises UnicodeDecodeError (with `errors="strict"`), whose `start` is the offset in the stream.
        """
    def finish(self) -> _TokenArray:
        """Return the remaining ids and reset the encoder for the next document."""
    n_bytes: int
    """Bytes encoded since construction."""
    n_replaced: int
    """Malformed sequences replaced by U+FFFD since construction."""

def read_counts_header(path: str) -> str:
    """Return the header of a counts file. Raises OSError, or `TokenizerError` for another format or version."""

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
        seed: int | None = None,
    ) -> None:
        """`table_bytes` bounds the tables of all threads once a folder is set.

        Counters with the same `seed` divide pre-tokens into the same partitions; it must not be predictable.
        """
    @staticmethod
    def of_encoder(
        encoder: Encoder, num_threads: int | None, chunk_bytes: int | None, table_bytes: int | None = None
    ) -> PretokenCounter:
        """Return a counter of the pre-tokens that an encoder merges.

        It has its pattern, its special tokens, in the order of their texts, with their rules, and its normalizer.
        """
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
        end: int | None = None,
    ) -> tuple[int, bool]:
        """Count one file as a document.

        Args:
            path: The file.
            errors: Handling of malformed UTF-8.
            progress: Called with the bytes read of this file, about ten times a second.
            start: Byte offset to start at.
            seconds: Stop after this time, where the text can be cut (not with "replace").
            end: Byte offset at which the file ends for this call.

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
    def add_counts(self, path: str, weight: int, segment: tuple[int, int] | None = None) -> None:
        """Add the counts of a file, or of a segment of one that `PretokenCounts.save_partitions` wrote, `weight` times.

        Raises OSError, or `TokenizerError` if it is damaged.
        """
    def checkpoint(self) -> str:
        """Write all counts to the folder and return the state for `resume`, as JSON. Raises `OutputError`."""
    def resume(self, state: str, folder: str) -> None:
        """Restore a checkpoint in a new counter with the same pattern and special tokens.

        Raises `TokenizerError` or OSError if the files are missing or damaged.
        """
    def finish(self, denominator: int = 1, may_stay: bool = False, must_stay: bool = False) -> PretokenCounts:
        """Wait for the threads and return the counts; the counter is unusable afterwards.

        Args:
            denominator: Weights are multiples of 1 / denominator.
            may_stay: Leave counts that were written to disk there, merged.
            must_stay: Leave all counts on disk; needs a folder.
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
    def save_partitions(self, path: str, header: str, partitions: tuple[int, int]) -> list[int]:
        """Write some of the partitions of counts on disk to a file; return where each ends. Raises `OutputError`."""
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
        base: Encoder | None = None,
        forbids: Callable[[bytes], bool] | None = None,
    ) -> tuple[list[tuple[bytes, bytes]], list[int]]:
        """Return up to `n_merges` merges in order, and the count of each pair when it was merged.

        With `base` they continue its merges: pre-tokens start as its tokens, and no merge makes a token that it has,
        or that `forbids`.

        There are fewer if no pair with at least `min_frequency` occurrences is left. With `consume` the counts are
        freed while learning, and memory stays below `max_bytes`, counts included. Raises KeyboardInterrupt.
        """
