"""Figures of the tokenizers that need no model, on the text that the models are scored on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.comparison import compare
from bytemill.corpus import Corpus
from bytemill.system.atomic_files import write_json

if TYPE_CHECKING:
    from bytemill.experiment.prepare import StudyInputs

_MOST = 20
"""Tokenizers that `compare` takes."""


def write_figures(study_inputs: StudyInputs) -> None:
    """Write the mean of each figure over the domains, by tokenizer; a figure that some domain lacks is null."""
    if not 2 <= len(study_inputs.tokenizers) <= _MOST:
        return
    texts = {
        name: Corpus.from_texts([document.decode() for document in text.documents()])
        for name, text in study_inputs.domains.items()
    }
    comparison = compare(study_inputs.tokenizers, texts)
    figures: dict[str, dict[str, float | None]] = {}
    for by_figure in comparison.values.values():
        for figure, by_tokenizer in by_figure.items():
            own = figures.setdefault(figure, dict.fromkeys(by_tokenizer, 0.0))
            for name, value in by_tokenizer.items():
                so_far = own[name]
                own[name] = (
                    None if so_far is None or value.value is None else so_far + value.value / len(texts)
                )
    write_json(study_inputs.folder / "figures.json", figures)
