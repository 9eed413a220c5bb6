"""Generated answers: the share of items whose answer is found in what the model writes.

With several samples, pass@k is the probability that at least one of k samples is right, estimated without bias from n
samples of which c are right: 1 − C(n − c, k) / C(n, k) (Chen et al. 2021, equation 1). A majority vote takes the answer
that most samples give (Wang et al. 2022).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from math import comb
from typing import TYPE_CHECKING, Any

from bytemill.errors import RunConfigError
from bytemill.lm.device import shared_cores
from bytemill.lm.generation.many import continue_prompts
from bytemill.lm.generation.sampling import SamplingParameters
from bytemill.lm.generation.text_generation import GenerationOptions, prompt_ids
from bytemill.lm.item_results import ItemResults, items_hash, results_identity
from bytemill.lm.multiple_choice import chat_prompt, check_chat
from bytemill.lm.tuning.rewards import chosen_letter, gsm8k_number, last_number

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from bytemill.lm.generation.many import Continuation
    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class AnswerItem:
    """A prompt and its answer."""

    context: str
    """The prompt."""
    answer: str
    """The answer of the data set, which may have a solution before it."""
    group: str = ""
    """What the item belongs to, such as a subject of MMLU."""
    text: str = ""
    """The text of the item itself, without prompt, for a search in training data."""
    introduction: str = ""
    """Text before the context; with a chat template what the system says."""

    def record(self) -> dict[str, Any]:
        """Return what results depend on, for JSON."""
        return {"context": self.introduction + self.context, "answer": self.answer}

    def example(self) -> str:
        """Return the item with its answer, as an example before others."""
        return f"{self.context} {self.answer}"

    @property
    def own_text(self) -> str:
        """The text of the item, without a prompt."""
        return self.text or self.context


@dataclass(frozen=True)
class AnswerForm:
    """How an answer is found in a text, and when two are the same."""

    find: Callable[[str], str | None]
    """Return the answer in what a model wrote."""
    key: Callable[[str], str]
    """Return what two equal answers share."""
    expected: Callable[[str], str | None] = lambda answer: answer
    """Return the answer in that of the data set."""


_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_FLEXIBLE = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
_BEFORE_ANSWER = re.compile(r".*#### ", re.DOTALL)


def strict_number(text: str) -> str | None:
    """Return the number after the first `####` as lm-evaluation-harness finds it (`strict-match`), or None.

    >>> strict_number("48 / 2 = 24 #### 1,072."), strict_number("It is 72.")
    ('1,072.', None)
    """
    found = _STRICT.search(text)
    return found[1] if found else None


def flexible_number(text: str) -> str | None:
    """Return the last number as lm-evaluation-harness finds it (`flexible-extract`), or None.

    >>> flexible_number("It costs $18.00 in all."), flexible_number("none")
    ('$18.00', None)
    """
    found = _FLEXIBLE.findall(text)
    return found[-1] if found else None


def exact_key(text: str) -> str:
    """Return what lm-evaluation-harness compares: a text up to `####`, commas, `$` and a full stop at its end left out.

    >>> exact_key("9 * 2 = 18 #### 1,018"), exact_key("$1018.")
    ('1018', '1018')
    """
    plain = _BEFORE_ANSWER.sub("", text.replace(",", "").replace("$", ""))
    return re.sub(r"\.$", "", plain).lower()


def _number_of(answer: str) -> str | None:
    return gsm8k_number(answer) or last_number(answer)


GSM8K_FORMS: dict[str, AnswerForm] = {
    "strict": AnswerForm(strict_number, exact_key),
    "flexible": AnswerForm(flexible_number, exact_key),
    "number": AnswerForm(last_number, lambda number: repr(float(number)), _number_of),
}
"""`strict` and `flexible` are those of lm-evaluation-harness; `number` compares the last number by its value, as the
reward `gsm8k-flexible`: 18.00 is 18."""
LETTER_FORMS: dict[str, AnswerForm] = {"letter": AnswerForm(chosen_letter, str)}


@dataclass(frozen=True)
class AnswerOptions:
    """How answers are generated."""

    max_tokens: int = 256
    """Maximum number of tokens of an answer."""
    n_samples: int = 1
    temperature: float = 0.0
    """0 always takes the most likely token."""
    seed: int = 0
    stop: tuple[str, ...] = ()
    """An answer ends before the first of these, and at a special token."""
    chat: bool = False
    """Put each prompt into the tokenizer's chat template, as what the user says."""


@dataclass(frozen=True)
class AnswerScore:
    """Accuracy of generated answers."""

    n_items: int
    accuracy: dict[str, float]
    """By form: the share of right answers; with several samples also pass@k and majority."""
    n_cut: int
    """Number of prompts that were cut on the left to leave room for the answer."""
    n_unfinished: int
    """Number of answers that reached the maximum number of tokens."""
    n_tokens: int
    """Number of generated tokens."""
    correct: dict[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]], repr=False)
    """For each item 1 or 0, or the estimated probability, by form."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, without the single items."""
        return {name: value for name, value in vars(self).items() if name != "correct"}


def evaluate_answers(
    model: TransformerLM,
    tokenizer: Tokenizer,
    items: Sequence[AnswerItem],
    forms: Mapping[str, AnswerForm],
    options: AnswerOptions,
    *,
    task: str = "answers",
    bos_id: int | None = None,
    batch_size: int = 16,
    results: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AnswerScore:
    """Let a model answer, and compute the accuracy over `items`.

    Args:
        model: The model; it is set to evaluation mode.
        tokenizer: Its tokenizer.
        items: The items, at least one.
        forms: How answers are found.
        options: How answers are generated.
        task: Name of the task in the file of results.
        bos_id: Id of the token that began every training document; it precedes each prompt.
        batch_size: Number of answers that are generated together.
        results: File to append the answers to each item to; items in the file are not answered again.
        settings: See `ItemResults`.
        progress: Called with the number of answered items and their total.

    Raises:
        CheckpointError: The file is of another model, other items or other options.
        NotFiniteError: The weights or the logits are not finite.
        RunConfigError: The options leave no room for a prompt, or ask for several samples of the most likely answer;
            or there is no template.
        OutputError: The file cannot be read or written.
    """
    n_prompt = model.config.context_length - options.max_tokens
    if n_prompt < 1:
        raise RunConfigError(
            f"answers of {options.max_tokens} tokens leave no room for a prompt in a context of "
            f"{model.config.context_length}",
            hint="lower --max-tokens",
        )
    if options.n_samples > 1 and not options.temperature:
        raise RunConfigError(
            f"{options.n_samples} samples at temperature 0 are all the same", hint="add --temperature 0.8"
        )
    if options.chat:
        check_chat(tokenizer)
    identity = "" if results is None else results_identity(model, tokenizer, items, bos_id, vars(options))
    generation = GenerationOptions(
        max_tokens=options.max_tokens,
        sampling=SamplingParameters(temperature=options.temperature),
        stop=options.stop,
        n_samples=options.n_samples,
        seed=options.seed,
    )
    with (
        ItemResults(results, task, identity, items_hash(items), settings) as known,
        shared_cores(next(model.parameters()).device),
    ):
        remaining = [number for number in range(len(items)) if number not in known.lines]
        prompts = {number: _prompt(tokenizer, items[number], bos_id, options.chat) for number in remaining}
        # Prompts of similar length are read together.
        remaining.sort(key=lambda number: len(prompts[number]))
        kept = {number: prompts[number][-n_prompt:] for number in remaining}
        ended: dict[int, list[Continuation]] = {number: [] for number in remaining}
        for new in continue_prompts(model, tokenizer, kept, generation, n_rows=batch_size):
            ended[new.prompt].append(new)
            if len(ended[new.prompt]) < options.n_samples:
                continue
            own = sorted(ended.pop(new.prompt), key=lambda each: each.sample)
            known.add(
                {
                    "item": new.prompt,
                    "answers": [each.text for each in own],
                    "n_tokens": sum(len(each.ids) for each in own),
                    "n_unfinished": sum(not each.is_ended for each in own),
                    "n_cut": int(len(kept[new.prompt]) < len(prompts[new.prompt])),
                }
            )
            if progress:
                progress(len(known.lines), len(items))
        return answer_score(items, known.lines, forms)


def _prompt(tokenizer: Tokenizer, item: AnswerItem, bos_id: int | None, chat: bool) -> list[int]:
    if chat:
        return tokenizer.encode(chat_prompt(tokenizer, item.context, item.introduction))
    ids = tokenizer.encode_ordinary(item.introduction + item.context)
    return [*([] if ids and bos_id is None else prompt_ids(tokenizer, "", bos_id)), *ids]


def answer_score(
    items: Sequence[AnswerItem], lines: Mapping[int, Mapping[str, Any]], forms: Mapping[str, AnswerForm]
) -> AnswerScore:
    """Return the score of items from their results, as `evaluate_answers` keeps them."""
    correct: dict[str, list[float]] = {}
    for number, item in enumerate(items):
        for name, form in forms.items():
            for measure, value in _values(lines[number]["answers"], item.answer, form).items():
                correct.setdefault(f"{name}{measure}", []).append(value)
    n_cut, n_unfinished, n_tokens = (
        sum(lines[number][name] for number in range(len(items)))
        for name in ("n_cut", "n_unfinished", "n_tokens")
    )
    return AnswerScore(
        len(items),
        {name: sum(own) / len(items) for name, own in correct.items()},
        n_cut,
        n_unfinished,
        n_tokens,
        {name: tuple(own) for name, own in correct.items()},
    )


def _values(texts: Sequence[str], answer: str, form: AnswerForm) -> dict[str, float]:
    """Return what the samples of one item score: the share of right ones, pass@k and majority."""
    wanted = form.expected(answer)
    expected = None if wanted is None else form.key(wanted)
    found = [None if (own := form.find(text)) is None else form.key(own) for text in texts]
    n, n_right = len(found), sum(own is not None and own == expected for own in found)
    values = {"": n_right / n}
    if n > 1:
        sizes = [size for size in (2**power for power in range(1, n.bit_length())) if size < n]
        values |= {f" pass@{k}": pass_at(n, n_right, k) for k in (*sizes, n)}
        votes = Counter(own for own in found if own is not None).most_common(1)
        values[" majority"] = float(bool(votes) and votes[0][0] == expected)
    return values


def pass_at(n: int, n_right: int, k: int) -> float:
    """Return the unbiased estimate of the probability that at least one of `k` samples is right.

    >>> pass_at(4, 1, 1), pass_at(4, 1, 2), pass_at(4, 3, 2)
    (0.25, 0.5, 1.0)
    """
    return 1 - comb(n - n_right, k) / comb(n, k)
