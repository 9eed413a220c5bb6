"""What the models of a study need: text, tokenizers, shapes, budgets, shards, and the measured speed of training.

All files are kept, and made again only if their inputs changed.
"""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bytemill.corpus import Corpus
from bytemill.data import TokenShards, encode_corpus
from bytemill.errors import RunConfigError
from bytemill.experiment.documents import END, StoredText, store_text
from bytemill.experiment.results import StudyFolder, read_rates
from bytemill.experiment.scoring import common_context
from bytemill.experiment.study import TokenizerSource, tokenizer_sources
from bytemill.lm.planning import flops_per_token, n_parameters, parameters_by_part
from bytemill.lm.training.config import resolve
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.trainer import train as train_model
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.system.atomic_files import write_json
from bytemill.tokenizer import open_tokenizer
from bytemill.training.pipeline import TrainingStoppedEarly, train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.experiment.study import Study
    from bytemill.lm.model_config import ModelConfig
    from bytemill.tokenizer.tokenizer import Tokenizer

_MULTIPLE = 64
_WIDTH_STEP = 8
_SAMPLE = 2_000_000
"""Bytes of the training text on which bytes per token are measured."""
_PROBE_STEPS = 20


@dataclass(frozen=True)
class Allowance:
    """What a model is trained on."""

    n_steps: int
    n_tokens: int
    n_bytes: int
    """Bytes of text; for budgets other than bytes, an estimate from the tokenizer's bytes per token."""
    flops: float
    """With the output layer."""


def padded_sizes(n_ids: Mapping[str, int], rule: Literal["multiple", "alike"]) -> dict[str, int]:
    """Return the size of each vocabulary as the model has it.

    >>> padded_sizes({"a": 1000, "b": 2000}, "multiple"), padded_sizes({"a": 1000, "b": 2000}, "alike")
    ({'a': 1024, 'b': 2048}, {'a': 2048, 'b': 2048})
    """
    sizes = {name: -(-n // _MULTIPLE) * _MULTIPLE for name, n in n_ids.items()}
    return sizes if rule == "multiple" else dict.fromkeys(sizes, max(sizes.values()))


def with_equal_parameters(shapes: Mapping[str, ModelConfig]) -> dict[str, ModelConfig]:
    """Lower the feed-forward widths, so that every model has about as many parameters as the smallest.

    Widths are multiples of 8. Depth, width of the stream and heads stay, so that the models differ in one number.

    Raises:
        RunConfigError: A vocabulary alone has more parameters than the smallest model.
    """
    target = min(n_parameters(shape) for shape in shapes.values())
    result: dict[str, ModelConfig] = {}
    for name, shape in shapes.items():
        per_step = n_parameters(shape.replace(d_ff=shape.d_ff + _WIDTH_STEP)) - n_parameters(shape)
        n_fewer = round((n_parameters(shape) - target) / per_step)
        d_ff = shape.d_ff - _WIDTH_STEP * n_fewer
        if d_ff < _WIDTH_STEP:
            raise RunConfigError(
                f"{name} has {n_parameters(shape):,} parameters, and no feed-forward width brings it to the {target:,} "
                "of the smallest model",
                hint='use larger models or smaller vocabularies, or budget.parameters = "non-embedding"',
            )
        result[name] = shape.replace(d_ff=d_ff)
    return result


def allowance(
    rule: Literal["bytes", "tokens", "flops", "time"],
    amount: float,
    shape: ModelConfig,
    batch_size: int,
    bytes_per_token: float,
    *,
    n_tokens: int | None = None,
    tokens_per_second: float | None = None,
) -> Allowance:
    """Return what a model may be trained on.

    Steps are whole: a model stays at most one step below the budget.

    Args:
        rule: What is equal.
        amount: How much of it.
        shape: Shape of the model.
        batch_size: Sequences per step.
        bytes_per_token: Of the tokenizer on the training text.
        n_tokens: For bytes, the number of tokens that the bytes have become; by default the estimate.
        tokens_per_second: For time, the speed of training.

    Raises:
        RunConfigError: The budget is below one step.
    """
    per_token = flops_per_token(shape)
    tokens = {
        "bytes": amount / bytes_per_token if n_tokens is None else n_tokens,
        "tokens": amount,
        "flops": amount / per_token,
        "time": amount * (tokens_per_second or math.nan),
    }[rule]
    per_step = batch_size * shape.context_length
    if not tokens >= per_step:
        raise RunConfigError(
            f"the budget of {amount:,.0f} {'seconds' if rule == 'time' else rule} is {tokens:,.0f} tokens, fewer than "
            f"the {per_step:,} of one step",
            hint="raise budget.amount, or lower train.training.batch_size or the context length of the models",
        )
    n_steps = int(tokens // per_step)
    used = n_steps * per_step
    return Allowance(n_steps, used, round(used * bytes_per_token), used * per_token)


@dataclass(frozen=True)
class Arm:
    """The models of a tokenizer, a text and a shape."""

    tokenizer: str
    model: str
    shape: ModelConfig
    allowance: Allowance
    parameters: dict[str, int]
    """By part: embeddings, output layer, rest."""
    text: str = ""
    """Name of the text that they are trained on; empty for `text.train`."""


class StudyInputs:
    """The text and the tokenizers of a study in its folder, and what follows from them.

    Args:
        study: The study.
        folder: Its folder.
        base: Folder that paths in the study file are relative to.
        report: Called with what is being made.
    """

    def __init__(
        self, study: Study, folder: Path, base: Path, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self.study, self.folder, self.base, self.report = study, folder, base, report

    @cached_property
    def train_text(self) -> StoredText:
        """The training text of tokenizers, and of models if the study has no `texts`."""
        return self._store("train", self.study.text.train, self.study.text.max_bytes)

    @cached_property
    def arm_texts(self) -> dict[str, StoredText]:
        """The texts that models are trained on, by name; the name of `text.train` is empty."""
        limit = self.study.text.max_bytes
        own = {each.name: self._store(f"texts/{each.name}", each.train, limit) for each in self.study.texts}
        return own or {"": self.train_text}

    @cached_property
    def domains(self) -> dict[str, StoredText]:
        """The texts that models are scored on, by name."""
        limit = self.study.text.validation_bytes
        return {
            name: self._store(f"validation/{name}", inputs, limit)
            for name, inputs in self.study.text.validation.items()
        }

    @cached_property
    def tuning_text(self) -> StoredText:
        """The text that learning rates are chosen on."""
        return self._store("tuning", self.study.text.tuning, self.study.text.validation_bytes)

    def _store(self, name: str, inputs: tuple[str, ...], limit: int | None) -> StoredText:
        self.report(f"reading the text {name}")
        paths = [each if "://" in each else str(self.base / each) for each in inputs]
        read, own = Corpus(paths), {file.name for file in StudyFolder(self.folder).files}
        check_folder_is_no_input(
            self.folder, files=read.input_files, folders=read.input_folders, replaced=own.__contains__
        )
        target, documents = self.folder / "text" / name, self.study.text.documents
        return store_text(paths, target, documents=documents, max_bytes=limit)

    @cached_property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizers by name, trained where the study says so.

        Raises:
            RunConfigError: One has no `<|endoftext|>`, or the text does not support the vocabulary.
        """
        result: dict[str, Tokenizer] = {}
        for name, source in tokenizer_sources(self.study).items():
            tokenizer = self._load(source) if source.load else self._train(source)
            if END not in tokenizer.special_tokens:
                raise RunConfigError(
                    f"tokenizers.{name} has no {END}, which ends documents in a study",
                    hint="add it to the tokenizer as a special token",
                )
            result[name] = tokenizer
        return result

    def tokenizer_path(self, name: str) -> Path:
        """File of a tokenizer, in the folder of the study."""
        return self.folder / "tokenizers" / f"{name}.json"

    def _load(self, source: TokenizerSource) -> Tokenizer:
        near = self.base / source.load
        tokenizer = open_tokenizer(near if near.exists() else source.load)
        path = self.tokenizer_path(source.name)
        if not path.exists() or open_tokenizer(path).fingerprint != tokenizer.fingerprint:
            path.parent.mkdir(parents=True, exist_ok=True)
            tokenizer.save(path)
        return tokenizer

    def _train(self, source: TokenizerSource) -> Tokenizer:
        text = self.train_text
        if source.inputs:
            text = self._store(f"tokenizer/{source.name}", source.inputs, self.study.text.max_bytes)
        path = self.tokenizer_path(source.name)
        wanted = json.dumps([text.sha256, source.vocab_size, source.pattern]).encode()
        mark = path.with_suffix(".inputs")
        if path.exists() and mark.exists() and mark.read_bytes() == wanted:
            return open_tokenizer(path)
        self.report(f"training the tokenizer {source.name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingStoppedEarly)  # an error below
            tokenizer = train(
                Corpus.from_texts(document.decode() for document in text.documents()),
                vocab_size=source.vocab_size,
                special_tokens=[END],
                pattern=None if source.pattern == "none" else source.pattern,
            )
        if tokenizer.n_vocab < source.vocab_size:
            raise RunConfigError(
                f"tokenizers.{source.name}: the text supports {tokenizer.n_vocab:,} ids, not {source.vocab_size:,}",
                hint="lower vocab_sizes, or train on more text",
            )
        tokenizer.save(path)
        mark.write_bytes(wanted)
        return tokenizer

    @cached_property
    def bytes_per_token(self) -> dict[tuple[str, str], float]:
        """Bytes per token on the beginning of a training text, by tokenizer and text."""
        return {
            (name, text): n_bytes / int(own.sum())
            for text, (n_bytes, counts) in self._samples.items()
            for name, own in counts.items()
        }

    @cached_property
    def unigram_entropy(self) -> dict[tuple[str, str], float]:
        """Bits per token of the unigram distribution on the beginning of a training text, by tokenizer and text."""
        shares = {
            (name, text): own[own > 0] / own.sum()
            for text, (_, counts) in self._samples.items()
            for name, own in counts.items()
        }
        return {arm: -float(own @ np.log2(own)) for arm, own in shares.items()}

    @cached_property
    def _samples(self) -> dict[str, tuple[int, dict[str, NDArray[np.int64]]]]:
        """The bytes of the beginning of each training text, and the uses of each id, by tokenizer."""
        return {name: self._sample(text) for name, text in self.arm_texts.items()}

    def _sample(self, text: StoredText) -> tuple[int, dict[str, NDArray[np.int64]]]:
        documents: list[str] = []
        n_left = _SAMPLE
        for document in text.documents():
            documents.append(document[:n_left].decode(errors="ignore"))
            n_left -= len(document)
            if n_left <= 0:
                break
        counts: dict[str, NDArray[np.int64]] = {}
        for name, tokenizer in self.tokenizers.items():
            ids, _ = tokenizer.encode_batch_to_numpy(documents, allowed_special="none")
            counts[name] = np.bincount(ids, minlength=tokenizer.n_vocab)
            counts[name][tokenizer.eot_token] += len(documents)
        return sum(len(document.encode()) for document in documents), counts

    @cached_property
    def shapes(self) -> dict[tuple[str, str], ModelConfig]:
        """Shape of each tokenizer's models, by tokenizer and name of the shape."""
        n_ids = {name: tokenizer.n_vocab for name, tokenizer in self.tokenizers.items()}
        sizes = padded_sizes(n_ids, self.study.budget.pad_vocab)
        result: dict[tuple[str, str], ModelConfig] = {}
        for model in self.study.models:
            own = {name: self.study.shape(model, size) for name, size in sizes.items()}
            if self.study.budget.parameters == "all":
                own = with_equal_parameters(own)
            result |= {(name, model): shape for name, shape in own.items()}
        return result

    def model_settings(self, tokenizer: str, model: str) -> dict[str, Any]:
        """Return the settings of `lm train` that all runs of an arm share, with flat keys."""
        return {
            "training.batch_size": 32,
            **{f"model.{key}": value for key, value in self.shapes[tokenizer, model].to_dict().items()},
            **self.study.train_settings(),
            "data.tokenizer": str(self.tokenizer_path(tokenizer)),
        }

    @property
    def batch_size(self) -> int:
        """Sequences per step."""
        settings = self.study.train_settings()
        return settings.get("training.batch_size", 32) * settings.get("training.accumulation", 1)

    def arms(self, tokens_per_second: Mapping[tuple[str, str], float] | None = None) -> list[Arm]:
        """Return the arms of the study, with estimates where text is not encoded yet.

        Args:
            tokens_per_second: Speed of training by tokenizer and model; needed for a budget of time.

        Raises:
            RunConfigError: The budget is below one step.
        """
        rule, amount = self.study.budget.equal, self.study.budget.amount
        result: list[Arm] = []
        for (tokenizer, model), shape in self.shapes.items():
            parts = parameters_by_part(shape)
            own = {"embedding": parts["token embeddings"], "output layer": parts["output layer"]}
            own["rest"] = sum(parts.values()) - sum(own.values())
            rate = (tokens_per_second or {}).get((tokenizer, model))
            for text in self.arm_texts:
                density = self.bytes_per_token[tokenizer, text]
                allowed = allowance(rule, amount, shape, self.batch_size, density, tokens_per_second=rate)
                result.append(Arm(tokenizer, model, shape, allowed, own, text))
        return result

    @cached_property
    def context_bytes(self) -> int:
        """Bytes of context that every scored byte has at least, as far as the context of its model allows."""
        if self.study.text.context_bytes is not None:
            return self.study.text.context_bytes
        texts = [*self.domains.values()] + ([self.tuning_text] if self.study.learning_rate.search else [])
        shortest = min(shape.context_length for shape in self.shapes.values())
        return common_context(texts, self.tokenizers.values(), shortest)

    @property
    def rates_path(self) -> Path:
        """File of `rates`."""
        return self.folder / "probe.json"

    @property
    def rates(self) -> dict[tuple[str, str], float] | None:
        """Tokens per second by tokenizer and model, if they have been measured."""
        try:
            rates = read_rates(self.rates_path)
        except FileNotFoundError:
            return None
        named = ((name.partition("/"), rate) for name, rate in rates.items())
        return {(tokenizer, model): rate for (tokenizer, _, model), rate in named}


def validation_shards(study_inputs: StudyInputs, tokenizer: str) -> dict[str, Path]:
    """Encode the texts that learning curves are measured on; those shorter than a window are left out."""
    shapes = [shape for (name, _), shape in study_inputs.shapes.items() if name == tokenizer]
    folders: dict[str, Path] = {}
    for domain, text in study_inputs.domains.items():
        folder = _encode(study_inputs, tokenizer, text, f"validation/{domain}", {})
        if len(TokenShards(folder)) > max(shape.context_length for shape in shapes):
            folders[domain] = folder
    return folders


def train_shards(study_inputs: StudyInputs, tokenizer: str, seed: int, text: str = "") -> tuple[Path, int]:
    """Encode a training text in the order of a seed, as much as the longest model of the tokenizer needs.

    Returns:
        The folder, and the bytes of text in it.
    """
    known = study_inputs.arms(study_inputs.rates)
    arms = [arm for arm in known if (arm.tokenizer, arm.text) == (tokenizer, text)]
    name = f"texts/{text}/seed{seed}" if text else f"seed{seed}"
    is_exact = study_inputs.study.budget.equal == "bytes"
    n_bytes = int(study_inputs.study.budget.amount)
    if not is_exact:
        n_bytes = round(max(arm.allowance.n_bytes for arm in arms) * 1.02) + 1000
    needed = max(arm.allowance.n_tokens for arm in arms) + 1
    while True:
        order = {"seed": seed, "n_bytes": n_bytes}
        folder = _encode(study_inputs, tokenizer, study_inputs.arm_texts[text], name, order)
        if is_exact or len(TokenShards(folder)) >= needed:
            return folder, n_bytes
        n_bytes = round(n_bytes * 1.1)


def _encode(
    study_inputs: StudyInputs, tokenizer: str, text: StoredText, name: str, order: dict[str, Any]
) -> Path:
    """Return the folder of a text's shards: in the text's own order, or in that of a seed up to a number of bytes."""
    own, folder = study_inputs.tokenizers[tokenizer], study_inputs.folder / "shards" / tokenizer / name
    mark = folder.parent / f"{folder.name}.inputs"
    wanted = json.dumps([own.fingerprint, text.sha256, order]).encode()
    if not (mark.exists() and mark.read_bytes() == wanted):
        study_inputs.report(f"encoding shards/{tokenizer}/{name}")
        mark.unlink(missing_ok=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        texts = text.in_order(**order) if order else (document.decode() for document in text.documents())
        corpus = Corpus.from_texts(texts)
        encode_corpus(own, corpus, folder, documents=END, allowed_special="none", overwrite=True)
        mark.write_bytes(wanted)
    return folder


def probe_rates(
    study_inputs: StudyInputs, report: Callable[[str], None], n_steps: int = _PROBE_STEPS
) -> dict[tuple[str, str], float]:
    """Return the tokens per second of each arm, measured once and kept in the folder of the study.

    Args:
        study_inputs: The text and tokenizers of the study.
        report: Called with what is being measured.
        n_steps: Steps to train; the first half is not measured.
    """
    known = dict(study_inputs.rates or {})
    for (tokenizer, model), shape in study_inputs.shapes.items():
        if (tokenizer, model) in known:
            continue
        report(f"measuring the speed of {tokenizer} with {model}")
        with tempfile.TemporaryDirectory() as folder:
            n_bytes = int((n_steps * study_inputs.batch_size + 1) * shape.context_length * 8)
            texts = study_inputs.train_text.in_order(0, n_bytes)
            encode_corpus(study_inputs.tokenizers[tokenizer], Corpus.from_texts(texts), f"{folder}/shards")
            settings = {
                **study_inputs.model_settings(tokenizer, model),
                "data.train": f"{folder}/shards",
                "training.steps": n_steps,
                "schedule.warmup_steps": 0,
                "run.folder": f"{folder}/run",
                "run.log_every": max(1, n_steps // 4),
                "run.checkpoint_every": 0,
            }
            records = read_metrics(train_model(resolve([("the probe", settings)])).metrics, "step")
        rates = [record["tokens_per_second"] for record in records]
        known[tokenizer, model] = float(np.median(rates[len(rates) // 2 :]))
    write_json(study_inputs.rates_path, {f"{name}/{model}": rate for (name, model), rate in known.items()})
    return known
