"""Import a model of Hugging Face transformers, llama.cpp or nanoGPT into a model folder."""

from __future__ import annotations

import json
import pickle
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from bytemill.errors import (
    CheckpointError,
    ModelConfigError,
    NotFiniteError,
    TokenizerError,
    TokenizerFileError,
)
from bytemill.formats.files import GGUF_MAGIC
from bytemill.formats.huggingface.exchange import without_special_tokens
from bytemill.lm.checkpoint import open_tensors
from bytemill.lm.interchange.architectures import entries
from bytemill.lm.interchange.entries import tensor_shapes
from bytemill.lm.interchange.gguf import read_gguf
from bytemill.lm.interchange.huggingface import read_config
from bytemill.lm.model_config import ModelConfig
from bytemill.lm.training.saved_model import (
    ModelFolder,
    check_output,
    files_in,
    locked_output,
    write_model_folder,
)
from bytemill.storage import local_input
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.tokenizer import open_tokenizer
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Mapping

    from bytemill.lm.interchange.entries import Layout


_PREFIXES = ("_orig_mod.", "transformer.", "model.", "gpt_neox.")
_INDEX, _WEIGHTS = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True)
class Source:
    """A model of another program; tensors are read one at a time."""

    path: Path
    kind: str
    """Architecture and program, for people."""
    layout: Layout
    config: ModelConfig
    shapes: Mapping[str, tuple[int, ...]]
    """By name without the prefixes of wrappers and base models."""
    read: Callable[[str], Tensor]
    """Return the tensor of a name."""


@contextmanager
def open_source(path: Path) -> Generator[Source]:
    """Open a folder of transformers, a GGUF file or a checkpoint file of nanoGPT. No code in it is executed.

    Raises:
        CheckpointError: It is neither, or a file is missing or damaged; also for such errors in the block.
        ModelConfigError: The architecture is unknown, or has an option that this package does not have.
    """
    if path.is_dir() and (path / "config.json").is_file():
        with _open_folder(path) as source:
            yield source
    elif path.is_dir() and (path / "ckpt.pt").is_file():
        yield _read_nanogpt(path / "ckpt.pt")
    elif path.is_file() and _is_gguf(path):
        model = read_gguf(path)
        shapes = {name: info.shape for name, info in model.tensors.items()}
        yield Source(path, model.kind, model.layout, model.config, shapes, model.read)
    elif path.is_file():
        yield _read_nanogpt(path)
    else:
        problem = "holds no config.json and no ckpt.pt" if path.is_dir() else "does not exist"
        raise CheckpointError(
            f"{path} {problem}",
            hint="name a folder with config.json and model.safetensors, a GGUF file, or a ckpt.pt of nanoGPT",
        )


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def _open_folder(path: Path) -> Generator[Source]:
    family, config = read_config(_read_json(path / "config.json"), str(path / "config.json"))
    with ExitStack() as stack:
        shapes: dict[str, tuple[int, ...]] = {}
        readers: dict[str, Callable[[], Tensor]] = {}
        for file in _weight_files(path):
            opened = stack.enter_context(open_tensors(file))
            for name in opened.names:
                shapes[_bare(name)] = opened.shape(name)
                readers[_bare(name)] = lambda opened=opened, name=name: opened.tensor(name)
        kind = f"{family.architecture} of transformers"
        yield Source(path, kind, family.layout, config, shapes, lambda name: readers[name]())


def _weight_files(path: Path) -> list[Path]:
    if (path / _INDEX).is_file():
        index = _read_json(path / _INDEX).get("weight_map")
        if not isinstance(index, dict):
            raise CheckpointError(f"{path / _INDEX} has no weight_map")
        names = sorted({str(name) for name in cast("dict[str, Any]", index).values()})
        for name in names:
            if Path(name).name != name or not (path / name).is_file():
                raise CheckpointError(
                    f"{path / name}, a file that {_INDEX} names, is missing",
                    hint="download all files of the model",
                )
        return [path / name for name in names]
    if not (path / _WEIGHTS).is_file():
        has_pickle = any(path.glob("pytorch_model*.bin"))
        raise CheckpointError(
            f"{path / _WEIGHTS} is missing",
            hint="save the model as safetensors: model.save_pretrained(FOLDER) of transformers"
            if has_pickle
            else "download all files of the model",
        )
    return [path / _WEIGHTS]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is not a JSON file: {error}") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return cast("dict[str, Any]", document)


def _read_nanogpt(path: Path) -> Source:
    """Read the file that nanoGPT's train.py saves: weights, optimizer and settings in one dict."""
    try:
        # mmap: the optimizer's state, twice the weights, is never read.
        document: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        settings, weights = document["model_args"], document["model"]
        tensors: dict[str, Tensor] = {_bare(name): tensor for name, tensor in weights.items()}
        config = _nanogpt_config(settings)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except ModelConfigError:
        raise
    except (
        RuntimeError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        pickle.UnpicklingError,
    ) as error:
        problem = str(error).partition("\n")[0]
        raise CheckpointError(
            f"{path} is not a checkpoint of nanoGPT, or it is damaged: {problem}"
        ) from error
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    return Source(path, "GPT of nanoGPT", "nanogpt", config, shapes, tensors.__getitem__)


def _nanogpt_config(settings: Mapping[str, Any]) -> ModelConfig:
    return ModelConfig(
        vocab_size=settings["vocab_size"],
        context_length=settings["block_size"],
        d_model=settings["n_embd"],
        num_layers=settings["n_layer"],
        num_heads=settings["n_head"],
        d_ff=4 * settings["n_embd"],
        norm="layer",
        position="learned",
        feed_forward="gelu_exact",
        tied_embeddings=True,
        bias=settings["bias"],
        norm_bias=settings["bias"],
        initialization="gpt2",
    )


def _bare(name: str) -> str:
    """Return a name without the prefixes of wrappers and base models.

    >>> _bare("_orig_mod.transformer.wte.weight"), _bare("model.norm.weight")
    ('wte.weight', 'norm.weight')
    """
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


_BUFFERS = re.compile(
    r"(^|\.)(attn\.bias|attn\.masked_bias|attention\.(bias|masked_bias)|rotary_emb\.inv_freq)$"
)
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
        source: Folder of Hugging Face transformers with safetensors files, of a type in `huggingface.FAMILIES` (GPT-2,
            Llama, Qwen, Gemma, Phi, OLMo and others); a GGUF file (gpt2, llama, qwen2, qwen3); or a `ckpt.pt` of
            nanoGPT. Or the URL of one of them.
        output: Folder of the result, or its URL.
        tokenizer: Path or published name; by default the one in the source, if it is byte-level BPE.
        overwrite: Replace the contents of `output`.
        progress: Called with the bytes of weights that are written, and their total.

    Raises:
        CheckpointError: A file is missing or damaged, or a tensor is missing, left over, or of another shape than the
            configuration says.
        NotFiniteError: A tensor has values that are not finite.
        ModelConfigError: The architecture or one of its options is not supported.
        MissingExtraError: A GGUF file needs the package `gguf`.
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
    ids: list[int] = tokenizer("a")["input_ids"]
    return ids[0] if ids and tokenizer.is_special_token(ids[0]) else None


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
    has_one = source.layout.startswith("gguf") or any(
        (source.path / name).is_file() for name in ("tokenizer.json", "vocab.json")
    )
    if not has_one:
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
