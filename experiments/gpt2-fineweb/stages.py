"""The stages of the study: the commands of `bytemill`, their sizes and their times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.lm.planning import DEVICES, n_parameters, training_days
from bytemill.lm.training.config import file_layer, resolve
from bytemill.system.units import format_count

if TYPE_CHECKING:
    import argparse

    from bytemill.lm.training.config import TrainConfig

HERE = Path(__file__).resolve().parent
END = "<|endoftext|>"
ENCODING_RATE = 100e6
"""Assumed bytes of text per second, encoded or re-encoded."""
BYTES_PER_TOKEN = 4.6
"""Of FineWeb-Edu under GPT-2's tokenizer, roughly; only sizes and times that are shown depend on it."""
FEWER_BYTES_PER_TOKEN = 4.0
"""Assumed of the smaller vocabularies: their shards are larger."""
UTILIZATION = 0.4
"""Assumed share of the device's peak."""


@dataclass(frozen=True)
class Scale:
    """A size of the study; its training settings are in the file NAME.toml."""

    vocab_sizes: dict[str, int]
    """Our own tokenizers: name -> number of ids."""
    n_tokens: float
    """Tokens to encode with GPT-2's tokenizer, at least those of the training run."""
    tokenizer_text: str
    """Text that our tokenizers are trained on."""
    validation_fraction: float
    device: str | None
    """Device that the time is estimated for."""

    @property
    def text_bytes(self) -> int:
        return int(self.n_tokens * BYTES_PER_TOKEN)


OWN = {"own-16k": 16_384, "own-32k": 32_768}
SCALES = {
    "full": Scale(OWN, 10.1e9, "2GB", 0.01, "h100"),
    "single-gpu": Scale(OWN, 2.7e9, "2GB", 0.01, "h100"),
    "miniature": Scale({"own-512": 512, "own-1k": 1024}, 40e3, "200kB", 0.05, None),
}


@dataclass(frozen=True)
class Stage:
    """A command, and how to see that it is done."""

    title: str
    words: tuple[str, ...]
    """Arguments of `bytemill`."""
    result: Path
    """File that exists when the stage is done."""
    n_bytes: float = 0
    """Approximate size of its output."""
    seconds: float | None = None
    """Approximate duration; None: unknown."""
    keep_output: bool = False
    """Write standard output to `result`."""

    @property
    def is_done(self) -> bool:
        return self.result.exists()


def training_config(scale_name: str) -> TrainConfig:
    """Return the training settings of a scale."""
    return resolve([file_layer(HERE / f"{scale_name}.toml")]).config


def stages(options: argparse.Namespace) -> list[Stage]:
    """Return the commands of the study, in order."""
    folder, scale = Path(options.folder), SCALES[options.scale]
    shards = folder / "shards"
    text_options = [word for name in options.documents for word in ("--documents", name)]
    tokenizers = {"gpt2": options.tokenizer} | {
        name: str(folder / f"{name}.json") for name in scale.vocab_sizes
    }
    vocab_sizes = {"gpt2": options.vocab_size, **scale.vocab_sizes}
    found: list[Stage] = []
    for name, size in scale.vocab_sizes.items():
        words = ("tokenizer", "train", *options.text, *text_options, "--special-token", END)
        words += (
            "--vocab-size",
            str(size),
            "--limit-bytes",
            scale.tokenizer_text,
            "--output",
            tokenizers[name],
        )
        found.append(Stage(f"train the tokenizer {name}", words, Path(tokenizers[name]), 1e6, 60))
    found += first_shards(options, scale, shards / "gpt2", text_options)
    for name in scale.vocab_sizes:
        for part, share in (("validation", scale.validation_fraction), ("train", 1.0)):
            source, output = shards / "gpt2" / part, shards / name / part
            words = ("data", "reencode", str(source), "--from", options.tokenizer, "--to", tokenizers[name])
            found.append(
                Stage(
                    f"re-encode the {part} shards with {name}",
                    (*words, "--output", str(output)),
                    output / "manifest.json",
                    2 * share * scale.text_bytes / FEWER_BYTES_PER_TOKEN,
                    share * scale.text_bytes / ENCODING_RATE,
                )
            )
    config = training_config(options.scale)
    for name, tokenizer in tokenizers.items():
        found += [
            training(options, config, name, tokenizer, vocab_sizes[name]),
            scoring(
                options, folder / "runs" / name, shards / name / "validation", folder / f"{name}.scores.json"
            ),
        ]
    return found


def first_shards(
    options: argparse.Namespace, scale: Scale, shards: Path, text_options: list[str]
) -> list[Stage]:
    """Return the stages that make shards of GPT-2's ids: from text, or from existing shards of another program."""
    n_bytes, seconds = 2 * scale.n_tokens, scale.text_bytes / ENCODING_RATE
    if options.shards is None:
        words = ("data", "encode", options.tokenizer, *options.text, *text_options, "--output", str(shards))
        words += ("--validation-fraction", str(scale.validation_fraction))
        words += ("--limit-bytes", str(scale.text_bytes))
        return [Stage("encode the text", words, shards / "validation" / "manifest.json", n_bytes, seconds)]
    found: list[Stage] = []
    for part, pattern, share in (("validation", "val", 0.01), ("train", "train", 1.0)):
        words = (
            "data",
            "convert",
            f"{options.shards}/*_{pattern}_*.bin",
            str(shards / part),
            "--layout",
            "npy",
        )
        words += ("--tokenizer", options.tokenizer, "--separator", END)
        result = shards / part / "manifest.json"
        found.append(Stage(f"convert the existing {part} shards", words, result, share * n_bytes, share * 60))
    return found


def training(
    options: argparse.Namespace, config: TrainConfig, name: str, tokenizer: str, vocab_size: int
) -> Stage:
    """Return the stage that trains a model."""
    folder = Path(options.folder)
    n_ids = -(-vocab_size // 128) * 128  # multiples of 128 make faster products
    shape, steps = config.model.replace(vocab_size=n_ids), config.training.steps
    n_tokens = steps * config.training.batch_size * config.training.accumulation * shape.context_length
    device = SCALES[options.scale].device if options.gpu is None else options.gpu
    days = (
        None
        if device is None
        else training_days(
            shape, n_tokens, DEVICES[device].rate("bfloat16") or DEVICES[device].float16, UTILIZATION
        )
    )
    run = folder / "runs" / name
    words = ("lm", "train", str(HERE / f"{options.scale}.toml"), "--data.tokenizer", tokenizer)
    words += ("--data.train", str(folder / "shards" / name / "train"))
    words += ("--data.validation", str(folder / "shards" / name / "validation"))
    words += ("--model.vocab-size", str(n_ids), "--run.folder", str(run), "--devices", str(options.devices))
    return Stage(
        f"train a model with {name}: {format_count(n_parameters(shape))} parameters, {format_count(n_tokens)} tokens",
        words,
        run / "checkpoints" / f"step_{steps:08d}" / "model.safetensors",
        12
        * n_parameters(shape)
        * (config.run.keep_checkpoints + 1),  # weights and two moments; one more while saving
        None if days is None else days * 86_400 / options.devices,
    )


def scoring(options: argparse.Namespace, run: Path, validation: Path, result: Path) -> Stage:
    """Return the stage that scores a model."""
    words = ("lm", "eval", str(run), "--shards", str(validation), "--batch-size", "64", "--json")
    if options.hellaswag is not None:
        words += (
            "--hellaswag",
            options.hellaswag,
            "--results",
            str(run.parent / f"{run.name}.hellaswag.jsonl"),
        )
    return Stage(f"evaluate {run.name}", words, result, 1e5, 600, keep_output=True)
