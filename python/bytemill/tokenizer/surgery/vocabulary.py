"""What the changes to a vocabulary have in common: which tokenizers can be changed, and which ids are free."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerError
from bytemill.formats.spec import PretokenShape

if TYPE_CHECKING:
    from bytemill.formats.spec import TokenizerSpec
    from bytemill.tokenizer.tokenizer import Tokenizer

RESERVED = (
    r"(?i)(reserved|unused|extra|placeholder|dummy|special|control)[^0-9A-Za-z]*(token)?[^0-9A-Za-z]*[0-9]+"
)
"""Matches the texts of special tokens that publishers keep free, such as `<|reserved_special_token_7|>`."""


def check_byte_level(tokenizer: Tokenizer, what: str) -> TokenizerSpec:
    """Return the spec of a byte-level BPE tokenizer.

    Args:
        tokenizer: The tokenizer.
        what: What is going to be done, for messages ("extend").

    Raises:
        TokenizerError: It is of another kind.
    """
    hint = "only byte-level BPE tokenizers can be extended or trimmed"
    if tokenizer.engine != "core":
        raise TokenizerError(
            f"cannot {what} a tokenizer that runs in {tokenizer.engine}: {tokenizer.engine_reason}", hint=hint
        )
    spec = tokenizer.to_spec()
    if spec.characters is not None:
        raise TokenizerError(f"cannot {what} a tokenizer whose smallest tokens are characters", hint=hint)
    if spec.shape != PretokenShape():
        raise TokenizerError(
            f"cannot {what} a tokenizer that changes pre-tokens before it merges them", hint=hint
        )
    return spec


def free_ids(spec: TokenizerSpec, reserved: str) -> tuple[list[int], dict[str, int]]:
    """Return the ids that new tokens may take below the highest one, and the special tokens that have them now.

    Free are ids without a token, and those of special tokens whose text matches the expression `reserved` and that
    neither the chat template nor the post-processor names.

    Raises:
        TokenizerError: The expression does not compile.
    """
    try:
        expression = re.compile(reserved)
    except re.error as error:
        raise TokenizerError(f"{reserved!r} is not a regular expression: {error}") from error
    metadata = spec.metadata
    named = "" if metadata is None else f"{metadata.chat_template}{metadata.post_processor}"
    ordinary = set(spec.vocab) | set((spec.ranks or {}).values())
    tokens = {
        text: token_id
        for text, token_id in spec.special_tokens.items()
        if expression.search(text) and text not in named and token_id not in ordinary
    }
    taken = ordinary | set(spec.special_tokens.values())
    holes = set(range(max(taken))) - taken
    return sorted(holes | set(tokens.values())), tokens
