"""The encoder of a spec: the core's, or that of a library; and what loading a tokenizer file returns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, cast

from bytemill._core import Encoder, needed_merges
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.ranks import merges_of_ranks
from bytemill.formats.spec import special_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.formats.library import LibraryEncoder
    from bytemill.formats.spec import CharacterModel, Ties, TokenFlags, TokenizerMetadata, TokenizerSpec

AnyEncoder: TypeAlias = "Encoder | LibraryEncoder"
"""What encodes and decodes: the core, or a library behind the same methods."""


@dataclass(frozen=True)
class Loaded:
    """An encoder with the fields of `TokenizerSpec` that the encoder does not store."""

    core: AnyEncoder
    ties: Ties | None = None
    merge_counts: list[int] | None = None
    flags: dict[str, TokenFlags] = field(default_factory=dict[str, "TokenFlags"])
    metadata: TokenizerMetadata | None = None
    characters: CharacterModel | None = None
    joins_tokens: bool = False


def build(spec: TokenizerSpec) -> Loaded:
    """Build the encoder of a spec. Raises TokenizerError if the spec contradicts itself."""
    if spec.library is not None:
        # Only tokenizers that the core does not run need it.
        from bytemill.formats.library import open_model

        library = open_model(spec.library)
        return Loaded(library, flags=library.flags, metadata=spec.metadata)
    try:
        core = _encoder(spec)
    except TokenizerError:
        if spec.characters is not None:
            raise
        regular = with_needed_merges(spec)
        if regular is None:
            raise
        spec, core = regular, _encoder(regular, in_any_order=True)
    return Loaded(
        core, spec.ties, spec.merge_counts, spec.flags, spec.metadata, spec.characters, spec.joins_tokens
    )


def build_file(spec: TokenizerSpec, location: str) -> Loaded:
    """Build the encoder of a file's spec. Raises TokenizerFileError, which names the file."""
    try:
        return build(spec)
    except TokenizerError as error:
        raise TokenizerFileError(f"{location}: {error}", hint=error.hint) from error


def _encoder(spec: TokenizerSpec, *, in_any_order: bool = False) -> Encoder:
    if spec.characters is not None:
        return character_encoder(spec)
    rules = special_rules(spec.special_tokens, spec.flags, spec.normalizer)
    if spec.ranks is not None:
        return Encoder.from_ranks(spec.ranks, spec.special_tokens, spec.pattern, rules, spec.normalizer)
    return Encoder.from_merges(
        spec.vocab,
        spec.merges or [],
        spec.special_tokens,
        spec.pattern,
        spec.ignore_merges,
        rules,
        spec.normalizer,
        in_any_order,
        spec.shape,
    )


def character_encoder(spec: TokenizerSpec, scores: Mapping[int, float] | None = None) -> Encoder:
    """Build the core's encoder of BPE over characters.

    Args:
        spec: The tokenizer, with `characters`.
        scores: Scores of the tokens that are merged, by id, in place of merges.
    """
    characters = cast("CharacterModel", spec.characters)
    rules = special_rules(
        spec.special_tokens, spec.flags, spec.normalizer, verbatim=characters.verbatim_symbols
    )
    vocab, aliases = dict(spec.vocab), dict[int, bytes]()
    known = set(spec.vocab.values())
    for byte, token_id in (characters.byte_ids or {}).items():
        token = bytes([byte])
        # A byte that is also a character has two tokens; texts are encoded with that of the character. No text encodes
        # to the byte of the space, since spaces become `▁` first.
        is_alias = token in known or (token == b" " and characters.writes_spaces_as_meta)
        (aliases if is_alias else vocab)[token_id] = token
    unknown = None if characters.unk_id is None else (characters.unk_id, characters.fuse_unk)
    return Encoder.from_characters(
        vocab,
        aliases,
        spec.merges or [],
        spec.special_tokens,
        spec.pattern,
        spec.ignore_merges,
        unknown if characters.byte_ids is None else None,
        rules,
        spec.normalizer,
        spec.merge_ranks,
        scores,
        spec.shape,
    )


def with_needed_merges(spec: TokenizerSpec) -> TokenizerSpec | None:
    """Return an equivalent spec with at most one merge per token, if possible each after the merges of its parts.

    Files converted from ranks, such as Llama 3's tokenizer.json, list every split of a token into two, some before the
    merges that produce their parts. Only one pair ever produces a token; see `ranks`.

    Returns:
        None if `spec` contradicts itself.

    >>> from bytemill.formats.spec import TokenizerSpec
    >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b"bc", 258: b"abc"}
    >>> merges = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc"), (b"ab", b"c")]
    >>> found = with_needed_merges(TokenizerSpec(None, {}, vocab, merges))
    >>> found.merges if found else None
    [(b'a', b'b'), (b'b', b'c'), (b'ab', b'c')]
    """
    tokens = set(spec.vocab.values())
    if spec.merges is None or not all(left in tokens and right in tokens for left, right in spec.merges):
        return None
    try:
        indices = needed_merges(spec.merges)
    except TokenizerError:
        return None
    merges = [spec.merges[index] for index in indices]
    counts = spec.merge_counts and [spec.merge_counts[index] for index in indices]
    known = {bytes([byte]) for byte in range(256)}
    for left, right in merges:
        if left not in known or right not in known:
            break
        known.add(left + right)
    else:
        return replace(spec, merges=merges, merge_counts=counts)
    # Other formats need the order, which equivalent ranks have.
    ranks = {token: token_id for token_id, token in sorted(spec.vocab.items())}
    if spec.ignore_merges and merges_of_ranks(ranks) == merges:
        return replace(spec, vocab={}, merges=None, ranks=ranks, merge_counts=None)
    return replace(spec, merges=merges, merge_counts=counts)
