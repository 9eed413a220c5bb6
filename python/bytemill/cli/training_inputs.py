"""Inputs of `bytemill tokenizer train`: a corpus, or saved counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import CycloptsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.cli.corpus_options import CorpusOptions
    from bytemill.corpus import Corpus
    from bytemill.training.counts import SavedCounts


def check_usage(inputs: Sequence[str], counts: Sequence[str]) -> None:
    """Raise CycloptsError unless there is something to train on."""
    if not inputs and not counts:
        raise CycloptsError("name INPUTS to train on, or files of counts with --counts FILE")
    if inputs and len(counts) > 1:
        raise CycloptsError(
            "use --counts once with INPUTS; without INPUTS, several files of counts are added up"
        )


def training_inputs(
    inputs: Sequence[str], corpus: CorpusOptions, counts: Sequence[str]
) -> tuple[Corpus | SavedCounts, str | None]:
    """Return the inputs of `train`, and the file of counts to read or write."""
    from bytemill.training.counts import SavedCounts

    if not inputs:
        return SavedCounts([_file_and_weight(text) for text in counts]), None
    return corpus.corpus(inputs), counts[0] if counts else None


def checkpoint_folder(output_file: Path, counts: str | None) -> Path:
    """Return the folder of the checkpoints of counting."""
    path = output_file if counts is None else Path(counts)
    return path.with_name(f".{path.name}.counting")


def _file_and_weight(text: str) -> tuple[str, str]:
    """Split FILE=WEIGHT; an existing file whose name contains an equals sign has weight 1."""
    name, equals, weight = text.rpartition("=")
    return (text, "1") if not equals or Path(text).exists() else (name, weight)
