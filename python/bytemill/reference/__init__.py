r"""Byte-level byte-pair encoding in plain Python: slow, short, and meant to be read from top to bottom.

The tests hold the fast core against these files, so they do everything in the most direct way that is still
correct. In reading order:

1. `pretokens`: a text is cut at special tokens, and between them into pre-tokens, which no token crosses;
2. `training`: merges are learned from the pre-tokens, in three versions with one result, each a step faster;
3. `encoding`: the merges turn a text into ids, and ids are turned back into text.

The example of the paper that brought byte-pair encoding to language models (Sennrich, Haddow and Birch, 2016,
"Neural machine translation of rare words with subword units"), with words split on blanks:

>>> text = "low " * 5 + "lower " * 2 + "widest " * 3 + "newest " * 6
>>> vocab, merges = train(text, vocab_size=256 + 6, pattern=r"\S+")
>>> [(left + right).decode() for left, right in merges]
['st', 'est', 'ow', 'low', 'west', 'ne']
>>> tokenizer = ReferenceTokenizer(vocab, merges, pattern=r"\S+")
>>> tokenizer.encode("newest")
[261, 260]
>>> tokenizer.decode_tokens_bytes([261, 260])
[b'ne', b'west']
"""

from bytemill.reference.encoding import (
    AllowedSpecial,
    MergeStep,
    ReferenceTokenizer,
    apply_merges,
    encode_by_ranks,
    merge_by_rank,
)
from bytemill.reference.pretokens import (
    PATTERNS,
    check_special_tokens,
    corpus_pretokens,
    pretokenize,
    split_at_special_tokens,
)
from bytemill.reference.training import (
    Pair,
    TieBreak,
    Ties,
    build_vocab,
    learn_merges,
    merge_pair,
    n_merges_for,
    single_bytes,
    train,
    train_naive,
    train_unique,
)

__all__ = [
    "PATTERNS",
    "AllowedSpecial",
    "MergeStep",
    "Pair",
    "ReferenceTokenizer",
    "TieBreak",
    "Ties",
    "apply_merges",
    "build_vocab",
    "check_special_tokens",
    "corpus_pretokens",
    "encode_by_ranks",
    "learn_merges",
    "merge_by_rank",
    "merge_pair",
    "n_merges_for",
    "pretokenize",
    "single_bytes",
    "split_at_special_tokens",
    "train",
    "train_naive",
    "train_unique",
]
