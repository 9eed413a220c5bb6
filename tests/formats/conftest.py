"""Small tokenizers that the tests of several formats share."""

from collections.abc import Callable

import pytest

from bytemill._core import NAMED_PATTERNS
from bytemill.formats.spec import TokenizerSpec

MERGES = [(b"a", b"b"), (b"ab", b"ab"), (b" ", b"ab"), (b"\xc3", b"\xa9"), (b'"', b"\\")]


@pytest.fixture
def make_spec() -> Callable[..., TokenizerSpec]:
    """Makes a tokenizer of a few merges, with fields replaced by keyword."""

    def make(**fields: object) -> TokenizerSpec:
        vocab = {byte: bytes([byte]) for byte in range(256)}
        vocab |= {256 + i: left + right for i, (left, right) in enumerate(MERGES)}
        defaults: dict[str, object] = {
            "pattern": NAMED_PATTERNS["gpt2"],
            "special_tokens": {"<|endoftext|>": 261},
            "vocab": vocab,
            "merges": list(MERGES),
        }
        return TokenizerSpec(**(defaults | fields))  # type: ignore[arg-type]

    return make
