"""Multiple choice: the share of items whose correct ending is the most likely one.

Endings are encoded and scored as in lm-evaluation-harness (`LM._encode_pair`, `HFLM._loglikelihood_tokens`): an ending
follows its context after a space, white space at the end of a context belongs to the ending, and context and ending are
encoded together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bytemill.errors import RunConfigError
from bytemill.lm.device import autocast, shared_cores
from bytemill.lm.generation.text_generation import prompt_ids
from bytemill.lm.item_results import ItemResults, items_hash, results_identity
from bytemill.lm.loss import token_losses
from bytemill.lm.tensors import not_finite

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer

NORMALIZATIONS = ("sum", "tokens", "characters", "bytes")
"""Divisors of the log-likelihood of an ending: 1, or its number of tokens, characters or bytes."""


@dataclass(frozen=True)
class MultipleChoiceItem:
    """A context and its endings."""

    context: str
    endings: tuple[str, ...]
    label: int
    """Index of the correct ending."""
    group: str = ""
    """What the item belongs to, such as a subject of MMLU."""
    text: str = ""
    """The text of the item itself, without prompt, for a search in training data; empty: context and correct ending."""
    introduction: str = ""
    """Text before the context; with a chat template what the system says."""

    def record(self) -> dict[str, Any]:
        """Return what results depend on, for JSON."""
        return {"context": self.introduction + self.context, "endings": self.endings, "label": self.label}

    def example(self) -> str:
        """Return the item with its correct ending, as an example before others."""
        return f"{self.context} {self.endings[self.label]}"

    @property
    def own_text(self) -> str:
        """The text of the item, without a prompt."""
        return self.text or self.example()


@dataclass(frozen=True)
class MultipleChoiceScore:
    """Accuracy on items."""

    n_items: int
    accuracy: dict[str, float]
    """By normalization; lm-evaluation-harness calls "sum" acc, "characters" acc_norm and "bytes" acc_bytes."""
    n_cut: int
    """Number of endings whose context was cut on the left to fit the model."""
    n_unaligned: int
    """Number of endings for which the tokens of the context are not the first tokens of context and ending."""
    correct: dict[str, tuple[bool, ...]] = field(default_factory=dict[str, tuple[bool, ...]], repr=False)
    """Whether each item is correct, by normalization."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, without the single items."""
        return {name: value for name, value in vars(self).items() if name != "correct"}


@dataclass(frozen=True)
class Ending:
    """The ids of an ending after its context."""

    ids: NDArray[np.int32]
    """Ids of context and ending, as many as fit."""
    n_ending: int
    """Number of ids of the ending, which are the last ones."""
    was_cut: bool
    is_aligned: bool
    """The tokens of the context are the first ones of context and ending."""

    @property
    def inputs(self) -> bytes:
        """The ids that the model reads; endings of one token after the same context share them."""
        return self.ids[:-1].tobytes()


def evaluate_multiple_choice(
    model: TransformerLM,
    tokenizer: Tokenizer,
    items: Sequence[MultipleChoiceItem],
    *,
    task: str = "multiple choice",
    chat: bool = False,
    bos_id: int | None = None,
    batch_size: int = 16,
    dtype: torch.dtype = torch.float32,
    results: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MultipleChoiceScore:
    """Compute the accuracy over `items`.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        items: The items, at least one.
        task: Name of the task in the file of results.
        chat: Put each context into the tokenizer's chat template, as what the user says. The ending then follows the
            beginning of the answer without a space, as in lm-evaluation-harness.
        bos_id: Id of the token that began every training document; it precedes each context.
        batch_size: A batch holds at most this number times the context length in ids, padding included, or one item.
        dtype: Type of matrix products.
        results: File to append the log-likelihoods of each item to; items in the file are not computed again, so an
            interrupted evaluation resumes.
        settings: See `ItemResults`.
        progress: Called with the number of scored items and their total.

    Raises:
        CheckpointError: The file is of another model or other items.
        NotFiniteError: The weights or the logits are not finite.
        RunConfigError: A context is empty, and there is no token to start a document with; or there is no template.
        OutputError: The file cannot be read or written.
    """
    if chat:
        check_chat(tokenizer)
    identity = "" if results is None else results_identity(model, tokenizer, items, bos_id, {"chat": chat})
    device = next(model.parameters()).device
    with ItemResults(results, task, identity, items_hash(items), settings) as known, shared_cores(device):
        remaining = [number for number in range(len(items)) if number not in known.lines]
        # Sort by length to reduce padding; the scores do not depend on the order.
        endings = {number: _endings(model, tokenizer, items[number], bos_id, chat) for number in remaining}
        remaining.sort(key=lambda number: max(len(ending.ids) for ending in endings[number]))
        limit = batch_size * model.config.context_length
        for batch in _batches(remaining, lambda number: _n_padded(endings[number]), limit):
            rows = [ending for number in batch for ending in endings[number]]
            sums = iter(log_likelihoods(model, rows, dtype)[0])
            for number in batch:
                own = endings.pop(number)
                known.add(
                    {
                        "item": number,
                        "log_likelihoods": [next(sums) for _ in own],
                        "n_tokens": [ending.n_ending for ending in own],
                        "n_cut": sum(ending.was_cut for ending in own),
                        "n_unaligned": sum(not ending.is_aligned for ending in own),
                    }
                )
            if progress:
                progress(len(known.lines), len(items))
        return multiple_choice_score(items, known.lines)


def check_chat(tokenizer: Tokenizer) -> None:
    """Raise RunConfigError if the tokenizer has no chat template."""
    if tokenizer.chat_template is None:
        raise RunConfigError(
            "the tokenizer has no chat template",
            hint="evaluate without --chat, or tune the model with a tokenizer that has a template",
        )


def chat_prompt(tokenizer: Tokenizer, said: str, introduction: str = "") -> str:
    """Return what the system and a user say in the tokenizer's chat template, with the beginning of an answer."""
    messages = [{"role": "system", "content": introduction}] if introduction else []
    messages.append({"role": "user", "content": said})
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _endings(
    model: TransformerLM, tokenizer: Tokenizer, item: MultipleChoiceItem, bos_id: int | None, chat: bool
) -> list[Ending]:
    """Encode each ending after the context; white space before an ending belongs to it."""
    encode = tokenizer.encode if chat else tokenizer.encode_ordinary
    plain = item.introduction + item.context
    whole_context = chat_prompt(tokenizer, item.context, item.introduction) if chat else plain
    context = whole_context.rstrip()
    between = whole_context[len(context) :] + ("" if chat else " ")
    before = encode(context)
    is_started = bool(before) and (chat or bos_id is None)
    start = [] if is_started else prompt_ids(tokenizer, "", bos_id)
    before = [*start, *before]
    wholes = [[*start, *encode(f"{context}{between}{ending}")] for ending in item.endings]
    return [_cut(before, whole, model.config.context_length) for whole in wholes]


def _cut(before: list[int], whole: list[int], context_length: int) -> Ending:
    # A token may span the end of the context; the last token is always one of the ending.
    n_ending = max(1, len(whole) - len(before))
    whole = [before[0], *whole] if n_ending == len(whole) else whole
    # One id of the context must remain to predict the first id of the ending.
    n_kept = min(n_ending, context_length)
    whole = whole[: len(whole) - n_ending + n_kept]
    kept = whole[-(context_length + 1) :]
    return Ending(np.array(kept, np.int32), n_kept, len(kept) < len(whole), whole[: len(before)] == before)


def _n_padded(endings: list[Ending]) -> int:
    return len({ending.inputs for ending in endings}) * max(len(ending.ids) for ending in endings)


def _batches(items: Sequence[int], n_padded: Callable[[int], int], limit: int) -> Iterator[list[int]]:
    """Divide items, of increasing length, into batches of at most `limit` padded ids."""
    batch: list[int] = []
    for item in items:
        if batch and (len(batch) + 1) * n_padded(item) > limit:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


@torch.inference_mode()
def log_likelihoods(
    model: TransformerLM, rows: Sequence[Ending], dtype: torch.dtype = torch.float32
) -> tuple[list[float], list[bool]]:
    """Return the log-likelihood of each ending in nats, and whether each of its tokens is the most likely one.

    Args:
        model: The model; it is set to evaluation mode.
        rows: Endings after their contexts.
        dtype: Type of matrix products.

    Raises:
        NotFiniteError: The weights or the logits are not finite.
    """
    device = next(model.parameters()).device
    model.eval()
    length = max(len(row.ids) for row in rows) - 1
    numbers: dict[bytes, int] = {}
    for row in rows:
        numbers.setdefault(row.inputs, len(numbers))
    # Pad on the right, where the causal mask hides the padding.
    ids = torch.zeros((len(numbers), length), dtype=torch.int64)
    for row in rows:
        ids[numbers[row.inputs], : len(row.ids) - 1] = torch.tensor(row.ids[:-1])
    with autocast(device, dtype):
        hidden = model.hidden(ids.to(device))
    losses: list[torch.Tensor] = []
    is_greedy: list[torch.Tensor] = []
    for row in rows:
        # Compute only the logits of the ending; those of all positions would take far more memory.
        end = len(row.ids) - 1
        with autocast(device, dtype):
            logits = model.logits(hidden[numbers[row.inputs], end - row.n_ending : end])
        targets = torch.tensor(row.ids[-row.n_ending :], dtype=torch.int64, device=device)
        losses.append(token_losses(logits, targets).double().sum())
        is_greedy.append((logits.argmax(-1) == targets).all())
    sums = [-float(loss) for loss in torch.stack(losses).cpu()]  # waits for the device once
    if not all(map(math.isfinite, sums)):
        raise not_finite(model)
    return sums, [bool(own) for own in torch.stack(is_greedy).cpu()]


def multiple_choice_score(
    items: Sequence[MultipleChoiceItem], lines: Mapping[int, Mapping[str, Any]]
) -> MultipleChoiceScore:
    """Return the score of items from their results, as `evaluate_multiple_choice` keeps them."""
    correct: dict[str, list[bool]] = {name: [] for name in NORMALIZATIONS}
    for number, item in enumerate(items):
        line = lines[number]
        lengths = {
            "sum": [1] * len(item.endings),
            "tokens": line["n_tokens"],
            "characters": [len(ending) for ending in item.endings],
            "bytes": [len(ending.encode()) for ending in item.endings],
        }
        for name in NORMALIZATIONS:
            scores = [
                value / max(1, length)
                for value, length in zip(line["log_likelihoods"], lengths[name], strict=True)
            ]
            correct[name].append(scores.index(max(scores)) == item.label)
    n_cut, n_unaligned = (
        sum(lines[number][name] for number in range(len(items))) for name in ("n_cut", "n_unaligned")
    )
    return MultipleChoiceScore(
        len(items),
        {name: sum(own) / len(items) for name, own in correct.items()},
        n_cut,
        n_unaligned,
        {name: tuple(own) for name, own in correct.items()},
    )
