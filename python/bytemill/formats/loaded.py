"""What comes of a tokenizer file: an encoder, and what the file says beyond that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill._core import Encoder
from bytemill.errors import TokenizerError, TokenizerFileError

if TYPE_CHECKING:
    from bytemill.formats.spec import Ties, TokenizerSpec


@dataclass(frozen=True)
class Loaded:
    """A tokenizer ready to encode, and what its file says beyond that."""

    core: Encoder
    ties: Ties | None = None
    merge_counts: list[int] | None = None


def build(spec: TokenizerSpec) -> Loaded:
    """The encoder of a spec. Raises TokenizerError where it contradicts itself."""
    if spec.ranks is not None:
        core = Encoder.from_ranks(spec.ranks, spec.special_tokens, spec.pattern)
    else:
        core = Encoder.from_merges(
            spec.vocab, spec.merges or [], spec.special_tokens, spec.pattern, spec.whole_pretoken_lookup
        )
    return Loaded(core, spec.ties, spec.merge_counts)


def build_file(spec: TokenizerSpec, where: str) -> Loaded:
    """As `build`, of a file's spec. Raises TokenizerFileError, which names the file, where it contradicts itself."""
    try:
        return build(spec)
    except TokenizerError as error:
        raise TokenizerFileError(f"{where}: {error}", hint=error.hint) from error
