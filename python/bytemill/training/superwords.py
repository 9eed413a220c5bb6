"""SuperBPE: tokens of several words, learned after those of single words.

Liu et al., "SuperBPE: Space Travel for Language Models" (2025). First merges are learned inside of words, as ever; then
more merges on pre-tokens that go on across blanks. The result is an ordinary tokenizer with the second pattern.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.corpus import Corpus
from bytemill.errors import TokenizerError
from bytemill.formats.patterns import Pattern, resolve_pattern
from bytemill.training.options import SPECIAL_TOKENS
from bytemill.training.pipeline import train

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.corpus import CorpusInputs
    from bytemill.tokenizer.tokenizer import Tokenizer

_WORDS = r"(?: ?[\p{L}\p{M}]+){2,}"
"""Two or more words with single spaces between them. Line ends, numbers and signs end it."""


def superword_pattern(pattern: str | Pattern | None) -> Pattern:
    """Return a pattern whose pre-tokens are runs of words where there are several, else those of `pattern`.

    Raises:
        TokenizerError: There is no pattern, so nothing keeps words apart.
    """
    expression = resolve_pattern(pattern)
    if expression is None:
        raise TokenizerError(
            "without a pattern, tokens may hold any number of words already",
            hint="choose a pattern such as gpt2",
        )
    return Pattern.regex(f"{_WORDS}|{expression}")


def train_superwords(
    inputs: CorpusInputs | Corpus,
    vocab_size: int,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    *,
    words_size: int,
    max_words: int = 4,
    pattern: str | Pattern | None = "gpt2",
    counts: str | Path | None = None,
    **options: Any,
) -> Tokenizer:
    """Train a tokenizer whose last tokens may hold several words.

    The corpus is read twice: pre-tokens of single words are counted first, then runs of words, which are nearly all
    different. `max_memory` bounds the memory of both.

    Args:
        inputs: As in `bytemill.train`, but no counts.
        vocab_size: Upper bound on the number of tokens.
        special_tokens: As in `bytemill.train`.
        words_size: Number of tokens, special ones included, after which tokens of several words are made too.
        max_words: Most words of a token.
        pattern: Pattern of the first part. The result has that of `superword_pattern`.
        counts: File of counts of the first part; those of the second are beside it, with `.superwords` in the name.
        options: Further options of `bytemill.train`. `initial` and `work_folder` are not among them.

    Raises:
        TokenizerError: A size is out of range, or there is no pattern.
        BytemillError: As for `bytemill.train`.

    >>> path = getfixture("tmp_path") / "corpus.txt"
    >>> _ = path.write_text("of the mill, of the corn, of the day. " * 9)
    >>> tok = train_superwords(path, 274, [], words_size=272)
    >>> [tok.decode([i]) for i in tok.encode("day of the corn")]
    ['day', ' of the', ' corn']
    """
    if not 256 + len(special_tokens) < words_size <= vocab_size:
        raise TokenizerError(
            f"words_size is {words_size}, and vocab_size {vocab_size}",
            hint=f"choose a words_size above {256 + len(special_tokens)} and up to vocab_size",
        )
    if max_words < 2:
        raise TokenizerError(f"max_words is {max_words}", hint="use at least 2")
    second = superword_pattern(pattern)
    opened = inputs if isinstance(inputs, Corpus) else Corpus(inputs, errors=options.pop("errors", "strict"))
    if not opened.can_resume:
        raise TokenizerError(
            f"{opened.source_names[0]} can be read only once, and the corpus is read twice",
            hint="save the text to a file",
        )
    words = train(opened, words_size, special_tokens, pattern=pattern, counts=counts, **options)
    later = None if counts is None else Path(counts).with_name(f"{Path(counts).name}.superwords")
    options.pop("require", None)  # they are among the first merges
    return train(
        opened,
        vocab_size,
        special_tokens,
        pattern=second,
        counts=later,
        initial=words,
        max_token_words=max_words,
        **options,
    )
