"""The result of loading a tokenizer file: an encoder and the file's metadata."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bytemill._core import Encoder
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.spec import special_rules

if TYPE_CHECKING:
    from bytemill.formats.spec import CharacterModel, Ties, TokenFlags, TokenizerMetadata, TokenizerSpec


@dataclass(frozen=True)
class Loaded:
    """An encoder with the fields of `TokenizerSpec` that the encoder does not store."""

    core: Encoder
    ties: Ties | None = None
    merge_counts: list[int] | None = None
    flags: dict[str, TokenFlags] = field(default_factory=dict[str, "TokenFlags"])
    metadata: TokenizerMetadata | None = None
    characters: CharacterModel | None = None


def build(spec: TokenizerSpec) -> Loaded:
    """Build the encoder of a spec. Raises TokenizerError if the spec contradicts itself."""
    try:
        core = _encoder(spec)
    except TokenizerError:
        from bytemill.formats.merge_lists import with_needed_merges

        if spec.characters is not None:
            raise
        regular = with_needed_merges(spec)
        if regular is None:
            raise
        spec, core = regular, _encoder(regular)
    return Loaded(core, spec.ties, spec.merge_counts, spec.flags, spec.metadata, spec.characters)


def build_file(spec: TokenizerSpec, location: str) -> Loaded:
    """Build the encoder of a file's spec. Raises TokenizerFileError, which names the file."""
    try:
        return build(spec)
    except TokenizerError as error:
        raise TokenizerFileError(f"{location}: {error}", hint=error.hint) from error


def _encoder(spec: TokenizerSpec) -> Encoder:
    if spec.characters is not None:
        return _character_encoder(spec, spec.characters)
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
    )


def _character_encoder(spec: TokenizerSpec, characters: CharacterModel) -> Encoder:
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
    )
