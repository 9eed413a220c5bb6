"""What `bytemill tokenizer train` is to train of: inputs, or counts of inputs."""

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
    """Raises CycloptsError where it is not said what to train of."""
    if not inputs and not counts:
        raise _usage("name INPUTS to train of, or --counts FILE with the counts of some")
    if inputs and len(counts) > 1:
        raise _usage(
            "several --counts are added up where no INPUTS are given; with INPUTS give one, to keep theirs"
        )


def training_inputs(
    inputs: Sequence[str], corpus: CorpusOptions, counts: Sequence[str]
) -> tuple[Corpus | SavedCounts, str | None]:
    """What `train` takes as inputs, and the file in which it keeps the counts."""
    from bytemill.training.counts import SavedCounts

    if not inputs:
        return SavedCounts([_file_and_weight(text) for text in counts]), None
    return corpus.corpus(inputs), counts[0] if counts else None


def _usage(message: str) -> CycloptsError:
    return CycloptsError(message, command_chain=("tokenizer", "train"))


def _file_and_weight(text: str) -> tuple[str, str]:
    """FILE or FILE=WEIGHT; a file whose name holds an equals sign may stand alone."""
    name, equals, weight = text.rpartition("=")
    return (text, "1") if not equals or Path(text).exists() else (name, weight)
