"""The families of models by their type in transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.lm.interchange.families.gemma import GEMMA2, GEMMA3
from bytemill.lm.interchange.families.mixtures import GPT_OSS, MIXTRAL, QWEN3_MOE
from bytemill.lm.interchange.families.neox import GPT_NEOX
from bytemill.lm.interchange.families.olmo import OLMO2, OLMO3
from bytemill.lm.interchange.families.phi import PHI3
from bytemill.lm.interchange.families.smollm3 import SMOLLM3

if TYPE_CHECKING:
    from bytemill.lm.interchange.families.base import Family

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (MIXTRAL, QWEN3_MOE, GPT_OSS, OLMO2, OLMO3, GEMMA2, GEMMA3, PHI3, SMOLLM3, GPT_NEOX)
}
