"""What the models of a study need: text, tokenizers, shards. They are kept, and made again only if they changed."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.corpus import Corpus
from bytemill.errors import RunConfigError
from bytemill.experiment.budget import Allowance, allowance, padded_sizes, with_equal_parameters
from bytemill.experiment.documents import StoredText, store_text
from bytemill.experiment.grid import Cell, TokenizerSource, tokenizer_sources
from bytemill.experiment.job import Job
from bytemill.experiment.scoring import segment_length
from bytemill.lm.planning import parameters_by_part
from bytemill.shards import TokenShards, encode_corpus
from bytemill.tokenizer.open_tokenizer import open_tokenizer
from bytemill.training.train import TrainingStoppedEarly, train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bytemill.experiment.study import Study
    from bytemill.lm.model_config import ModelConfig
    from bytemill.tokenizer.tokenizer import Tokenizer

END = "<|endoftext|>"
_SAMPLE = 2_000_000
"""Bytes of the training text on which bytes per token are measured."""
_VALIDATION_WINDOWS = 64


@dataclass(frozen=True)
class Arm:
    """The models of a tokenizer and a shape."""

    tokenizer: str
    model: str
    shape: ModelConfig
    allowance: Allowance
    parameters: dict[str, int]
    """By part: embeddings, output layer, rest."""


class Materials:
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
        self.study, self.folder, self._base, self._report = study, folder, base, report

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
        self._report(f"reading the text {name}")
        return store_text(
            self._paths(inputs),
            self.folder / "text" / name,
            documents=self.study.text.documents,
            max_bytes=limit,
        )

    def _paths(self, inputs: tuple[str, ...]) -> list[str]:
        return [name if "://" in name else str(self._base / name) for name in inputs]

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
        near = self._base / source.load
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
        path, wanted = self.tokenizer_path(source.name), [text.sha256, source.vocab_size, source.pattern]
        mark = path.with_suffix(".inputs")
        if path.exists() and mark.exists() and json.loads(mark.read_text(encoding="utf-8")) == wanted:
            return open_tokenizer(path)
        self._report(f"training the tokenizer {source.name}")
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
        mark.write_text(json.dumps(wanted), encoding="utf-8")
        return tokenizer

    @cached_property
    def bytes_per_token(self) -> dict[str, float]:
        """Bytes per token on the beginning of the training text."""
        documents: list[str] = []
        n_bytes = 0
        for document in self.train_text.documents():
            documents.append(document[: _SAMPLE - n_bytes].decode(errors="ignore"))
            n_bytes += len(document)
            if n_bytes >= _SAMPLE:
                break
        total = sum(len(document.encode()) for document in documents)
        return {
            name: total / (len(documents) + sum(map(len, tokenizer.encode_ordinary_batch(documents))))
            for name, tokenizer in self.tokenizers.items()
        }

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
    def segment_bytes(self) -> int:
        """Bytes of the pieces that are scored."""
        texts = [*self.domains.values()] + ([self.tuning_text] if self.study.learning_rate.search else [])
        context = min(shape.context_length for shape in self.shapes.values())
        return segment_length(texts, self.tokenizers, context, self.study.text.segment_bytes)

    def validation_shards(self, tokenizer: str) -> dict[str, Path]:
        """Encode the texts that learning curves are measured on; those shorter than a window are left out."""
        context = max(shape.context_length for (name, _), shape in self.shapes.items() if name == tokenizer)
        folders: dict[str, Path] = {}
        for domain, text in self.domains.items():
            folder = self.folder / "shards" / tokenizer / "validation" / domain
            self._encode(tokenizer, text, folder, {"sha256": text.sha256})
            if len(TokenShards(folder)) > context:
                folders[domain] = folder
        return folders

    def train_shards(self, tokenizer: str, seed: int) -> tuple[Path, int]:
        """Encode the training text in the order of a seed, as much as the longest model of the tokenizer needs.

        Returns:
            The folder, and the bytes of text in it.
        """
        arms = [arm for arm in self.arms(self.rates) if arm.tokenizer == tokenizer]
        if self.study.budget.equal == "bytes":
            n_bytes = int(self.study.budget.amount)
        else:
            n_bytes = round(max(arm.allowance.n_bytes for arm in arms) * 1.02) + 1000
        needed = max(arm.allowance.n_tokens for arm in arms) + 1
        while True:
            folder = self.folder / "shards" / tokenizer / f"seed{seed}"
            self._encode(tokenizer, self.train_text, folder, {"seed": seed, "n_bytes": n_bytes})
            if self.study.budget.equal == "bytes" or len(TokenShards(folder)) >= needed:
                return folder, n_bytes
            n_bytes = round(n_bytes * 1.1)

    @property
    def rates_path(self) -> Path:
        """File of `rates`."""
        return self.folder / "probe.json"

    @property
    def rates(self) -> dict[tuple[str, str], float] | None:
        """Tokens per second by tokenizer and model, if they have been measured."""
        if not self.rates_path.exists():
            return None
        rates: dict[str, float] = json.loads(self.rates_path.read_text(encoding="utf-8"))
        return {(name.split("/")[0], name.split("/")[1]): rate for name, rate in rates.items()}

    def _encode(self, tokenizer: str, text: StoredText, folder: Path, order: dict[str, Any]) -> None:
        own = self.tokenizers[tokenizer]
        mark = folder.parent / f"{folder.name}.inputs"
        wanted = json.dumps([own.fingerprint, text.sha256, order])
        if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
            return
        self._report(f"encoding {folder.relative_to(self.folder)}")
        mark.unlink(missing_ok=True)
        texts = (
            text.in_order(order["seed"], order["n_bytes"])
            if "seed" in order
            else (document.decode() for document in text.documents())
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        encode_corpus(
            own,
            Corpus.from_texts(texts),
            folder,
            document_separator=END,
            append_separator=True,
            allowed_special="none",
            overwrite=True,
        )
        mark.write_text(wanted, encoding="utf-8")

    def job(self, cell: Cell, rate: float) -> Job:
        """Return the work of a cell with a learning rate; text is encoded where that has not been done."""
        study, shape = self.study, self.shapes[cell.tokenizer, cell.model]
        shards, n_bytes = self.train_shards(cell.tokenizer, cell.seed)
        n_tokens = len(TokenShards(shards)) - 1
        arm = next(
            arm for arm in self.arms(self.rates) if (arm.tokenizer, arm.model) == (cell.tokenizer, cell.model)
        )
        allowed = arm.allowance
        if study.budget.equal == "bytes":
            allowed = allowance(
                "bytes", study.budget.amount, shape, self.batch_size, n_bytes / n_tokens, n_tokens=n_tokens
            )
        is_trial = cell.trial_rate is not None
        n_steps = max(1, int(allowed.n_steps * study.learning_rate.share)) if is_trial else allowed.n_steps
        share = n_steps / allowed.n_steps
        used = replace(
            allowed,
            n_steps=n_steps,
            n_tokens=round(allowed.n_tokens * share),
            n_bytes=round(allowed.n_bytes * share),
            flops=allowed.flops * share,
        )
        texts = {"tuning": self.tuning_text} if is_trial else self.domains
        validation = {} if is_trial else self.validation_shards(cell.tokenizer)
        folder = self.folder / "cells" / cell.name
        own = study.train_settings()
        settings: dict[str, Any] = {
            "training.batch_size": 32,
            **{f"model.{name}": value for name, value in shape.to_dict().items()},
            **own,
            "data.tokenizer": str(self.tokenizer_path(cell.tokenizer)),
            "data.train": str(shards),
            "data.validation": [f"{domain}={path}" for domain, path in validation.items()],
            "data.order": "sequential",
            "optimizer.learning_rate": rate,
            "training.steps": n_steps,
            "training.seed": cell.seed,
            "run.folder": str(folder / "run"),
            "run.log_every": max(1, n_steps // 100),
            "run.validate_every": max(1, -(-n_steps // study.n_checkpoints)),
            "run.validation_windows": _VALIDATION_WINDOWS,
            "run.checkpoint_every": max(1, -(-n_steps // study.n_checkpoints)),
            "run.keep_checkpoints": 1,
        }
        facts: dict[str, Any] = {
            "tokenizer": cell.tokenizer,
            "model": cell.model,
            "seed": cell.seed,
            "learning_rate": rate,
            "is_trial": is_trial,
            "n_steps": used.n_steps,
            "n_tokens": used.n_tokens,
            "n_bytes": used.n_bytes,
            "flops": used.flops,
            "parameters": arm.parameters,
            "n_ids": self.tokenizers[cell.tokenizer].n_vocab,
            "segment_bytes": self.segment_bytes,
        }
        job = Job(
            cell.name,
            str(folder),
            settings,
            {domain: str(text.folder) for domain, text in texts.items()},
            self.segment_bytes,
            facts,
            "",
            "" if is_trial else study.hellaswag and str(self._base / study.hellaswag),
        )
        return replace(job, inputs=self._fingerprint(job, cell, texts))

    def _fingerprint(self, job: Job, cell: Cell, texts: Mapping[str, StoredText]) -> str:
        """Hash what the result depends on, without the places of the files."""
        settings = {
            key: value for key, value in job.settings.items() if not key.startswith(("run.", "data."))
        }
        parts = [
            settings,
            job.facts,
            self.tokenizers[cell.tokenizer].fingerprint,
            self.train_text.sha256,
            {domain: text.sha256 for domain, text in texts.items()},
            hashlib.sha256(Path(job.hellaswag).read_bytes()).hexdigest() if job.hellaswag else "",
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
