"""What the models of a study need: text, tokenizers, shapes, shards, and the measured speed of training.

All are kept, and made again only if their inputs changed.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.corpus import Corpus
from bytemill.data import TokenShards, encode_corpus
from bytemill.errors import RunConfigError
from bytemill.experiment.budget import Allowance, allowance, padded_sizes, with_equal_parameters
from bytemill.experiment.documents import END, StoredText, store_text
from bytemill.experiment.results import StudyFolder, read_rates
from bytemill.experiment.scoring import common_context
from bytemill.experiment.study import TokenizerSource, tokenizer_sources
from bytemill.lm.planning import parameters_by_part
from bytemill.lm.training.config import resolve
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.trainer import train as train_model
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.system.atomic_files import write_json
from bytemill.tokenizer import open_tokenizer
from bytemill.training.pipeline import TrainingStoppedEarly, train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from bytemill.experiment.documents import StoredText
    from bytemill.experiment.study import Study
    from bytemill.lm.model_config import ModelConfig
    from bytemill.tokenizer.tokenizer import Tokenizer


_SAMPLE = 2_000_000
"""Bytes of the training text on which bytes per token are measured."""


@dataclass(frozen=True)
class Arm:
    """The models of a tokenizer and a shape."""

    tokenizer: str
    model: str
    shape: ModelConfig
    allowance: Allowance
    parameters: dict[str, int]
    """By part: embeddings, output layer, rest."""


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
        """The training text."""
        return self._store("train", self.study.text.train, self.study.text.max_bytes)

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
        paths = self._paths(inputs)
        corpus = Corpus(paths)
        own = {file.name for file in StudyFolder(self.folder).files}
        check_folder_is_no_input(
            self.folder, files=corpus.input_files, folders=corpus.input_folders, replaced=own.__contains__
        )
        return store_text(
            paths,
            self.folder / "text" / name,
            documents=self.study.text.documents,
            max_bytes=limit,
        )

    def _paths(self, inputs: tuple[str, ...]) -> list[str]:
        return [name if "://" in name else str(self.base / name) for name in inputs]

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
        inputs = source.inputs or self.study.text.train
        text = (
            self._store(f"tokenizer/{source.name}", inputs, self.study.text.max_bytes)
            if source.inputs
            else self.train_text
        )
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
    def bytes_per_token(self) -> dict[str, float]:
        """Bytes per token on the beginning of the training text."""
        n_bytes, counts = self._sample
        return {name: n_bytes / int(own.sum()) for name, own in counts.items()}

    @cached_property
    def unigram_entropy(self) -> dict[str, float]:
        """Bits per token of the unigram distribution on the beginning of the training text."""
        shares = {name: own[own > 0] / own.sum() for name, own in self._sample[1].items()}
        return {name: -float(own @ np.log2(own)) for name, own in shares.items()}

    @cached_property
    def _sample(self) -> tuple[int, dict[str, NDArray[np.int64]]]:
        """The bytes of the beginning of the training text, and the uses of each id, by tokenizer."""
        documents: list[str] = []
        n_bytes = 0
        for document in self.train_text.documents():
            documents.append(document[: _SAMPLE - n_bytes].decode(errors="ignore"))
            n_bytes += len(document)
            if n_bytes >= _SAMPLE:
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
        sizes = padded_sizes(
            {name: tokenizer.n_vocab for name, tokenizer in self.tokenizers.items()},
            self.study.budget.pad_vocab,
        )
        result: dict[tuple[str, str], ModelConfig] = {}
        for model in self.study.models:
            own = {name: self.study.shape(model, size) for name, size in sizes.items()}
            if self.study.budget.parameters == "all":
                own = with_equal_parameters(own)
            result |= {(name, model): shape for name, shape in own.items()}
        return result

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
        budget = self.study.budget
        result: list[Arm] = []
        for (tokenizer, model), shape in self.shapes.items():
            parts = parameters_by_part(shape)
            rest = sum(parts.values()) - parts["token embeddings"] - parts["output layer"]
            allowed = allowance(
                budget.equal,
                budget.amount,
                shape,
                self.batch_size,
                self.bytes_per_token[tokenizer],
                tokens_per_second=(tokens_per_second or {}).get((tokenizer, model)),
            )
            parameters = {
                "embedding": parts["token embeddings"],
                "output layer": parts["output layer"],
                "rest": rest,
            }
            result.append(Arm(tokenizer, model, shape, allowed, parameters))
        return result

    @cached_property
    def context_bytes(self) -> int:
        """Bytes of context that every scored byte has at least, as far as the context of its model allows."""
        if self.study.text.context_bytes is not None:
            return self.study.text.context_bytes
        texts = [*self.domains.values()] + ([self.tuning_text] if self.study.learning_rate.search else [])
        return common_context(
            texts, self.tokenizers.values(), min(shape.context_length for shape in self.shapes.values())
        )

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
        return {
            (tokenizer, model): rate
            for name, rate in rates.items()
            for tokenizer, _, model in [name.partition("/")]
        }


def validation_shards(study_inputs: StudyInputs, tokenizer: str) -> dict[str, Path]:
    """Encode the texts that learning curves are measured on; those shorter than a window are left out."""
    context = max(
        shape.context_length for (name, _), shape in study_inputs.shapes.items() if name == tokenizer
    )
    folders: dict[str, Path] = {}
    for domain, text in study_inputs.domains.items():
        folder = study_inputs.folder / "shards" / tokenizer / "validation" / domain
        _encode(study_inputs, tokenizer, text, folder, {})
        if len(TokenShards(folder)) > context:
            folders[domain] = folder
    return folders


def train_shards(study_inputs: StudyInputs, tokenizer: str, seed: int) -> tuple[Path, int]:
    """Encode the training text in the order of a seed, as much as the longest model of the tokenizer needs.

    Returns:
        The folder, and the bytes of text in it.
    """
    budget = study_inputs.study.budget
    arms = [arm for arm in study_inputs.arms(study_inputs.rates) if arm.tokenizer == tokenizer]
    if budget.equal == "bytes":
        n_bytes = int(budget.amount)
    else:
        n_bytes = round(max(arm.allowance.n_bytes for arm in arms) * 1.02) + 1000
    needed = max(arm.allowance.n_tokens for arm in arms) + 1
    while True:
        folder = study_inputs.folder / "shards" / tokenizer / f"seed{seed}"
        _encode(study_inputs, tokenizer, study_inputs.train_text, folder, {"seed": seed, "n_bytes": n_bytes})
        if budget.equal == "bytes" or len(TokenShards(folder)) >= needed:
            return folder, n_bytes
        n_bytes = round(n_bytes * 1.1)


def _encode(
    study_inputs: StudyInputs, tokenizer: str, text: StoredText, folder: Path, order: dict[str, Any]
) -> None:
    own = study_inputs.tokenizers[tokenizer]
    mark = folder.parent / f"{folder.name}.inputs"
    wanted = json.dumps([own.fingerprint, text.sha256, order]).encode()
    if mark.exists() and mark.read_bytes() == wanted:
        return
    study_inputs.report(f"encoding {folder.relative_to(study_inputs.folder)}")
    mark.unlink(missing_ok=True)
    texts = (
        text.in_order(order["seed"], order["n_bytes"])
        if order
        else (document.decode() for document in text.documents())
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    encode_corpus(
        own,
        Corpus.from_texts(texts),
        folder,
        documents=END,
        allowed_special="none",
        overwrite=True,
    )
    mark.write_bytes(wanted)


_PROBE_STEPS = 20


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
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            n_bytes = int((n_steps * study_inputs.batch_size + 1) * shape.context_length * 8)
            texts = study_inputs.train_text.in_order(0, n_bytes)
            encode_corpus(study_inputs.tokenizers[tokenizer], Corpus.from_texts(texts), folder / "shards")
            settings = {
                "training.batch_size": 32,
                **{f"model.{key}": value for key, value in shape.to_dict().items()},
                **study_inputs.study.train_settings(),
                "data.tokenizer": str(study_inputs.tokenizer_path(tokenizer)),
                "data.train": str(folder / "shards"),
                "training.steps": n_steps,
                "schedule.warmup_steps": 0,
                "run.folder": str(folder / "run"),
                "run.log_every": max(1, n_steps // 4),
                "run.checkpoint_every": 0,
            }
            records = read_metrics(train_model(resolve([("the probe", settings)])).metrics, "step")
        rates = [record["tokens_per_second"] for record in records]
        known[tokenizer, model] = float(np.median(rates[len(rates) // 2 :]))
    write_json(study_inputs.rates_path, {f"{name}/{model}": rate for (name, model), rate in known.items()})
    return known
