"""Run the quickstart, step by step."""

from __future__ import annotations

import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.analysis.metrics import token_size_histogram, vocabulary_use
from bytemill.analysis.summary import describe, longest_words
from bytemill.corpus import Corpus
from bytemill.errors import ShardError
from bytemill.quickstart import corpus as text_sources
from bytemill.quickstart.corpus import END_OF_TEXT
from bytemill.quickstart.folder import QuickstartFolder
from bytemill.quickstart.measure import compare, sweep
from bytemill.quickstart.report import report
from bytemill.quickstart.result import TRAINING_STEP, Part, QuickstartResult, Timing
from bytemill.shards import TokenShards, encode_corpus
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.system.atomic_files import write_text
from bytemill.system.extras import install_hint
from bytemill.training.pipeline import train

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence

    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.training.pipeline import TrainingProgress

DEFAULT_VOCAB_SIZE = 8192
"""Suits a few megabytes: the last merges still join pairs that occur dozens of times."""

_N_LONGEST = 8
_N_LONGEST_WORDS = 24
_N_FIRST_MERGES = 48


def run(
    folder: str | os.PathLike[str] = "quickstart",
    *,
    corpus: Sequence[str] | None = None,
    vocab_size: int = DEFAULT_VOCAB_SIZE,
    model_steps: int | None = None,
    on_step: Callable[[str], None] | None = None,
    on_training: Callable[[TrainingProgress], None] | None = None,
    on_model: Callable[[dict[str, Any]], None] | None = None,
) -> QuickstartResult:
    """Train a tokenizer, encode the text to shards, compare, train a language model, and write a report.

    Args:
        folder: Output folder. Files of an earlier run are replaced.
        corpus: Text files. None uses the documentation of this Python.
        vocab_size: Tokens in the vocabulary, including `<|endoftext|>`.
        model_steps: Training steps of the language model. None trains for about two minutes, 0 skips the model.
            Without torch there is no model.
        on_step: Called with the name of each step when it starts.
        on_training: Called with the progress of the tokenizer's training.
        on_model: Called with each record of the model's training log.

    Raises:
        CorpusError: The corpus cannot be used.
        TokenizerError: `vocab_size` is too small.
        OutputError: The folder cannot be written to, or holds other files.
    """
    output = QuickstartFolder(Path(folder))
    clock = _Clock(on_step)
    with clock.step("collecting text"):
        if corpus:
            read = Corpus(corpus)
            check_folder_is_no_input(output.path, files=read.input_files, folders=read.input_folders)
        documents = text_sources.file_documents(corpus) if corpus else text_sources.python_documents()
        training, validation = text_sources.split(documents)
        output.prepare()
        write_text(output.text("train"), _with_ends(training))
        write_text(output.text("validation"), _with_ends(validation))
    with clock.step(TRAINING_STEP):
        tokenizer = train([str(output.text("train"))], vocab_size, [END_OF_TEXT], progress=on_training)
        tokenizer.save(output.tokenizer)
    with clock.step("encoding to shards"):
        parts = [
            _encode(output, "train", tokenizer, n_documents=len(training)),
            _encode(output, "validation", tokenizer, n_documents=len(validation)),
        ]
    with clock.step("decoding and checking every byte"):
        for part in parts:
            check_round_trip(tokenizer, Path(part.shard_folder), Path(part.text_file))
    with clock.step("comparing"):
        training_text, validation_text = "\n".join(training), "\n".join(validation)
        comparison = compare(tokenizer, training, validation_text)
        points = sweep(tokenizer, training_text, validation_text)
        summary = describe(tokenizer, _N_LONGEST)
        validation_ids = tokenizer.encode(validation_text, allowed_special="none")
        text_sizes = token_size_histogram(tokenizer.decode_tokens_bytes(validation_ids))
        used_ids = np.unique(tokenizer.encode_to_numpy(training_text, allowed_special="none"))
        used = vocabulary_use(used_ids.tolist(), tokenizer.n_vocab)
    model = None
    model_note = _why_no_model(model_steps)
    if model_note is None:
        from bytemill.quickstart.model import train_model

        with clock.step("training a language model"):
            model = train_model(output, tokenizer, validation, model_steps, on_model)
    training_report = tokenizer.training_report
    if training_report is None:
        raise ValueError("training leaves a report")
    result = QuickstartResult(
        folder=str(output.path),
        tokenizer_file=str(output.tokenizer),
        report_file=str(output.report),
        corpus=", ".join(corpus) if corpus else "the documentation and docstrings of this Python",
        training=parts[0],
        validation=parts[1],
        n_vocab=tokenizer.n_vocab,
        fingerprint=tokenizer.fingerprint,
        training_report=training_report,
        comparison=comparison,
        sweep=points,
        vocabulary_token_sizes=summary.token_sizes,
        text_token_sizes=text_sizes,
        vocabulary_use=used,
        longest_tokens=summary.longest_tokens,
        longest_words=longest_words(tokenizer, _N_LONGEST_WORDS),
        first_merges=tokenizer.merges[:_N_FIRST_MERGES],
        first_merge_counts=(tokenizer.merge_counts or [])[:_N_FIRST_MERGES],
        model=model,
        model_note=model_note,
        timings=clock.timings,
    )
    write_text(output.report, report(result, tokenizer, validation))
    output.finish(result.to_dict())
    return result


def check_round_trip(tokenizer: Tokenizer, shard_folder: Path, text_file: Path) -> None:
    """Check that shards decode to exactly the bytes of a file.

    Args:
        tokenizer: The tokenizer of the shards.
        shard_folder: Folder of the shards.
        text_file: The encoded file.

    Raises:
        ShardError: They differ.
    """
    n_checked = 0
    with text_file.open("rb") as text:
        for ids in TokenShards(shard_folder).blocks():
            decoded = tokenizer.decode_bytes(ids)
            if decoded != text.read(len(decoded)):
                raise ShardError(f"{shard_folder} differs from {text_file} in the block at byte {n_checked}")
            n_checked += len(decoded)
        if text.read(1):
            raise ShardError(f"{shard_folder} ends after {n_checked} bytes of {text_file}, which is longer")


def _why_no_model(model_steps: int | None) -> str | None:
    if model_steps is not None and model_steps < 1:
        return "disabled by --model-steps 0"
    if find_spec("torch") is None:
        return f"torch is not installed: {install_hint('lm')}, then run quickstart again"
    return None


class _Clock:
    def __init__(self, on_step: Callable[[str], None] | None) -> None:
        self.timings: list[Timing] = []
        self._on_step = on_step

    @contextmanager
    def step(self, name: str) -> Generator[None]:
        if self._on_step:
            self._on_step(name)
        started = time.perf_counter()
        yield
        self.timings.append(Timing(name, time.perf_counter() - started))


def _with_ends(documents: list[str]) -> str:
    return "".join(document + END_OF_TEXT for document in documents)


def _encode(output: QuickstartFolder, part: str, tokenizer: Tokenizer, *, n_documents: int) -> Part:
    manifest = encode_corpus(
        tokenizer,
        [str(output.text(part))],
        output.shards(part),
        documents=END_OF_TEXT,
        overwrite=True,
    )
    if manifest.n_documents != n_documents:
        raise ShardError(f"{output.shards(part)} holds {manifest.n_documents} documents, not {n_documents}")
    return Part(
        text_file=str(output.text(part)),
        shard_folder=str(output.shards(part)),
        n_documents=manifest.n_documents,
        n_bytes=manifest.n_bytes,
        n_tokens=manifest.n_tokens,
    )
