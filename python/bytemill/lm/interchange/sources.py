"""Read models of other programs: folders of Hugging Face transformers and checkpoints of nanoGPT."""

from __future__ import annotations

import json
import pickle
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from bytemill.errors import CheckpointError, ModelConfigError
from bytemill.lm.interchange.huggingface_config import read_config
from bytemill.lm.model_config import ModelConfig
from bytemill.lm.tensor_files import open_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from bytemill.lm.interchange.tensor_map import Layout

_PREFIXES = ("_orig_mod.", "transformer.", "model.")
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
    """Open a folder of transformers, or a checkpoint file of nanoGPT. No code in it is executed.

    Raises:
        CheckpointError: It is neither, or a file is missing or damaged; also for such errors in the block.
        ModelConfigError: The architecture is unknown, or has an option that this package does not have.
    """
    if path.is_dir() and (path / "config.json").is_file():
        with _open_folder(path) as source:
            yield source
    elif path.is_dir() and (path / "ckpt.pt").is_file():
        yield _read_nanogpt(path / "ckpt.pt")
    elif path.is_file():
        yield _read_nanogpt(path)
    else:
        problem = "holds no config.json and no ckpt.pt" if path.is_dir() else "does not exist"
        raise CheckpointError(
            f"{path} {problem}",
            hint="name a folder with config.json and model.safetensors, or a ckpt.pt of nanoGPT",
        )


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
