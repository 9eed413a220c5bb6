"""Score a model on text files or shards."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.corpus import iter_texts
from bytemill.lm.batches import JoinedShards
from bytemill.lm.evaluate.text import TextScore, evaluate_text
from bytemill.lm.generation.text_generation import start_id
from bytemill.lm.loss import token_byte_counts

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


def score_shards(
    model: TransformerLM, tokenizer: Tokenizer, folder: str | os.PathLike[str], **options: Any
) -> TextScore:
    """Score a model on a shard folder.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        folder: The shard folder.
        options: Options of `evaluate_text`.

    Raises:
        ShardError: The shards are damaged or of another tokenizer.
    """
    tokens = JoinedShards([folder], tokenizer.fingerprint)
    return evaluate_text(model, tokens, token_byte_counts(tokenizer), **options)


def score_text_file(
    model: TransformerLM, tokenizer: Tokenizer, name: str, *, bos_id: int | None = None, **options: Any
) -> TextScore:
    """Score a model on a text file, or on all files of a glob as one text.

    The text follows the token that began every training document, or `<|endoftext|>` if the tokenizer has it, so that
    its first token is predicted too.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        name: A path or a glob.
        bos_id: Id of the token that began every training document.
        options: Options of `evaluate_text`.

    Raises:
        CorpusError: A file cannot be read, or there is too little text.
    """
    ids: list[NDArray[Any]] = [tokenizer.encode_to_numpy(text) for text in iter_texts([name])]
    start = start_id(tokenizer, bos_id)
    if start is not None and ids[0][:1] != [start]:
        ids.insert(0, np.array([start], dtype=ids[0].dtype))
    counts = token_byte_counts(tokenizer)
    score = evaluate_text(model, np.concatenate(ids), counts, **options)
    if counts.begins is None or counts.prefixed is None:
        return score
    # Unless a special token ends a text, nothing marks that the next one begins, with a space that is not its own.
    bounds = [(int(before[-1]), int(text_ids[0])) for before, text_ids in pairwise(filter(len, ids))]
    n_spaces = sum(int(counts.prefixed[first]) for last, first in bounds if not counts.begins[last])
    return replace(score, n_bytes=score.n_bytes - n_spaces)
