"""Uses of each token in a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bytemill.corpus import Corpus
from bytemill.errors import TokenizerError
from bytemill.training.counting import CountingSettings, count_corpus, count_texts
from bytemill.training.memory_budget import MemoryBudget, parse_max_memory
from bytemill.training.work_folder import WorkFolder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.training.counting import ReportCounted


def count_tokens(
    tokenizer: Tokenizer,
    source: Corpus | Iterable[str],
    *,
    num_threads: int | None = None,
    max_memory: int | str | None = None,
    progress: ReportCounted | None = None,
) -> NDArray[np.int64]:
    """Count how often each id occurs in a corpus, special tokens included.

    Pre-tokens are counted first, and each distinct one is encoded once.

    Args:
        tokenizer: A tokenizer that the core runs.
        source: A `Corpus`, or texts, each a document.
        num_threads: Number of threads; by default, as many as the machine runs at once.
        max_memory: Bound on the resident memory of the process, in bytes or like "2GB".
        progress: Called with the amount read, and the total if it is known.

    Returns:
        The number of uses of each id, of shape `(n_vocab,)`.

    Raises:
        CorpusError: The corpus cannot be read, is empty or is not UTF-8.
        TokenizerError: The core does not run the tokenizer, or it fuses unknown characters.

    >>> import bytemill
    >>> tok = bytemill.train_from_iterator(["low low low"], 258, ["<e>"])
    >>> count_tokens(tok, ["low<e>", "so"])[[ord("l"), ord("o"), 256, 257]]
    array([1, 1, 1, 1])
    """
    core = tokenizer.own_core("counting tokens")
    if core.fallback is not None and core.fallback[2]:
        raise TokenizerError(
            "cannot count tokens by pre-tokens: this tokenizer has one id for several unknown characters in a row"
        )
    settings = CountingSettings(
        list(tokenizer.special_tokens),
        tokenizer.pattern,
        num_threads,
        budget=None if max_memory is None else MemoryBudget(parse_max_memory(max_memory)),
        base=tokenizer,
    )
    with WorkFolder(None) as work:
        is_corpus = isinstance(source, Corpus)
        counted = (
            count_corpus(source, settings, work, progress)
            if is_corpus
            else count_texts(source, settings, work, progress)
        )
        uses = np.zeros(tokenizer.n_vocab, dtype=np.int64)
        for pretoken, count in counted.items():
            for token_id in core.encode_pretoken(pretoken, look_up=True):
                uses[token_id] += count
    for text, count in counted.info.special_tokens.items():
        uses[tokenizer.special_tokens[text]] += count
    return uses
