"""Import a model of another program into a model folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from bytemill.errors import CheckpointError, NotFiniteError, TokenizerError, TokenizerFileError
from bytemill.formats.huggingface.folder import without_special_tokens
from bytemill.lm.interchange.sources import Source, open_source
from bytemill.lm.interchange.tensor_map import entries, tensor_shapes
from bytemill.lm.model_folder import ModelFolder, check_output, files_in, locked_output, write_model_folder
from bytemill.storage import local_input
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.tokenizer.open_tokenizer import open_tokenizer
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from torch import Tensor

_BUFFERS = re.compile(r"(^|\.)(attn\.bias|attn\.masked_bias|rotary_emb\.inv_freq)$")
"""Tensors without parameters: causal masks and wavelengths, which older versions saved."""


@dataclass(frozen=True)
class Imported:
    """Result of `import_model`."""

    folder: ModelFolder
    n_parameters: int
    tokenizer: Tokenizer | None
    notes: list[str]
    """What was left out, and why."""


def import_model(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Imported:
    """Convert a model of another program to a folder that generation, evaluation and training read.

    Weights become float32. Dropout is not imported: it is 0 unless a later training sets it.

    Args:
        source: Folder of Hugging Face transformers (GPT-2, Llama, Mistral, Qwen 2, Qwen 3) with safetensors files,
            or a `ckpt.pt` of nanoGPT. Or the URL of either.
        output: Folder of the result, or its URL.
        tokenizer: Path or published name; by default the one in the source folder, if it is byte-level BPE.
        overwrite: Replace the contents of `output`.
        progress: Called with the bytes of weights that are written, and their total.

    Raises:
        CheckpointError: A file is missing or damaged, or a tensor is missing, left over, or of another shape than the
            configuration says.
        NotFiniteError: A tensor has values that are not finite.
        ModelConfigError: The architecture or one of its options is not supported.
        TokenizerFileError: `tokenizer` cannot be read.
        TokenizerError: `tokenizer` has more ids than the model.
        OutputError: The folder is not empty, or cannot be written.
        StorageError: An object store cannot be read or written.
    """
    source, output = Path(source), Path(output)
    check_folder_is_no_input(output, files=[source, *([tokenizer] if tokenizer else []), *files_in(source)])
    check_output(output, overwrite=overwrite)
    with open_source(local_input(source)) as opened:
        notes: list[str] = []
        found = _tokenizer(opened, tokenizer, notes)
        weights = _converted(opened)
        with locked_output(output):
            check_output(output, overwrite=overwrite)
            folder = write_model_folder(
                output,
                opened.config,
                weights,
                found,
                source=opened.kind,
                bos_id=_bos_id(found),
                progress=progress,
            )
    return Imported(folder, sum(tensor.numel() for tensor in weights.values()), found, notes)


def _converted(source: Source) -> dict[str, Tensor]:
    """Return the weights under this package's names. Every name and shape is checked before a tensor is read."""
    shapes = tensor_shapes(source.config)
    wanted = entries(source.layout, source.config)
    for entry in wanted:
        expected, found = entry.shape(shapes), source.shapes.get(entry.theirs)
        if found is None:
            raise CheckpointError(f"{source.path} has no tensor {entry.theirs}")
        if found != expected:
            raise CheckpointError(
                f"{source.path}: {entry.theirs} has the shape {found}, but its configuration says {expected}"
            )
    ignored = {"lm_head.weight"} if source.config.tied_embeddings else set[str]()
    more = source.shapes.keys() - {entry.theirs for entry in wanted} - ignored
    if unknown := sorted(name for name in more if not _BUFFERS.search(name)):
        raise CheckpointError(f"{source.path}: the model here has no place for the tensor {unknown[0]}")
    weights: dict[str, Tensor] = {}
    for entry in wanted:
        tensor = source.read(entry.theirs)
        if not bool(torch.isfinite(tensor).all()):
            raise NotFiniteError(f"{source.path}: {entry.theirs} has NaN or infinite values")
        weights |= entry.to_ours(tensor, shapes)
    return weights


def _bos_id(tokenizer: Tokenizer | None) -> int | None:
    """Return the id of the special token that the post-processor of the tokenizer's file puts before a text, if any."""
    if tokenizer is None:
        return None
    first: int = tokenizer("a")["input_ids"][0]
    return first if tokenizer.is_special_token(first) else None


def _tokenizer(source: Source, explicit: str | os.PathLike[str] | None, notes: list[str]) -> Tokenizer | None:
    """Return the explicit tokenizer, the one in the folder, or None with a note."""
    n_ids = source.config.vocab_size
    hint = "add --tokenizer to generate text with the model or to evaluate it"
    if explicit is not None:
        tokenizer = open_tokenizer(explicit)
        if tokenizer.n_vocab > n_ids:
            raise TokenizerError(
                f"the tokenizer has {tokenizer.n_vocab:,} ids, but the model has only {n_ids:,}",
                hint="choose the tokenizer of the model: --tokenizer TOKENIZER",
            )
        return tokenizer
    if not source.path.is_dir() or not any(
        (source.path / name).is_file() for name in ("tokenizer.json", "vocab.json")
    ):
        notes.append(f"{source.path} has no tokenizer; {hint}")
        return None
    try:
        tokenizer = Tokenizer.load(source.path)
        return tokenizer if tokenizer.n_vocab <= n_ids else _shortened(tokenizer, n_ids, notes)
    except (TokenizerFileError, TokenizerError) as error:
        notes.append(f"the tokenizer was left out: {error}; {hint}")
        return None


def _shortened(tokenizer: Tokenizer, n_ids: int, notes: list[str]) -> Tokenizer:
    """Return the tokenizer without its special tokens from `n_ids` on, which the model has no embedding for.

    Raises:
        TokenizerError: There are other tokens from `n_ids` on, or the post-processor adds one of them.
    """
    spec = tokenizer.to_spec()
    beyond = {token: token_id for token, token_id in spec.special_tokens.items() if token_id >= n_ids}
    if any(token_id >= n_ids for token_id in (*spec.vocab, *(spec.ranks or {}).values())):
        raise TokenizerError(f"it has {tokenizer.n_vocab:,} ids, but the model has only {n_ids:,}")
    shortened = Tokenizer.from_spec(without_special_tokens(spec, beyond))
    listed = ", ".join(f"{token} ({token_id})" for token, token_id in beyond.items())
    notes.append(
        f"the model has only {n_ids:,} ids: the tokenizer was imported without {listed}, which the model cannot read"
    )
    return shortened
