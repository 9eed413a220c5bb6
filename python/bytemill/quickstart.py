"""The guided first run: from text to tokens, to shards, to a small language model, and to a page about all of them."""

from __future__ import annotations

import hashlib
import math
import shlex
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.analysis.inspection import inspect
from bytemill.analysis.summary import longest_words
from bytemill.comparison import compare
from bytemill.comparison.page import group_section
from bytemill.corpus import Corpus, iter_texts
from bytemill.data import TokenShards, encode_corpus
from bytemill.datasets import python_documents
from bytemill.errors import CorpusError, OutputError, ShardError
from bytemill.report import Figure, Series, line_chart, render
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.system.atomic_files import make_folder, output_error, write_json, write_text
from bytemill.system.extras import install_hint
from bytemill.system.units import format_bytes, format_seconds
from bytemill.training.pipeline import train

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence

    from bytemill.comparison import Comparison
    from bytemill.data.manifest import Manifest
    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.training.pipeline import TrainingProgress

END_OF_TEXT = "<|endoftext|>"
"""Special token that ends every document."""
MAX_BYTES = 64_000_000
"""Largest corpus, because the run holds the text in memory."""
MODEL_STEPS = 300
TRAINING_STEP = "training the tokenizer"

_MIN_DOCUMENTS = 20
"""A corpus with fewer documents is cut into smaller ones, so that some can be set aside for validation."""
_OTHER_SCRIPTS = (
    "Ça va? Grüß Gott! Καλημέρα κόσμε. Доброе утро.\n"
    "こんにちは、世界。 안녕하세요. नमस्ते दुनिया। مرحبا بالعالم\n"
    "∀x ∈ ℝ: x² ≥ 0 → 👩‍🚀🎉"
)
"""Text that the corpus has little of, to show how it splits without merges of its own."""


@dataclass(frozen=True)
class ModelResult:
    """The small language model: size, training and scores."""

    folder: str
    n_parameters: int
    n_steps: int
    curve: list[tuple[int, float]]
    """(step, training loss)."""
    validation_curve: list[tuple[int, float]]
    scores: dict[str, tuple[float, float]]
    """Nats per token and bits per byte of the validation text, of the unigram distribution and of the model."""
    samples: list[tuple[str, str]]
    """(prompt, text that the model generated from it)."""


@dataclass(frozen=True)
class QuickstartResult:
    """Files and measurements of one quickstart run."""

    folder: Path
    corpus: str
    """Description or names of the text files."""
    shards: dict[str, Manifest]
    """Manifests of the parts "train" and "validation". The text of each is in a file of the same name."""
    tokenizer: Tokenizer
    comparison: Comparison
    """The tokenizers of no merges, of the first ones and, last, of all, on the validation text with its separators."""
    model: ModelResult | None
    model_note: str | None
    """Reason why there is no model."""
    timings: dict[str, float]
    """Seconds of each step."""

    @property
    def seconds(self) -> float:
        """Total wall-clock time, without writing the report."""
        return sum(self.timings.values())

    @property
    def bytes_per_token(self) -> float:
        """Bytes per token of the validation text."""
        *_, own = self.comparison.values["text"]["bytes_per_token"].values()
        return own.value or 0.0

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Suggested next commands as (purpose, command)."""
        tokenizer, shards = (shlex.quote(str(self.folder / name)) for name in ("tokenizer.json", "train"))
        generate = "" if self.model is None else f"bytemill lm generate {shlex.quote(self.model.folder)}"
        commands = {
            "generate text": f'{generate} "The function returns" --temperature 0.8',
            "show token probabilities": f'{generate} "The" --max-tokens 8 --show-probabilities',
            "show how a text splits": f"bytemill tokenizer inspect {tokenizer} \"It's naïve, isn't it?\"",
            "explain its merges": f"bytemill tokenizer inspect {tokenizer} unbelievable --explain",
            "show the vocabulary": f"bytemill tokenizer show {tokenizer}",
            "verify the shards": f"bytemill data info {shards} --verify",
            "train on your own text": "bytemill tokenizer train FILE... --vocab-size 32000",
        }
        return list(commands.items())[0 if self.model else 2 :]  # the first two need a model

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        counts = ("n_documents", "n_bytes", "n_tokens")
        shards = {part: {name: getattr(own, name) for name in counts} for part, own in self.shards.items()}
        own = {name: getattr(self, name) for name in ("corpus", "model_note", "timings", "seconds")}
        tokenizer = {name: getattr(self.tokenizer, name) for name in ("n_vocab", "fingerprint")}
        results = {"comparison": self.comparison.to_dict(), "model": self.model and asdict(self.model)}
        return {"folder": str(self.folder), "shards": shards} | own | tokenizer | results


def run(
    folder: str | os.PathLike[str] = "quickstart",
    *,
    corpus: Sequence[str] | None = None,
    vocab_size: int = 8192,
    model_steps: int = MODEL_STEPS,
    on_step: Callable[[str], None] | None = None,
    on_training: Callable[[TrainingProgress], None] | None = None,
    on_model: Callable[[dict[str, Any]], None] | None = None,
) -> QuickstartResult:
    """Train a tokenizer, encode the text to shards, compare, train a language model, and write a report.

    Args:
        folder: Output folder. Files of an earlier run are replaced.
        corpus: Text files. None uses the documentation of this Python.
        vocab_size: Tokens in the vocabulary, including `<|endoftext|>`.
        model_steps: Training steps of the language model; 0 skips it. Without torch there is no model.
        on_step: Called with the name of each step when it starts.
        on_training: Called with the progress of the tokenizer's training.
        on_model: Called with each record of the model's training log.

    Raises:
        CorpusError: The corpus cannot be used.
        TokenizerError: `vocab_size` is too small.
        OutputError: The folder cannot be written to, or holds other files.
    """
    output = Path(folder)
    timings: dict[str, float] = {}

    @contextmanager
    def step(name: str) -> Generator[None]:
        if on_step:
            on_step(name)
        started = time.perf_counter()
        yield
        timings[name] = time.perf_counter() - started

    with step("collecting text"):
        if corpus:
            read = Corpus(corpus)
            check_folder_is_no_input(output, files=read.input_files, folders=read.input_folders)
        training, validation = split(file_documents(corpus) if corpus else python_documents())
        _prepare(output)
        for name, documents in (("train", training), ("validation", validation)):
            write_text(output / f"{name}.txt", "".join(document + END_OF_TEXT for document in documents))
    with step(TRAINING_STEP):
        tokenizer = train([str(output / "train.txt")], vocab_size, [END_OF_TEXT], progress=on_training)
        tokenizer.save(output / "tokenizer.json")
    shards: dict[str, Manifest] = {}
    with step("encoding to shards, and decoding to check every byte"):
        for name in ("train", "validation"):
            text, part = output / f"{name}.txt", output / name
            shards[name] = encode_corpus(tokenizer, [str(text)], part, documents=END_OF_TEXT, overwrite=True)
            if tokenizer.decode_bytes(TokenShards(part)[:]) != text.read_bytes():
                raise ShardError(f"{part} does not decode to the bytes of {text}")
    with step("comparing"):
        # The tokenizers of no merges, of the first 512, 1,024, … and finally of all tokens.
        sizes = [*(2**power for power in range(9, 32) if 2**power < tokenizer.n_vocab), tokenizer.n_vocab]
        smaller = {f"{size:,} tokens": tokenizer.truncate(size) for size in sizes}
        smaller = {"bytes": tokenizer.truncate(256 + len(tokenizer.special_tokens)), **smaller}
        comparison = compare(smaller, str(output / "validation.txt"), documents=END_OF_TEXT)
    model, model_note = None, None
    if model_steps < 1:
        model_note = "disabled by --model-steps 0"
    elif find_spec("torch") is None:
        model_note = f"torch is not installed: {install_hint('lm')}, then run quickstart again"
    else:
        with step("training a language model"):
            model = _train_model(tokenizer, output, validation, model_steps, on_model)
    described = ", ".join(corpus) if corpus else "the documentation and docstrings of this Python"
    result = QuickstartResult(output, described, shards, tokenizer, comparison, model, model_note, timings)
    write_text(output / "report.html", _page(result))
    write_json(output / "quickstart.json", {"complete": True, **result.to_dict()})
    return result


# 1. Text: documents, of which a tenth is set aside.


def file_documents(inputs: Sequence[str]) -> list[str]:
    """Return the documents of files, separated by `<|endoftext|>`. A few long ones are cut at line ends.

    Args:
        inputs: Paths, globs or folders.

    Raises:
        CorpusError: A file cannot be read, or the corpus is empty or larger than `MAX_BYTES`.
    """
    texts = list(iter_texts(Corpus(inputs, limit_bytes=MAX_BYTES + 1)))
    if sum(len(text.encode()) for text in texts) > MAX_BYTES:
        raise CorpusError(
            f"quickstart takes at most {format_bytes(MAX_BYTES)} of text, and the corpus has more",
            hint="pass fewer files, or train on all of it: bytemill tokenizer train FILE --vocab-size 32000",
        )
    documents = [document for text in texts for document in text.split(END_OF_TEXT) if document.strip()]
    if len(documents) >= _MIN_DOCUMENTS:
        return documents
    of_lines = [document.splitlines(keepends=True) for document in documents]
    n = max(1, sum(map(len, of_lines)) // (2 * _MIN_DOCUMENTS))
    return ["".join(lines[at : at + n]) for lines in of_lines for at in range(0, len(lines), n)]


def split(documents: Sequence[str]) -> tuple[list[str], list[str]]:
    """Set a tenth of the documents aside for validation, chosen by hashes of the texts. Both lists keep the order.

    Documents stay whole, so no sentence of the validation text occurs in training.

    Raises:
        CorpusError: There are fewer than two documents.

    >>> split(["a", "b", "c"])
    (['a', 'b'], ['c'])
    """
    if len(documents) < 2:
        what = "the corpus has fewer than two lines, which leaves nothing for validation"
        raise CorpusError(what, hint="pass more text: --corpus FILE...")
    order = sorted(range(len(documents)), key=lambda i: hashlib.sha256(documents[i].encode()).digest())
    validation = sorted(order[: max(1, len(documents) // 10)])
    training = sorted(set(order) - set(validation))
    return [documents[i] for i in training], [documents[i] for i in validation]


def _prepare(folder: Path) -> None:
    """Create the folder, or reuse that of an earlier run, which has a `quickstart.json`."""
    mark = folder / "quickstart.json"
    make_folder(folder)
    try:
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise output_error(error, folder) from error
    if not is_empty and not mark.is_file():
        what = f"{folder} holds files that are not from an earlier quickstart"
        raise OutputError(what, hint="choose another folder: bytemill quickstart NAME")
    write_json(mark, {"complete": False})


# 2. A language model of a few million parameters.


def _train_model(
    tokenizer: Tokenizer,
    output: Path,
    validation: Sequence[str],
    n_steps: int,
    on_record: Callable[[dict[str, Any]], None] | None,
) -> ModelResult:
    """Train and evaluate a model on the shards in `output`; the first words of validation documents are prompts."""
    from bytemill.experiment.statistics import unigram_bits
    from bytemill.lm.evaluate import score_shards
    from bytemill.lm.generation.text_generation import sample_text
    from bytemill.lm.training.config import resolve
    from bytemill.lm.training.metrics_log import read_metrics
    from bytemill.lm.training.saved_model import load_trained
    from bytemill.lm.training.trainer import train as train_model

    train_ids, ids = (TokenShards(output / name)[:] for name in ("train", "validation"))
    # A text shorter than the context would leave no window to train on.
    context = max(1, min(128, (len(train_ids) - 1) // 2, len(ids) - 1))
    settings = {
        "model.preset": "tiny",
        "model.context_length": context,
        "data.tokenizer": str(output / "tokenizer.json"),
        **{f"data.{name}": str(output / name) for name in ("train", "validation")},
        # Muon learns more in so few steps: validation loss 6.28 after 60 steps of 8 windows; AdamW at 3e-3: 6.69.
        "optimizer.name": "muon",
        "optimizer.learning_rate": 1e-2,
        "schedule.warmup_steps": max(1, n_steps // 20),
        "training.steps": n_steps,
        "training.batch_size": 16,
        "run.folder": str(output / "model"),
        "run.validate_every": max(1, n_steps // 10),
        "run.checkpoint_every": 0,
        "run.keep_checkpoints": 1,
    }
    resolved = resolve([("quickstart", settings)], n_vocab=tokenizer.n_vocab)
    folder = train_model(resolved, overwrite=True, on_record=on_record)
    learning, validated = (
        [(own["step"], own["loss"]) for own in read_metrics(folder.metrics, kind) if own["loss"] is not None]
        for kind in ("step", "validation")
    )
    model = load_trained(folder.path).model
    score = score_shards(model, tokenizer, output / "validation", stride=max(1, context // 2))
    bits = unigram_bits(np.bincount(train_ids, minlength=tokenizer.n_vocab))[ids[1:]]
    text_bits = bits[
        ~np.isin(ids[1:], list(tokenizer.special_tokens.values()))
    ]  # special tokens have no bytes
    prompts = [" ".join(text.split()[:5]) for text in validation[:3]]
    samples = [
        (prompt, sample_text(model, tokenizer, prompt, 80, seed)) for seed, prompt in enumerate(prompts)
    ]
    scores = {
        "unigram": (math.log(2) * bits.mean().item(), text_bits.sum().item() / score.n_bytes),
        "the model": (score.loss, score.bits_per_byte),
    }
    return ModelResult(str(folder.path), model.n_parameters(), n_steps, learning, validated, scores, samples)


# 3. The page.


def _page(result: QuickstartResult) -> str:
    tokenizer, model = result.tokenizer, result.model
    return render(
        "quickstart.html",
        "bytemill.report",
        result=result,
        tokenizer_seconds=result.timings[TRAINING_STEP],
        comparison=group_section(result.comparison, "text", 0),
        other_sample=inspect(tokenizer, _OTHER_SCRIPTS),
        merges=list(zip(tokenizer.merges, tokenizer.merge_counts or [], strict=True))[:48],
        longest_words=[token for _, token in longest_words(tokenizer, 24)],
        loss=model and _loss(model),
        scores=model and [(f"{bits:.2f}", name) for name, (_, bits) in model.scores.items()],
        times=[(format_seconds(seconds), step) for step, seconds in result.timings.items()],
    )


def _loss(model: ModelResult) -> Figure:
    """Draw training and validation loss over steps, with the unigram distribution as a level."""
    unigram, final = (loss for loss, _ in model.scores.values())
    validation = Series("validation text", 1, model.validation_curve)
    lines = [validation, Series("training text", 2, model.curve, has_dots=False)]
    about = f"Falling lines; the loss on the validation text ends at {final:.2f} nats per token."
    drawn = [line for line in lines if line.points]
    axes = {"x_axis": "step", "y_axis": "nats per token"}
    chart = line_chart("loss-chart", "Loss by step", about, drawn, levels=[("unigram", unigram)], **axes)
    caption = "Loss during training: lower is better. The dashed line knows only how often each token occurs."
    return Figure(chart, caption)
