"""Distillation: a model learns the distributions of a larger one, its teacher (Hinton et al. 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bytemill.errors import RunConfigError
from bytemill.lm.loss import cross_entropy
from bytemill.lm.tensors import widened
from bytemill.lm.training.saved_model import find_saved_model

if TYPE_CHECKING:
    from torch import Tensor

    from bytemill.lm.batches import Documents
    from bytemill.lm.kernels.choice import Kernels
    from bytemill.lm.model import TransformerLM
    from bytemill.lm.training.config import TrainConfig
    from bytemill.lm.training.saved_model import SavedModel
    from bytemill.tokenizer.tokenizer import Tokenizer


def find_teacher(config: TrainConfig, tokenizer: Tokenizer) -> SavedModel | None:
    """Find the model that `tuning.teacher` names, and check that it fits the run; None if the run has no teacher.

    Raises:
        RunConfigError: No teacher is named, or it has other ids or a shorter context.
        CheckpointError: There is no such model.
    """
    if config.tuning.method != "distill":
        return None
    name = config.tuning.teacher
    if not name:
        raise RunConfigError(
            "tuning.teacher is not set", hint="name the teacher: bytemill lm tune distill TEACHER"
        )
    saved = find_saved_model(name)
    own, theirs = config.model, saved.config.model
    if saved.fingerprint not in (None, tokenizer.fingerprint):
        raise RunConfigError(
            f"the tokenizer is not that of the teacher {name}",
            hint=f"use its tokenizer, also for the shards: --data.tokenizer {saved.tokenizer_path}",
        )
    if own.vocab_size != theirs.vocab_size:
        raise RunConfigError(
            f"model.vocab_size is {own.vocab_size:,}, but the teacher {name} has {theirs.vocab_size:,} ids",
            hint=f"add --model.vocab-size {theirs.vocab_size}",
        )
    if own.context_length > theirs.context_length:
        raise RunConfigError(
            f"model.context_length is {own.context_length:,}, but the teacher {name} reads only "
            f"{theirs.context_length:,} tokens",
            hint=f"add --model.context-length {theirs.context_length}",
        )
    return saved


def load_teacher(saved: SavedModel, device: torch.device, kernels: Kernels) -> TransformerLM:
    """Load a teacher, in evaluation mode and without gradients."""
    from bytemill.lm.model import TransformerLM

    teacher = TransformerLM(saved.config.model, seed=0)
    saved.load_weights(teacher)
    return teacher.to(device).eval().use_kernels(kernels).requires_grad_(False)


def distilled_losses(
    model: TransformerLM,
    teacher: TransformerLM,
    ids: Tensor,
    targets: Tensor,
    *,
    weight: float,
    temperature: float,
    z_loss: float = 0.0,
    documents: Documents | None = None,
    is_padded: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the loss of distillation, and without gradient the cross-entropy of the targets.

    Args:
        model: The student.
        teacher: The teacher.
        ids: Ids (..., n_tokens).
        targets: Their targets, of the same shape.
        weight: See `distillation_loss`, like `temperature`.
        temperature: Divides the logits of both.
        z_loss: See `loss.cross_entropy`.
        documents: Tokens attend to their own document alone.
        is_padded: Some targets are negative; they do not count.
    """
    with torch.no_grad():
        theirs = teacher.hidden(ids, documents=documents)
    own = model.hidden(ids, documents=documents)
    if is_padded:
        own, theirs, targets = (tensor[targets >= 0] for tensor in (own, theirs, targets))
    logits = model.logits(own)
    with torch.no_grad():
        taught = teacher.logits(theirs)
    loss = weight * distillation_loss(logits, taught, temperature)
    nats = cross_entropy(logits, targets, z_loss)
    if weight < 1:
        loss = loss + (1 - weight) * nats
    return loss, cross_entropy(logits.detach(), targets) if z_loss else nats.detach()


def distillation_loss(logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute T² · KL(softmax(teacher / T) ‖ softmax(student / T)), the mean over all positions, in nats.

    T² keeps the size of the gradients (Hinton et al. 2015, section 2).

    Args:
        logits: Of the student, (..., vocab_size).
        teacher_logits: Of the teacher, of the same shape.
        temperature: Temperature T.
    """
    own, theirs = (_log_softmax(widened(x) / temperature) for x in (logits, teacher_logits))
    return temperature**2 * (theirs.exp() * (theirs - own)).sum(-1).mean()


def _log_softmax(x: Tensor) -> Tensor:
    x = x - x.detach().amax(-1, keepdim=True)
    return x - x.exp().sum(-1, keepdim=True).log()
