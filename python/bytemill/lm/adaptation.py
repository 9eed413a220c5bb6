"""Move a model to another tokenizer: keep the rows of tokens that both have, and make the others of their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch

from bytemill.errors import ModelConfigError, TokenizerError
from bytemill.lm.device import memory_errors
from bytemill.lm.model import TransformerLM
from bytemill.lm.training.saved_model import (
    ModelFolder,
    check_output,
    files_in,
    find_saved_model,
    locked_output,
    write_model_folder,
)
from bytemill.storage import shown
from bytemill.storage.input_check import check_folder_is_no_input

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from bytemill.lm.training.saved_model import SavedModel
    from bytemill.tokenizer.tokenizer import Tokenizer

NewRows: TypeAlias = Literal["mean", "weighted", "zero", "random"]
"""How rows of new tokens are made: the mean of the rows of the tokens that the old tokenizer divides them into, that
mean weighted by their bytes, zeros, or normal values with mean and deviation of the old rows."""

_LARGEST_PADDING = 128
"""Sizes of vocabularies are padded to multiples of at most this power of two."""


@dataclass(frozen=True)
class RowSources:
    """Where the row of each new id comes from: the rows of these old ids. One of a token that both have, none of an id
    without a token."""

    old_ids: list[list[int]]
    is_kept: list[bool]
    """True for a token that both tokenizers have."""

    @property
    def n_kept(self) -> int:
        """Number of tokens that both have."""
        return sum(self.is_kept)


@dataclass(frozen=True)
class Adapted:
    """Result of `adapt_saved_model`."""

    folder: ModelFolder
    n_kept: int
    """Tokens that both tokenizers have."""
    n_new: int
    """Tokens of the new tokenizer alone."""
    n_dropped: int
    """Tokens of the old tokenizer alone."""
    notes: list[str]
    refused: list[str]
    """Newer checkpoints that were damaged."""


def row_sources(old: Tokenizer, new: Tokenizer) -> RowSources:
    """Return the old ids that make the row of each new one.

    Ordinary tokens are the same if their bytes are, special tokens if their texts are.

    Raises:
        TokenizerError: One of them is not byte-level BPE.

    >>> import bytemill
    >>> old = bytemill.train_from_iterator(["low low"], 258, ["<e>"])
    >>> new = bytemill.add_words(old, ["slow"]).tokenizer
    >>> sources = row_sources(old, new)
    >>> new.encode("slow"), sources.old_ids[new.encode("slow")[0]] == old.encode("slow"), sources.n_kept
    ([259], True, 258)
    """
    for tokenizer in (old, new):
        if tokenizer.own_core("adapting a model").fallback is not None:
            raise TokenizerError(
                "a model can be adapted from and to byte-level BPE tokenizers, not to one of characters"
            )
    core = old.own_core("adapting a model")
    old_special = old.special_tokens
    special_ids = set(old_special.values())
    ordinary = {token: i for i, token in old.vocab.items() if i not in special_ids}
    new_special = {i: text for text, i in new.special_tokens.items()}
    old_ids: list[list[int]] = [[] for _ in range(new.n_vocab)]
    is_kept = [False] * new.n_vocab
    for token_id, token in new.vocab.items():
        text = new_special.get(token_id)
        known = ordinary.get(token) if text is None else old_special.get(text)
        if known is not None:
            old_ids[token_id], is_kept[token_id] = [known], True
        elif text is None:
            old_ids[token_id] = list(core.encode_pretoken(token, look_up=True))
        else:
            old_ids[token_id] = old.encode_ordinary(text)
    return RowSources(old_ids, is_kept)


def new_rows(
    rows: Tensor, sources: RowSources, size: int, how: NewRows, old: Tokenizer, *, seed: int = 0
) -> Tensor:
    """Return the embedding, or the output layer, of the new ids.

    Args:
        rows: The old one, (old vocab_size, d_model).
        sources: See `row_sources`.
        size: Number of new rows; those of ids without a token are the mean of the old rows of such ids, or of all.
        how: How rows of new tokens are made.
        old: The old tokenizer.
        seed: Seed of random rows.
    """
    lengths = torch.zeros(len(rows), dtype=rows.dtype)
    for token_id, token in old.vocab.items():
        lengths[token_id] = len(token)
    unused = rows[old.n_vocab :] if len(rows) > old.n_vocab else rows
    made = unused.mean(dim=0).repeat(size, 1)
    generator = torch.Generator().manual_seed(seed)
    mean, deviation = rows.mean(dim=0), rows.std(dim=0)
    for token_id, (ids, is_kept) in enumerate(zip(sources.old_ids, sources.is_kept, strict=True)):
        if is_kept:
            made[token_id] = rows[ids[0]]
        elif how == "random" and ids:
            made[token_id] = mean + deviation * torch.randn(rows.shape[1], generator=generator)
        elif how == "zero" and ids:
            made[token_id] = 0.0
        elif ids:
            weights = lengths[ids] if how == "weighted" else torch.ones(len(ids))
            made[token_id] = (weights / weights.sum()) @ rows[ids]
    return made


def adapted_size(model_size: int, old: Tokenizer, new: Tokenizer) -> int:
    """Return the vocabulary size of the adapted model, padded as the old one is.

    >>> import bytemill
    >>> old = bytemill.train_from_iterator(["low low"], 258, [])
    >>> new = bytemill.add_words(old, ["slow"]).tokenizer
    >>> [adapted_size(size, old, new) for size in (258, 259, 320, 512)]
    [259, 259, 320, 512]
    """
    if old.n_vocab <= new.n_vocab <= model_size:
        return model_size
    if model_size == old.n_vocab:
        return new.n_vocab
    padding = min(_LARGEST_PADDING, model_size & -model_size)
    return new.n_vocab + -new.n_vocab % padding


@torch.no_grad()
def adapt(
    model: TransformerLM, old: Tokenizer, new: Tokenizer, how: NewRows = "mean", *, seed: int = 0
) -> TransformerLM:
    """Return a copy of a model with the vocabulary of another tokenizer.

    All weights but the rows of embedding and output layer stay, so that after ids that both tokenizers have, the
    logits of such ids are equal.

    Args:
        model: A float32 model.
        old: Its tokenizer.
        new: The other tokenizer.
        how: How rows of new tokens are made; see `NewRows`.
        seed: Seed of random rows.

    Raises:
        TokenizerError: A tokenizer is not byte-level BPE.
        ModelConfigError: The model has fewer ids than its tokenizer.
    """
    config = model.config
    if config.vocab_size < old.n_vocab:
        raise ModelConfigError(
            f"the embedding has {config.vocab_size:,} rows, but the tokenizer {old.n_vocab:,} ids",
            hint="name the tokenizer of the model",
        )
    sources = row_sources(old, new)
    size = adapted_size(config.vocab_size, old, new)
    adapted = TransformerLM(config.model_copy(update={"vocab_size": size}), seed=seed)
    weights = model.state_dict()
    names = (
        ["token_embeddings.weight"]
        if config.tied_embeddings
        else ["token_embeddings.weight", "lm_head.weight"]
    )
    for number, name in enumerate(names):
        weights[name] = new_rows(weights[name], sources, size, how, old, seed=seed + number)
    if config.tied_embeddings:
        weights["lm_head.weight"] = weights["token_embeddings.weight"]
    adapted.load_state_dict(weights)
    return adapted.eval()


def adapt_saved_model(
    source: str | os.PathLike[str],
    new: Tokenizer,
    output: Path,
    how: NewRows = "mean",
    *,
    seed: int = 0,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Adapted:
    """Move a trained or imported model to another tokenizer, as a folder that `lm train --init-from` continues.

    Args:
        source: Run folder, checkpoint or imported model.
        new: The tokenizer.
        output: Folder of the result, or its URL.
        how: How rows of new tokens are made; see `NewRows`.
        seed: Seed of random rows.
        overwrite: Replace the contents of `output`.
        progress: Called with the bytes of weights that are written, and their total.

    Raises:
        CheckpointError: There is no intact checkpoint and no imported model, or it has no tokenizer.
        ModelConfigError: The model is quantized, or has fewer ids than its tokenizer.
        TokenizerError: A tokenizer is not byte-level BPE.
        OutputError: The folder is not empty, or cannot be written.
    """
    check_output(output, overwrite=overwrite)
    saved = find_saved_model(source)
    check_folder_is_no_input(output, files=[*files_in(saved.path)])
    if saved.bits is not None:
        raise ModelConfigError(
            f"{shown(saved.path)} is quantized to {saved.bits} bits",
            hint="name the run or the imported model that it was made from, and quantize the result",
        )
    old = saved.tokenizer()
    sources = row_sources(old, new)
    with memory_errors("close other programs"):
        model = TransformerLM(saved.config.model, seed=0)
        saved.load_weights(model)
        adapted = adapt(model, old, new, how, seed=seed)
    bos_id, notes = _new_bos(saved, old, new)
    notes.append("the state of the optimizer was left out: training starts with a new one")
    weights = {name: tensor.detach() for name, tensor in adapted.named_parameters()}
    with locked_output(output):
        check_output(output, overwrite=overwrite)
        folder = write_model_folder(
            output,
            adapted.config,
            weights,
            new,
            source=f"{saved.imported_from or f'a run, step {saved.step:,}'}, with another tokenizer",
            bos_id=bos_id,
            progress=progress,
        )
    n_new = sum(bool(ids) for ids in sources.old_ids) - sources.n_kept
    return Adapted(folder, sources.n_kept, n_new, len(old) - sources.n_kept, notes, saved.refused)


def _new_bos(saved: SavedModel, old: Tokenizer, new: Tokenizer) -> tuple[int | None, list[str]]:
    """Return the id of the token that begins texts, and a note if the new tokenizer lacks it."""
    if saved.bos_id is None:
        return None, []
    text = next((text for text, i in old.special_tokens.items() if i == saved.bos_id), None)
    if text in new.special_tokens:
        return new.special_tokens[text], []
    return None, [f"texts began with {text!r}, which is not a special token of the new tokenizer"]
