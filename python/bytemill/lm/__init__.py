"""Transformer language models from scratch: layers, training, generation, evaluation and planning. Needs torch.

Importing torch takes more than a second, so it happens only in the modules that need it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bytemill.errors import MissingExtraError
from bytemill.lm.model_config import AttentionConfig, ModelConfig, RopeConfig
from bytemill.lm.presets import PRESETS, preset
from bytemill.system.extras import install_hint

if TYPE_CHECKING:
    from bytemill.lm.model import KVCache, TransformerLM

__all__ = ["PRESETS", "AttentionConfig", "KVCache", "ModelConfig", "RopeConfig", "TransformerLM", "preset"]

if find_spec("torch") is None:
    raise MissingExtraError(
        "bytemill.lm needs torch, which is not installed", hint=f"install it with: {install_hint('lm')}"
    )

_LAZY = {"KVCache": "bytemill.lm.model", "TransformerLM": "bytemill.lm.model"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
