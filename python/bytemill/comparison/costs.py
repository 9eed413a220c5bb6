"""What a tokenizer costs: a language model of a given shape, the machine that encodes, and each language.

Languages are compared on parallel text, which has the same content in each language line by line.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import CorpusError, ModelConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bytemill.tokenizer.tokenizer import Tokenizer


_CACHE_BYTES = 2
"""Bytes per number in the cache of keys and values: bfloat16 or float16."""
_VOCAB_MULTIPLE = 64
SAMPLE_BYTES = 8_000_000
"""Text of a group that speed is measured on, from its start."""
_ROUNDS = 3
_MEMORY_PROGRAM = """
import sys
from pathlib import Path
import bytemill
used = lambda: int(Path("/proc/self/statm").read_text().split()[1])
bytemill.Tokenizer
before = used()
tokenizer = bytemill.Tokenizer.load(sys.argv[1])
tokenizer.encode("text")
print(used() - before)
"""
"""Prints the pages that a tokenizer occupies. The peak that the system reports would include that of this process."""


@dataclass(frozen=True)
class ModelCost:
    """Cost of a tokenizer for a model; None where it depends on a text that has no tokens."""

    vocab_size: int
    """Number of ids, rounded up to a multiple of 64."""
    embedding_parameters: int
    """Of the token embedding and, unless it is the same, the output layer."""
    parameter_share: float
    """Their share of all parameters."""
    output_flops_share: float
    """Share of the output layer in the FLOPs of a token."""
    flops_per_byte: dict[str, float | None]
    """Group -> FLOPs of a forward pass per byte of text, at a full context."""
    cache_bytes_per_kilobyte: dict[str, float | None]
    """Group -> bytes of keys and values in 16 bits per 1,000 bytes of text."""
    context_bytes: dict[str, float | None]
    """Group -> bytes of text that fill the context."""


def model_cost(preset_name: str, n_vocab: int, bytes_per_token: Mapping[str, float | None]) -> ModelCost:
    """Compute what a tokenizer costs a model.

    Args:
        preset_name: Name of the model's shape.
        n_vocab: Number of ids of the tokenizer.
        bytes_per_token: Group -> bytes per token.

    Raises:
        ModelConfigError: There is no such preset.
    """
    # pydantic, which presets need, takes longer to import than a small comparison.
    from bytemill.lm.planning import forward_flops, parameters_by_part
    from bytemill.lm.presets import preset

    shape = preset(preset_name, vocab_size=-(-n_vocab // _VOCAB_MULTIPLE) * _VOCAB_MULTIPLE)
    parameters, flops = parameters_by_part(shape), forward_flops(shape)
    own = parameters["token embeddings"] + parameters["output layer"]
    total_flops = sum(flops.values())
    per_token = total_flops / shape.context_length
    cache = 2 * shape.num_layers * shape.n_kv_heads * shape.d_head * _CACHE_BYTES
    return ModelCost(
        shape.vocab_size,
        own,
        own / sum(parameters.values()),
        flops["output layer"] / total_flops,
        {group: per_token / each if each else None for group, each in bytes_per_token.items()},
        {group: 1000 * cache / each if each else None for group, each in bytes_per_token.items()},
        {group: shape.context_length * each if each else None for group, each in bytes_per_token.items()},
    )


def check_preset(preset_name: str) -> None:
    """Raise ModelConfigError if there is no such preset."""
    from bytemill.lm.presets import PRESETS
    from bytemill.lm.settings import suggestion

    if preset_name not in PRESETS:
        raise ModelConfigError(f"unknown preset {preset_name!r}", hint=suggestion(preset_name, PRESETS))


@dataclass(frozen=True)
class Speed:
    """Speed and memory of a tokenizer on this machine."""

    bytes_per_second: dict[str, float]
    """Group -> bytes of new text encoded per second by one thread, the median of three rounds."""
    memory_bytes: int | None
    """Memory that loading it takes in a process of its own; None where the system does not tell."""


def measure_speed(tokenizers: Mapping[str, Tokenizer], texts: Mapping[str, bytes]) -> dict[str, Speed]:
    """Measure all tokenizers in turns, on the first 8 MB of each text.

    Every round loads a tokenizer again, so that no text is known to it.

    Args:
        tokenizers: The tokenizers.
        texts: The beginning of each group.
    """
    samples = {group: text[:SAMPLE_BYTES].decode(errors="ignore") for group, text in texts.items()}
    rates: dict[str, dict[str, list[float]]] = {name: {group: [] for group in samples} for name in tokenizers}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{number}.json" for number, name in enumerate(tokenizers)}
        for name, tokenizer in tokenizers.items():
            tokenizer.save(paths[name])
        for _ in range(_ROUNDS):
            for name, tokenizer in tokenizers.items():
                for group, text in samples.items():
                    fresh = type(tokenizer).load(paths[name])
                    started = time.perf_counter()
                    fresh.encode_to_numpy(text, allowed_special="none", num_threads=1)
                    seconds = time.perf_counter() - started
                    rates[name][group].append(len(text.encode()) / seconds)
        medians = {
            name: {group: float(np.median(own)) for group, own in each.items()}
            for name, each in rates.items()
        }
        return {name: Speed(own, _memory(paths[name])) for name, own in medians.items()}


def _memory(path: Path) -> int | None:
    if not Path("/proc/self/statm").exists():
        return None
    command = [sys.executable, "-c", _MEMORY_PROGRAM, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(result.stdout) * os.sysconf("SC_PAGE_SIZE") if result.returncode == 0 else None


_DECLARATION = "unicode.org/udhr"
_N_ARTICLES = 30
_SEPARATOR = 3


@dataclass(frozen=True)
class Parallel:
    """Cost of the same content in several languages, for each tokenizer."""

    reference: str
    n_lines: int
    premiums: dict[str, dict[str, float | None]]
    """Tokenizer -> language -> tokens, relative to the reference."""
    gini: dict[str, float | None]
    """Tokenizer -> Gini coefficient over the languages' tokens."""
    line_gini: dict[str, float | None]
    """Tokenizer -> mean over the lines of the Gini coefficient over the languages' tokens for the line."""
    lorenz: dict[str, list[tuple[float, float]]]
    """Tokenizer -> points of the Lorenz curve over the languages."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        points = {name: [list(point) for point in own] for name, own in self.lorenz.items()}
        return asdict(self) | {"lorenz": points}


def measure_parallel(folder: Path, tokenizers: Mapping[str, Tokenizer]) -> Parallel:
    """Measure the files of a folder, one for each language, with the same content line by line."""
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix == ".txt")
        texts = {path.stem: path.read_text(encoding="utf-8-sig") for path in files}
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"cannot read {folder}: {error}") from error
    if texts and all(_DECLARATION in text[:1000] for text in texts.values()):
        lines = {name.removeprefix("udhr_"): articles(text) for name, text in texts.items()}
    else:
        lines = {name: _lines(text) for name, text in texts.items()}
    if len(lines) < 2:
        raise CorpusError(
            f"{folder} has {len(lines)} text files", hint="give a folder with a .txt file for each language"
        )
    numbers = {language: len(own) for language, own in lines.items()}
    first, *_ = numbers
    for language, n in numbers.items():
        if n != numbers[first]:
            raise CorpusError(
                f"{folder / language}.txt has {n:,} lines, but {first}.txt has {numbers[first]:,}",
                hint="line i of every file must have the same content",
            )
    reference = next((name for name in ("english", "eng", "en") if name in lines), first)
    tokens = {
        name: {
            language: np.array([len(ids) for ids in tokenizer.encode_ordinary_batch(own)])
            for language, own in lines.items()
        }
        for name, tokenizer in tokenizers.items()
    }
    sums = {name: np.array([int(n.sum()) for n in own.values()]) for name, own in tokens.items()}
    return Parallel(
        reference=reference,
        n_lines=numbers[first],
        premiums={name: premiums(own, reference) for name, own in tokens.items()},
        gini={name: gini(totals) for name, totals in sums.items()},
        line_gini={name: _mean_gini(np.stack(list(own.values()))) for name, own in tokens.items()},
        lorenz={name: lorenz_curve(totals) if totals.any() else [] for name, totals in sums.items()},
    )


def articles(text: str) -> list[str]:
    """Return the thirty articles of the Universal Declaration of Human Rights, each in a line, without their headings.

    The files of the project "UDHR in Unicode" separate articles by lines of at most three blanks, in every language.

    Args:
        text: One of these files.
    """
    _, _, body = text.partition("\n---\n")
    groups: list[list[str]] = [[]]
    for line in body.replace("\r\n", "\n").split("\n"):
        if line.strip():
            groups[-1].append(line.strip())
        elif len(line) <= _SEPARATOR:
            groups.append([])
    return [" ".join(group[1:]) for group in groups if len(group) > 1][-_N_ARTICLES:]


def _mean_gini(tokens: NDArray[np.integer]) -> float | None:
    """Return the mean over the lines of (n_languages, n_lines) that have tokens."""
    own = [value for line in tokens.T if (value := gini(line)) is not None]
    return sum(own) / len(own) if own else None


def _lines(text: str) -> list[str]:
    """Divide a text at line feeds alone, unlike `str.splitlines`; a carriage return before one is removed."""
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def gini(values: NDArray[np.integer] | NDArray[np.floating]) -> float | None:
    """Compute the Gini coefficient Σᵢ Σⱼ |xᵢ − xⱼ| / (2 n² mean(x)): 0 if all are equal, near 1 if one has all.

    Computed as Σᵢ (2i − n − 1) xᵢ / (n Σ x) with x in ascending order and i from 1. Over the tokens that languages take
    for the same content it says how unevenly they are treated, not which of them.

    Returns:
        None if there are no values, or all are 0.

    >>> gini(np.array([1, 1, 1])), gini(np.array([0, 0, 0, 8]))
    (0.0, 0.75)
    """
    x = np.sort(np.asarray(values, np.float64))
    n, total = len(x), float(x.sum())
    if n == 0 or total == 0:
        return None
    return float((2 * np.arange(1, n + 1) - n - 1) @ x) / (n * total)


def lorenz_curve(values: NDArray[np.integer] | NDArray[np.floating]) -> list[tuple[float, float]]:
    """Return the points (share of languages, share of tokens), from the cheapest language on; equality is the diagonal.

    >>> lorenz_curve(np.array([3, 1]))
    [(0.0, 0.0), (0.5, 0.25), (1.0, 1.0)]
    """
    x = np.sort(np.asarray(values, np.float64))
    shares = np.concatenate([[0.0], np.cumsum(x) / x.sum()])
    return [(i / len(x), float(share)) for i, share in enumerate(shares)]


def premiums(tokens: dict[str, NDArray[np.integer]], reference: str) -> dict[str, float | None]:
    """Return the tokens that each language takes, relative to the reference (Petrov et al. 2023).

    All are None if the reference takes no tokens.

    Args:
        tokens: Tokens of each line, by language.
        reference: Language that counts as 1, such as English.

    >>> premiums({"en": np.array([2, 2]), "my": np.array([9, 11])}, "en")
    {'en': 1.0, 'my': 5.0}
    """
    base = float(tokens[reference].sum())
    return {language: float(own.sum()) / base if base else None for language, own in tokens.items()}
