"""The guided first run: from text to tokens, to shards, to a small language model, and to a page about all of them."""

from __future__ import annotations

import ast
import hashlib
import math
import os
import shlex
import sysconfig
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.analysis.inspection import inspect, visible
from bytemill.analysis.summary import longest_words
from bytemill.comparison import compare
from bytemill.comparison.page import group_section
from bytemill.corpus import Corpus, iter_texts
from bytemill.data import TokenShards, encode_corpus
from bytemill.errors import CorpusError, OutputError, ShardError
from bytemill.report import Figure, Series, line_chart, render
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.system.atomic_files import make_folder, output_error, write_json, write_text
from bytemill.system.extras import install_hint
from bytemill.system.units import format_bytes, format_seconds
from bytemill.training.pipeline import train

if TYPE_CHECKING:
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
_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
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
        return {
            "folder": str(self.folder),
            "corpus": self.corpus,
            "shards": shards,
            "n_vocab": self.tokenizer.n_vocab,
            "fingerprint": self.tokenizer.fingerprint,
            "comparison": self.comparison.to_dict(),
            "model": self.model and asdict(self.model),
            "model_note": self.model_note,
            "timings": self.timings,
            "seconds": self.seconds,
        }


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
        smaller = {"bytes": tokenizer.truncate(256 + len(tokenizer.special_tokens))}
        smaller |= {f"{size:,} tokens": tokenizer.truncate(size) for size in sizes}
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


def python_documents() -> list[str]:
    """Return the documentation topics and the docstrings of this Python, one document per topic or module.

    The standard library is parsed, not imported.
    """
    documents: list[str] = []
    with suppress(ImportError):
        from pydoc_data.topics import topics

        documents += [text + "\n" for name in sorted(topics) if (text := str(topics[name]).strip())]
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if _SKIPPED_FOLDERS.intersection(path.relative_to(library).parts[:-1]):
            continue
        # The library's own strings have invalid escapes, and some of its files are no valid source on purpose.
        with suppress(OSError, SyntaxError, ValueError, RecursionError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = [n for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, _WITH_DOCSTRING)]
            if docstrings := list(filter(None, map(ast.get_docstring, nodes))):
                # Escapes in the source can spell lone surrogates, which UTF-8 cannot encode.
                documents.append("\n\n".join(docstrings).encode("utf-8", "replace").decode() + "\n")
    return documents


def file_documents(inputs: Sequence[str]) -> list[str]:
    """Return the documents of files, separated by `<|endoftext|>`. A few long ones are cut at line ends.

    Args:
        inputs: Paths, globs or folders.

    Raises:
        CorpusError: A file cannot be read, or the corpus is empty or larger than `MAX_BYTES`.
    """
    documents: list[str] = []
    n_stored, n_bytes = Corpus(inputs).total_bytes or 0, 0  # compressed files hold more text than bytes
    for text in iter_texts(list(inputs)):
        n_bytes += len(text.encode())
        if max(n_bytes, n_stored) > MAX_BYTES:
            raise CorpusError(
                f"the corpus has {format_bytes(max(n_bytes, n_stored))}; quickstart takes at most "
                f"{format_bytes(MAX_BYTES)}",
                hint="pass fewer files, or train on all of it: bytemill tokenizer train FILE --vocab-size 32000",
            )
        documents += [document for document in text.split(END_OF_TEXT) if document.strip()]
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
    chosen = set(order[: max(1, len(documents) // 10)])
    parts = ([text for i, text in enumerate(documents) if (i in chosen) == part] for part in (False, True))
    return next(parts), next(parts)


def _prepare(folder: Path) -> None:
    """Create the folder, or reuse that of an earlier run, which has a `quickstart.json`."""
    mark = folder / "quickstart.json"
    try:
        is_used = folder.is_dir() and any(folder.iterdir()) and not mark.is_file()
    except OSError as error:
        raise output_error(error, folder) from error
    if is_used:
        raise OutputError(
            f"{folder} holds files that are not from an earlier quickstart",
            hint="choose another folder: bytemill quickstart NAME",
        )
    make_folder(folder)
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
    from bytemill.lm.device import pick_device
    from bytemill.lm.evaluate import evaluate_text
    from bytemill.lm.generation.decoding import generate
    from bytemill.lm.loss import token_byte_counts
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
    model = load_trained(folder.path, str(pick_device())).model
    byte_counts = token_byte_counts(tokenizer)
    score = evaluate_text(model, ids, byte_counts, stride=max(1, context // 2))
    unigram = unigram_bits(np.bincount(train_ids, minlength=tokenizer.n_vocab))[ids[1:]]
    unigram_of_text = unigram[byte_counts.counts.numpy()[ids[1:]] > 0]  # special tokens have no bytes
    stop = frozenset(tokenizer.special_tokens.values())
    samples: list[tuple[str, str]] = []
    for seed, text in enumerate(validation[:3]):
        prompt = " ".join(text.split()[:5])
        prompt_ids = tokenizer.encode(prompt, allowed_special="none") or [tokenizer.eot_token]
        new = generate(model, prompt_ids, 80, temperature=0.8, top_p=0.95, stop_ids=stop, seed=seed)[0]
        samples.append((prompt, tokenizer.decode([token for token in new if token not in stop])))
    scores = {
        "unigram": (math.log(2) * unigram.mean().item(), unigram_of_text.sum().item() / score.n_bytes),
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
        corpus=_visible(result.corpus),
        tokenizer_seconds=result.timings[TRAINING_STEP],
        comparison=group_section(result.comparison, "text", 0),
        other_sample=inspect(tokenizer, _OTHER_SCRIPTS),
        merges=list(zip(tokenizer.merges, tokenizer.merge_counts or [], strict=True))[:48],
        longest_words=[token for _, token in longest_words(tokenizer, 24)],
        model=model,
        torch_is_missing="torch" in (result.model_note or ""),
        loss=model and _loss(model),
        scores=model and [(f"{bits:.2f}", name) for name, (_, bits) in model.scores.items()],
        samples=[] if model is None else [tuple(map(_visible, sample)) for sample in model.samples],
        times=[(format_seconds(seconds), step) for step, seconds in result.timings.items()],
        commands=[(purpose.capitalize(), _visible(line)) for purpose, line in result.commands],
    )


def _visible(text: str) -> str:
    """Make lines visible, which may hold control characters and, in file names, invalid UTF-8."""
    return "\n".join(visible(os.fsencode(line)) for line in text.split("\n"))


def _loss(model: ModelResult) -> Figure:
    """Draw training and validation loss over steps, with the unigram distribution as a level."""
    unigram, final = (loss for loss, _ in model.scores.values())
    validation = Series("validation text", 1, model.validation_curve)
    training = Series("training text", 2, model.curve, has_dots=False)
    chart = line_chart(
        "loss-chart",
        "Loss by step",
        f"Falling lines; the loss on the validation text ends at {final:.2f} nats per token.",
        [line for line in (validation, training) if line.points],
        x_axis="step",
        y_axis="nats per token",
        levels=[("unigram", unigram)],
    )
    caption = "Loss during training: lower is better. The dashed line knows only how often each token occurs."
    return Figure(chart, caption)
