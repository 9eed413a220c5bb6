"""Evaluation: loss, perplexity and bits per byte on text, also by class of token; HellaSwag is in `hellaswag`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bytemill.corpus import iter_texts
from bytemill.errors import CorpusError
from bytemill.lm.batches import JoinedShards, inputs_and_targets, windows_at
from bytemill.lm.device import autocast, shared_cores
from bytemill.lm.generation.text_generation import start_id
from bytemill.lm.hellaswag import HellaSwagItem, HellaSwagScore, evaluate_hellaswag, read_items
from bytemill.lm.loss import bits_per_byte, perplexity, text_nats_and_bytes, token_byte_counts, token_losses
from bytemill.lm.tensors import not_finite, split

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from bytemill.lm.batches import Documents, MarkedDocuments, PackedBatches, TokenSequence
    from bytemill.lm.loss import TokenBytes
    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


__all__ = [
    "HellaSwagItem",
    "HellaSwagScore",
    "LossByClass",
    "TextScore",
    "evaluate_hellaswag",
    "evaluate_text",
    "evaluate_windows",
    "read_items",
    "score_shards",
    "score_text_file",
]

_POSITIONS = 8192
"""Positions whose logits a GPU computes at a time."""

CLASSES = (
    "word after a space",
    "word without a space",
    "digits",
    "punctuation",
    "spaces",
    "line breaks",
    "part of a character",
    "special",
)
"""A word has a letter, and begins with a space or not; the second class holds both the starts of lines and the later
tokens of words. Digits and punctuation may follow a space. Line breaks may be joined by other white space."""


def token_class(token: bytes) -> str:
    """Return the class of a token that is not special.

    >>> [token_class(token) for token in (b" the", b"ing", b" 12", b"\\xe2\\x80")]
    ['word after a space', 'word without a space', 'digits', 'part of a character']
    >>> [token_class(token) for token in (b"),", b"  ", b" \\n")]
    ['punctuation', 'spaces', 'line breaks']
    """
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "part of a character"
    body = text.strip()
    if not body:
        return "line breaks" if "\n" in text or "\r" in text else "spaces"
    if any(character.isalpha() for character in body):
        return "word after a space" if text[0] == " " else "word without a space"
    return "digits" if any(character.isdigit() for character in body) else "punctuation"


class LossByClass:
    """Sums of losses by predicted token, and their means by class of token and by frequency.

    Args:
        tokenizer: The tokenizer.
        n_ids: Ids of the model, which may exceed those of the tokenizer.
        device: Device of the losses.
    """

    def __init__(self, tokenizer: Tokenizer, n_ids: int, device: torch.device | str = "cpu") -> None:
        classes = np.full(n_ids, CLASSES.index("special"))
        for token, token_bytes in tokenizer.vocab.items():
            if not tokenizer.is_special_token(token):
                classes[token] = CLASSES.index(token_class(token_bytes))
        self._classes = classes
        self._device = device
        self._sums = np.zeros((3, n_ids))

    def add(self, losses: Tensor, targets: Tensor, n_bytes: Tensor) -> None:
        """Add the losses of tokens.

        Args:
            losses: Losses in nats.
            targets: Ids, of the same shape.
            n_bytes: Bytes of each token.
        """
        values = torch.stack([torch.ones_like(losses), losses, n_bytes]).double().flatten(1)
        sums = torch.zeros(self._sums.shape, dtype=torch.float64, device=self._device)
        self._sums += sums.index_add_(1, targets.long().flatten(), values).cpu().numpy()

    @property
    def sums(self) -> list[float]:
        """Uses of each id, then nats, then bytes; can be set, to those of several processes."""
        return self._sums.flatten().tolist()

    @sums.setter
    def sums(self, sums: list[float]) -> None:
        self._sums = np.array(sums).reshape(self._sums.shape)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return by class that occurs: tokens, bytes, mean loss (nats), bits per byte, shares of tokens and of loss."""
        rows = self._rows(self._classes, len(CLASSES))
        return {name: row for name, row in zip(CLASSES, rows, strict=True) if row["n_tokens"]}

    def by_frequency(self) -> list[dict[str, Any]]:
        """Return the values of `to_dict` for each tenth of the predicted tokens, the most frequent ids first.

        Frequency is that in the evaluated text. An id belongs to the tenth that holds the middle of its uses, so that
        one of more than a tenth leaves the next ones empty. Special tokens are left out. `n_ids` is the number of ids.
        """
        uses = np.where(self._classes == CLASSES.index("special"), 0, self._sums[0])
        order = np.argsort(-uses, kind="stable")
        middles = uses[order].cumsum() - uses[order] / 2
        tenths = np.full(len(uses), 10)  # the last row is dropped
        if uses.any():
            in_order = np.minimum(9, 10 * middles / uses.sum()).astype(np.int64)
            tenths[order] = np.where(uses[order] > 0, in_order, 10)
        counts = np.bincount(tenths, minlength=11).tolist()
        rows = self._rows(tenths, 11)[:10]
        return [{"n_ids": n, **row} for n, row in zip(counts, rows, strict=False)]

    def _rows(self, groups: NDArray[np.int64], n_groups: int) -> list[dict[str, Any]]:
        sums = [np.bincount(groups, weights, n_groups).tolist() for weights in self._sums]
        n_all, total = self._sums[0].sum(), self._sums[1].sum()
        return [
            {
                "n_tokens": int(n_tokens),
                "n_bytes": int(n_bytes),
                "loss": nats / n_tokens if n_tokens else None,
                "bits_per_byte": nats / math.log(2) / n_bytes if n_bytes else None,
                "token_share": float(n_tokens / n_all) if n_all else None,
                "loss_share": float(nats / total) if total else None,
            }
            for n_tokens, nats, n_bytes in zip(*sums, strict=True)
        ]


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


@dataclass(frozen=True)
class TextScore:
    """Score of a model on a text."""

    n_tokens: int
    """Number of predicted tokens, including special tokens."""
    nats: float
    """Sum of their losses, in nats."""
    text_nats: float
    """Sum of the losses without special tokens."""
    n_bytes: int
    """Bytes of the text that the tokens stand for; special tokens have none."""

    @property
    def loss(self) -> float:
        """Mean loss per token in nats, including special tokens."""
        return self.nats / self.n_tokens

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return perplexity(self.loss)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of text, without special tokens; NaN if there are no bytes."""
        return bits_per_byte(self.text_nats, self.n_bytes) if self.n_bytes else math.nan

    def __add__(self, other: TextScore) -> TextScore:
        return TextScore(
            self.n_tokens + other.n_tokens,
            self.nats + other.nats,
            self.text_nats + other.text_nats,
            self.n_bytes + other.n_bytes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            **asdict(self),
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bits_per_byte": None if math.isnan(self.bits_per_byte) else self.bits_per_byte,
        }


def mean_score(scores: Sequence[TextScore]) -> dict[str, Any]:
    """Return the sums of the scores, like `TextScore.to_dict`, but with the means of loss and bits per byte.

    Every text counts the same, whatever its length.
    """
    first, *rest = scores
    loss = sum(score.loss for score in scores) / len(scores)
    bits = sum(score.bits_per_byte for score in scores) / len(scores)
    means = {
        "loss": loss,
        "perplexity": perplexity(loss),
        "bits_per_byte": None if math.isnan(bits) else bits,
    }
    return {**asdict(sum(rest, first)), **means}


def evaluate_windows(
    model: TransformerLM,
    tokens: TokenSequence,
    starts: Sequence[int],
    byte_counts: TokenBytes,
    *,
    batch_size: int = 16,
    dtype: torch.dtype = torch.float32,
    documents: Documents | None = None,
    by_class: LossByClass | None = None,
) -> TextScore:
    """Score a model on windows of the context length; this is the validation of training runs.

    Args:
        model: The model; it is set to evaluation mode.
        tokens: Ids.
        starts: Start offset of each window.
        byte_counts: Result of `loss.token_byte_counts`.
        batch_size: Windows per batch.
        dtype: Type of matrix products.
        documents: Tokens attend to their own document alone, as in training.
        by_class: Receives the losses.
    """
    length = model.config.context_length
    counts = _counts(byte_counts, model)
    score = TextScore(0, 0.0, 0.0, 0)
    with shared_cores(counts.counts.device):
        for first in range(0, len(starts), batch_size):
            batch = starts[first : first + batch_size]
            score += _score(
                model,
                windows_at(tokens, batch, length, counts.counts.device),
                0,
                byte_counts=counts,
                dtype=dtype,
                documents=documents,
                by_class=by_class,
            )
    return score


def evaluate_conversations(
    model: TransformerLM,
    batches: PackedBatches,
    numbers: Sequence[int],
    byte_counts: TokenBytes,
    *,
    batch_size: int = 16,
    dtype: torch.dtype = torch.float32,
    documents: MarkedDocuments | None = None,
    by_class: LossByClass | None = None,
) -> TextScore:
    """Score a model on what the assistant says in windows of conversations.

    Args:
        model: The model; it is set to evaluation mode.
        batches: Windows of conversations.
        numbers: Which windows of the first epoch.
        byte_counts: Result of `loss.token_byte_counts`.
        batch_size: Windows per batch.
        dtype: Type of matrix products.
        documents: Tokens attend to their own conversation alone.
        by_class: Receives the losses.
    """
    counts = _counts(byte_counts, model)
    score = TextScore(0, 0.0, 0.0, 0)
    with shared_cores(counts.counts.device):
        for first in range(0, len(numbers), batch_size):
            windows = torch.cat(
                [batches.windows(number, 1) for number in numbers[first : first + batch_size]]
            )
            if documents is not None:
                documents.windows = windows
            score += _score(
                model,
                inputs_and_targets(windows, counts.counts.device),
                0,
                byte_counts=counts,
                dtype=dtype,
                documents=documents,
                by_class=by_class,
            )
    return score


def evaluate_text(
    model: TransformerLM,
    tokens: TokenSequence,
    byte_counts: TokenBytes,
    *,
    stride: int | None = None,
    context_length: int | None = None,
    batch_size: int = 16,
    dtype: torch.dtype = torch.float32,
    documents: Documents | None = None,
    by_class: LossByClass | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TextScore:
    """Score a model on all of `tokens` but the first, each predicted once; memory does not grow with the tokens.

    Windows start every `stride` tokens; each scores only the tokens that the window before did not. With a stride of
    half the context, every token after the first window is predicted from at least half a context.

    Args:
        model: The model; it is set to evaluation mode.
        tokens: Ids.
        byte_counts: Result of `loss.token_byte_counts`.
        stride: Tokens between windows; by default the context length, so that windows do not overlap.
        context_length: Tokens per window; by default that of the model.
        batch_size: Windows per batch.
        dtype: Type of matrix products.
        documents: Tokens attend to their own document alone, as in training.
        by_class: Receives the losses.
        progress: Called with the number of scored tokens and their total.

    Raises:
        CorpusError: There are fewer than two tokens.
        NotFiniteError: The weights or the logits are not finite.
        ValueError: The stride or the context length is out of range.
    """
    length = context_length or model.config.context_length
    stride = stride or length
    if not 1 <= stride <= length <= model.config.context_length:
        raise ValueError(
            f"stride {stride} and context_length {length} must be from 1 to the model's {model.config.context_length}"
        )
    n_targets = len(tokens) - 1
    if n_targets < 1:
        raise CorpusError("fewer than two tokens: nothing to predict", hint="use more text")
    counts = _counts(byte_counts, model)
    score = TextScore(0, 0.0, 0.0, 0)
    with shared_cores(counts.counts.device):
        for starts, size, n_skipped in _windows(n_targets, length, stride, batch_size):
            score += _score(
                model,
                windows_at(tokens, starts, size, counts.counts.device),
                n_skipped,
                byte_counts=counts,
                dtype=dtype,
                documents=documents,
                by_class=by_class,
            )
            if not math.isfinite(score.nats):
                raise not_finite(model)
            if progress:
                progress(score.n_tokens, n_targets)
    return score


def _windows(
    n_targets: int, length: int, stride: int, batch_size: int
) -> Iterator[tuple[list[int], int, int]]:
    """Yield batches of windows: their starts, their size, and the number of first targets that were scored before."""
    size = min(length, n_targets)
    yield [0], size, 0
    batch: list[int] = []
    done = size
    while done + stride <= n_targets:
        batch.append(done + stride - length)
        done += stride
        if len(batch) == batch_size:
            yield batch, length, length - stride
            batch = []
    if batch:
        yield batch, length, length - stride
    if done < n_targets:
        yield [n_targets - size], size, size - (n_targets - done)


@torch.inference_mode()
def _score(
    model: TransformerLM,
    batch: tuple[Tensor, Tensor],
    n_skipped: int,
    *,
    byte_counts: TokenBytes,
    dtype: torch.dtype,
    documents: Documents | None = None,
    by_class: LossByClass | None = None,
) -> TextScore:
    model.eval()
    device = byte_counts.counts.device
    inputs, targets = batch
    with autocast(device, dtype):
        hidden = model.hidden(inputs, documents=documents)[:, n_skipped:]
        inputs, targets = inputs[:, n_skipped:], targets[:, n_skipped:]
        # A GPU computes the logits of some sequences at a time: those of a batch of training take gigabytes.
        n = len(hidden) if device.type == "cpu" else max(1, _POSITIONS // hidden.shape[1])
        parts = zip(split(hidden, n), split(targets, n), strict=True)
        losses = torch.cat([token_losses(model.logits(part), own.clamp(min=0)) for part, own in parts])
    if (targets < 0).any():
        losses, inputs, targets = (each[targets >= 0] for each in (losses, inputs, targets))
    if by_class is not None:
        by_class.add(losses, targets, byte_counts.of(inputs, targets))
    text_nats, n_bytes = text_nats_and_bytes(losses, inputs, targets, byte_counts)
    return TextScore(targets.numel(), float(losses.double().sum()), text_nats, n_bytes)


def _counts(byte_counts: TokenBytes, model: TransformerLM) -> TokenBytes:
    """Pad the counts to the vocabulary of the model, which may exceed that of the tokenizer."""
    return byte_counts.padded(model.config.vocab_size, next(model.parameters()).device)
