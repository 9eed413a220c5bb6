"""Tokens that a model has hardly learned: candidates by their rows, verified by asking the model to repeat them.

Land & Bartolo, "Fishing for Magikarp: automatically detecting under-trained tokens in large language models" (2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bytemill.errors import TokenizerError
from bytemill.lm.generation.text_generation import start_id
from bytemill.tokenizer.surgery.findings import Example, Finding

if TYPE_CHECKING:
    from torch import Tensor

    from bytemill.lm.training.saved_model import TrainedModel
    from bytemill.tokenizer.tokenizer import Tokenizer

SHARE_OF_CANDIDATES = 0.02
"""Share of the tokens that are verified."""
N_REPETITIONS = 4
SMALLEST_PROBABILITY = 0.01
"""Of a token after its repetitions; below it is under-trained."""
_BATCH = 64


@dataclass(frozen=True)
class Candidate:
    """A token whose row looks as if it had not been trained."""

    id: int
    distance: float
    """Of its row from those of unused ids (1 − cosine); without such ids the norm of its row."""
    probability: float
    """Of the token after it was repeated."""

    @property
    def is_verified(self) -> bool:
        """True if the model does not repeat it."""
        return self.probability < SMALLEST_PROBABILITY


def unused_ids(tokenizer: Tokenizer, n_rows: int) -> list[int]:
    """Return the rows of a model that no text trains: of ids without a token, padding included."""
    known = tokenizer.vocab.keys()
    return [i for i in range(n_rows) if i not in known]


def row_distances(rows: Tensor, unused: list[int]) -> Tensor:
    """Return for each row how far it is from one that was not trained.

    Args:
        rows: The output layer or the embedding, (vocab_size, d_model).
        unused: Rows that were not trained.

    Returns:
        1 − cosine to the mean of the unused rows, or without any the norm of each row.
    """
    if not unused:
        return _norms(rows)
    mean = rows[unused].mean(dim=0)
    lengths = _norms(rows) * _norms(mean[None])
    return 1 - (rows @ mean) / lengths.clamp_min(1e-12)


def _norms(rows: Tensor) -> Tensor:
    return (rows * rows).sum(dim=1).sqrt()


@torch.no_grad()
def under_trained(trained: TrainedModel, n_candidates: int | None = None) -> list[Candidate]:
    """Find the candidates of a model, the most likely first.

    Args:
        trained: The model with its tokenizer.
        n_candidates: Number of tokens to verify; by default 2 % of them.

    Raises:
        TokenizerError: The tokenizer has no token for a space.
    """
    tokenizer, model = trained.tokenizer, trained.model.eval()
    rows = model.lm_head.weight.float()
    special = set(tokenizer.special_tokens.values())
    ordinary = torch.tensor([i for i in tokenizer.vocab if i not in special])
    distances = row_distances(rows, unused_ids(tokenizer, len(rows))).cpu()[ordinary]
    wanted = round(SHARE_OF_CANDIDATES * len(ordinary)) if n_candidates is None else n_candidates
    nearest = distances.argsort(stable=True)[: max(1, wanted)]
    ids = ordinary[nearest]
    probabilities = torch.cat(
        [_repeated(trained, ids[at : at + _BATCH]) for at in range(0, len(ids), _BATCH)]
    )
    return [
        Candidate(int(i), float(distance), float(probability))
        for i, distance, probability in zip(ids, distances[nearest], probabilities, strict=True)
    ]


def _repeated(trained: TrainedModel, ids: Tensor) -> Tensor:
    """Return the probability of each token after it has been repeated, with spaces in between."""
    tokenizer, model = trained.tokenizer, trained.model
    space = tokenizer.token_to_id(b" ")
    if space is None:
        raise TokenizerError("the tokenizer has no token for a space")
    start = start_id(tokenizer, trained.bos_id)
    pairs = torch.stack([ids, torch.full_like(ids, space)], dim=1).repeat(1, N_REPETITIONS)
    if start is not None:
        pairs = torch.cat([torch.full((len(ids), 1), start), pairs], dim=1)
    device = model.lm_head.weight.device
    prompts = pairs[:, -model.config.context_length :].to(device)
    logits = model(prompts, last_only=True)[:, -1].float()
    return logits.softmax(dim=-1).cpu().gather(1, ids[:, None])[:, 0]


def under_trained_finding(trained: TrainedModel) -> Finding | None:
    """Return the verified tokens of a model as a finding; None without any."""
    vocab = trained.tokenizer.vocab
    found = [each for each in under_trained(trained) if each.is_verified]
    examples = [
        Example(each.id, vocab[each.id], f"probability {each.probability:.1e} when repeated")
        for each in found
    ]
    message = "tokens that the model has hardly learned"
    return Finding("under-trained", "warning", message, examples) if examples else None
