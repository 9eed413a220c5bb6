"""Shards of a study: the training text in the order of a seed, and the validation text. They are kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bytemill.corpus import Corpus
from bytemill.data import TokenShards, encode_corpus
from bytemill.experiment.documents import END

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.experiment.documents import StoredText
    from bytemill.experiment.prepare import StudyInputs


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
