r"""Reference implementation of byte-level BPE and of duplicates in plain Python: slow, short, to be read downwards.

The tests compare the fast core with these modules, which use the most direct correct method. In reading order:

1. `pretokens`: split a text at special tokens, then into pre-tokens, which no token crosses;
2. `training`: learn merges from the pre-tokens, in three versions with the same result, each faster;
3. `encoding`: encode text to ids with the merges, and decode ids to text;
4. `duplicates`: near duplicates among documents, and lines that they share.

The example of Sennrich, Haddow and Birch (2016), "Neural machine translation of rare words with subword units", with
words split at spaces:

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

from bytemill.reference.duplicates import (
    Word,
    candidates,
    clusters,
    jaccard,
    near_duplicates,
    repeated_lines,
    shingles,
    sketch,
    words,
)
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
    pretoken_bytes,
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
    "Word",
    "apply_merges",
    "build_vocab",
    "candidates",
    "check_special_tokens",
    "clusters",
    "corpus_pretokens",
    "encode_by_ranks",
    "jaccard",
    "learn_merges",
    "merge_by_rank",
    "merge_pair",
    "n_merges_for",
    "near_duplicates",
    "pretoken_bytes",
    "pretokenize",
    "repeated_lines",
    "shingles",
    "single_bytes",
    "sketch",
    "split_at_special_tokens",
    "train",
    "train_naive",
    "train_unique",
    "words",
]
