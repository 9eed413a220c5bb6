"""What languages cost a tokenizer: fairness on parallel text, the same content in each language line by line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.tokenizer.tokenizer import Tokenizer

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
