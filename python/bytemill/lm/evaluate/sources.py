"""A trained model on a text file or on shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.corpus import iter_texts
from bytemill.lm.batches import JoinedShards
from bytemill.lm.evaluate.text import TextScore, evaluate_text
from bytemill.lm.loss import token_byte_counts

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


def score_shards(
    model: TransformerLM, tokenizer: Tokenizer, folder: str | os.PathLike[str], **options: Any
) -> TextScore:
    """The score on a folder of shards; `options` are those of `evaluate_text`.

    Raises `ShardError` where the shards are of another tokenizer.
    """
    tokens = JoinedShards([folder], tokenizer.fingerprint)
    return evaluate_text(model, tokens, token_byte_counts(tokenizer), **options)


def score_text_file(model: TransformerLM, tokenizer: Tokenizer, name: str, **options: Any) -> TextScore:
    """The score on a text file, or on all that a glob names, as one text.

    The text is read after `<|endoftext|>`, if the tokenizer has it, so that its first token is predicted too.
    """
    pieces: list[NDArray[Any]] = [tokenizer.encode_to_numpy(text) for text in iter_texts([name])]
    if "<|endoftext|>" in tokenizer.special_tokens:
        pieces.insert(0, np.array([tokenizer.eot_token], dtype=pieces[0].dtype))
    return evaluate_text(model, np.concatenate(pieces), token_byte_counts(tokenizer), **options)
