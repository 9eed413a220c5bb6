"""Extension of a tokenizer by merges that are learned from more text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from bytemill.corpus import Corpus
from bytemill.tokenizer.surgery.extension import check_reserved, reserved_expression, with_merges
from bytemill.tokenizer.surgery.vocabulary import check_byte_level
from bytemill.training.counts import CountedCorpus, SavedCounts
from bytemill.training.options import (
    CHECKPOINT_SECONDS,
    TrainingOptions,
    check_int,
    check_one_of,
    training_options,
)
from bytemill.training.pipeline import Texts, TrainingSource, count_and_learn

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from bytemill.corpus import CorpusInputs
    from bytemill.formats.spec import Ties
    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.training.pipeline import ProgressCallback

_MAX_NEW = (1 << 21) - 257


def extend(
    base: Tokenizer,
    inputs: CorpusInputs | Corpus | CountedCorpus | SavedCounts,
    n_tokens: int,
    *,
    reuse_reserved: bool | str = False,
    ties: Ties | None = None,
    min_pretoken_count: int = 1,
    min_frequency: int = 1,
    errors: Literal["strict", "replace"] = "strict",
    num_threads: int | None = None,
    chunk_bytes: int | None = None,
    max_memory: int | str | None = None,
    counts: str | os.PathLike[str] | None = None,
    work_folder: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: ProgressCallback | None = None,
) -> Tokenizer:
    """Continue the training of a tokenizer on other text.

    Pre-tokens are counted with the normalizer, the pattern and the special tokens of the base, and divided into tokens
    by its merges. From these, more merges are learned as in `bytemill.train`. They come after all merges of the base:
    where none of them applies, ids stay the same, and without them the tokenizer is the base again.

    Args:
        base: A byte-level BPE tokenizer. All its tokens keep their ids.
        inputs: As in `bytemill.train`. Counts must have been made with this base.
        n_tokens: Number of new tokens. They get the next ids after the highest one.
        reuse_reserved: Use ids without a token and those of reserved special tokens first: True for tokens like
            `<|reserved_special_token_7|>`, or a regular expression that matches their texts.
        ties: As in `bytemill.train`; by default the rule of the base, or "bytes" if its file does not tell.
        min_pretoken_count: As in `bytemill.train`, like all following arguments.
        min_frequency: Do not merge pairs that occur less often.
        errors: Malformed UTF-8 in files.
        num_threads: Number of threads.
        chunk_bytes: Text that a thread counts at a time.
        max_memory: Bound on the resident memory of the process.
        counts: File of counts to read or to write.
        work_folder: Folder for checkpoints.
        checkpoint_seconds: Time between two checkpoints.
        progress: Progress callback.

    Returns:
        The new tokenizer; its `training_report` has statistics and timings.

    Raises:
        TokenizerError: The base is not byte-level BPE, ranks could not express the result, or an option is out of
            range.
        CorpusError: As `bytemill.train`, also if counts were made with another pattern or normalizer.
        NotEnoughMemoryError: Memory runs out.
        OutputError: As `bytemill.train`.

    Warns:
        TrainingStoppedEarly: No pair was left to merge before there were `n_tokens` new tokens.

    >>> import bytemill
    >>> base = bytemill.train_from_iterator(["low low lower"], 259, ["<e>"])
    >>> path = getfixture("tmp_path") / "more.txt"
    >>> _ = path.write_text("slow slower slowest")
    >>> larger = extend(base, path, 1)
    >>> larger.merges, larger.encode("slow"), larger.special_tokens
    ([(b'o', b'w'), (b'l', b'ow'), (b's', b'low')], [259], {'<e>': 258})
    """
    check_one_of("errors", errors, ("strict", "replace"))
    options = _options(
        base,
        n_tokens,
        reuse_reserved,
        ties=ties,
        min_pretoken_count=min_pretoken_count,
        min_frequency=min_frequency,
        num_threads=num_threads,
        chunk_bytes=chunk_bytes,
        max_memory=max_memory,
        counts=counts,
        work_folder=work_folder,
        checkpoint_seconds=checkpoint_seconds,
    )
    is_opened = isinstance(inputs, (Corpus, CountedCorpus, SavedCounts))
    source = inputs if is_opened else Corpus(inputs, errors=errors)
    return _extend(base, source, options, reuse_reserved, progress)


def extend_from_iterator(
    base: Tokenizer,
    texts: Iterable[str],
    n_tokens: int,
    *,
    reuse_reserved: bool | str = False,
    ties: Ties | None = None,
    min_pretoken_count: int = 1,
    min_frequency: int = 1,
    num_threads: int | None = None,
    chunk_bytes: int | None = None,
    max_memory: int | str | None = None,
    counts: str | os.PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> Tokenizer:
    """Continue the training of a tokenizer on texts, each a document; see `extend`.

    Args:
        base: A byte-level BPE tokenizer.
        texts: Any iterable of str, such as a list, a generator or an open file.
        n_tokens: Number of new tokens.
        reuse_reserved: As in `extend`, like all following arguments.
        ties: Order of equally frequent pairs.
        min_pretoken_count: Drop pre-tokens that occur less often.
        min_frequency: Do not merge pairs that occur less often.
        num_threads: Number of threads.
        chunk_bytes: Text that a thread counts at a time.
        max_memory: Bound on the resident memory of the process.
        counts: File of counts to read or to write.
        progress: Progress callback.

    >>> import bytemill
    >>> base = bytemill.train_from_iterator(["low low lower"], 258, [])
    >>> extend_from_iterator(base, ["slow slower slowest"], 1).merges[-1]
    (b's', b'low')
    """
    options = _options(
        base,
        n_tokens,
        reuse_reserved,
        ties=ties,
        min_pretoken_count=min_pretoken_count,
        min_frequency=min_frequency,
        num_threads=num_threads,
        chunk_bytes=chunk_bytes,
        max_memory=max_memory,
        counts=counts,
        work_folder=None,
        checkpoint_seconds=CHECKPOINT_SECONDS,
    )
    return _extend(base, Texts(texts), options, reuse_reserved, progress)


def _extend(
    base: Tokenizer,
    source: TrainingSource,
    options: TrainingOptions,
    reuse_reserved: bool | str,
    progress: ProgressCallback | None,
) -> Tokenizer:
    spec, reserved = base.to_spec(), reserved_expression(reuse_reserved)
    return count_and_learn(
        source,
        options,
        progress,
        lambda learned: with_merges(spec, learned.merges, learned.merge_counts, reserved=reserved),
    )


def _options(
    base: Tokenizer,
    n_tokens: int,
    reuse_reserved: bool | str,
    *,
    ties: Ties | None,
    min_pretoken_count: int,
    min_frequency: int,
    num_threads: int | None,
    chunk_bytes: int | None,
    max_memory: int | str | None,
    counts: str | os.PathLike[str] | None,
    work_folder: str | os.PathLike[str] | None,
    checkpoint_seconds: float,
) -> TrainingOptions:
    """Validate the arguments of `extend` before anything is read."""
    spec = check_byte_level(base, "extend")
    check_int("n_tokens", n_tokens, 1, _MAX_NEW)
    check_reserved(spec, reuse_reserved)
    options = training_options(
        256 + n_tokens,
        (),
        pattern=None,
        ties=ties or spec.ties or "bytes",
        min_pretoken_count=min_pretoken_count,
        min_frequency=min_frequency,
        special_ids="last",
        num_threads=num_threads,
        chunk_bytes=chunk_bytes,
        max_memory=max_memory,
        counts=counts,
        work_folder=work_folder,
        checkpoint_seconds=checkpoint_seconds,
    )
    return replace(options, special_tokens=list(base.special_tokens), pattern=base.pattern, base=base)
