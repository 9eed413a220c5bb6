"""What languages cost: the same content in each, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bytemill.analysis.comparison.fairness import gini, lorenz_curve, premiums
from bytemill.comparison.data import Parallel
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.tokenizer.tokenizer import Tokenizer

_DECLARATION = "unicode.org/udhr"
_N_ARTICLES = 30
_SEPARATOR = 3


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
