"""Read the tokens of a tokenizer.json: `added_tokens` and the BPE model."""

from __future__ import annotations

from dataclasses import fields
from itertools import chain
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerFileError
from bytemill.formats.files import array_at, bool_at, object_at, shown, wrong_value
from bytemill.formats.ids import check_id, is_text
from bytemill.formats.spec import TokenFlags

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_DEFAULT_FLAGS = TokenFlags()
_FLAGS = [field.name for field in fields(TokenFlags)]


def read_model(
    model: dict[str, Any], added_tokens: Any, location: str
) -> tuple[dict[str, int], dict[str, TokenFlags], dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Return the special tokens, their flags, the ordinary tokens by id, and the merges.

    Args:
        model: The field `model` of the file.
        added_tokens: The field `added_tokens`.
        location: Name of the file, for errors.

    Raises:
        TokenizerFileError: A field is damaged; the message has its path.
    """
    # Imported late: loading with the core does not need it.
    from bytemill.formats.byte_level import tokens_and_merges

    special_tokens, flags, vocab, pairs = checked_model(model, added_tokens, location)
    tokens, merges = tokens_and_merges(
        vocab,
        pairs,
        special_tokens,
        vocab_location=f"{location}: model.vocab",
        merge_location=lambda index: f"{location}: model.merges[{index}]",
    )
    return special_tokens, flags, tokens, merges


def checked_model(
    model: dict[str, Any], added_tokens: Any, location: str
) -> tuple[dict[str, int], dict[str, TokenFlags], dict[str, int], Sequence[Sequence[str]]]:
    """Return the special tokens, their flags, the vocabulary and the merges as the file has them.

    Arguments and errors are those of `read_model`.
    """
    from bytemill.formats.byte_level import checked_vocab

    vocab = checked_vocab(model.get("vocab"), f"{location}: model.vocab")
    pairs = _checked_pairs(model.get("merges"), f"{location}: model.merges")
    special_tokens, flags = special_tokens_of(
        added_tokens, vocab.get, len(vocab), f"{location}: added_tokens"
    )
    return special_tokens, flags, vocab, pairs


_OTHER_MODELS = {
    "Unigram": "use tokenizers or sentencepiece for it",
    "WordPiece": "use tokenizers or transformers for it",
    "WordLevel": "use tokenizers for it",
}


def refuse_other_models(model: dict[str, Any], location: str) -> None:
    """Raise TokenizerFileError if `model` is not BPE, or has BPE options that bytemill does not support."""
    location = f"{location}: model"
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind != "BPE":
        hint = _OTHER_MODELS.get(kind) if isinstance(kind, str) else None
        raise TokenizerFileError(f"{location}.type is {shown(kind)}; only BPE is supported", hint=hint)
    for field in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field) not in (None, ""):
            raise TokenizerFileError(f"{location}.{field} is {shown(model[field])}, which is not supported")
    dropout = model.get("dropout")
    if dropout is not None and (isinstance(dropout, bool) or dropout != 0):
        raise TokenizerFileError(
            f"{location}.dropout is {shown(dropout)}, which is not supported",
            hint="set 'dropout' to null for deterministic encoding",
        )
    # In byte-level BPE, `unk_token`, `fuse_unk` and `byte_fallback` have no effect: they concern characters without a
    # token, and the model sees only the 256 byte-level characters, all of which have tokens.
    for field in ("fuse_unk", "byte_fallback", "ignore_merges"):
        bool_at(model.get(field, False), f"{location}.{field}")
    if not isinstance(model.get("unk_token"), str | None):
        raise wrong_value(f"{location}.unk_token", model["unk_token"], "a string or null")


def special_tokens_of(
    value: Any, id_of: Callable[[str], int | None], n_entries: int, location: str
) -> tuple[dict[str, int], dict[str, TokenFlags]]:
    """Return the added tokens with their ids, and the flags that differ from the defaults.

    Args:
        value: The field `added_tokens`.
        id_of: Maps byte-level text to its id in the vocabulary.
        n_entries: Size of the vocabulary.
        location: Location of the field, for errors.

    Raises:
        TokenizerFileError: An entry is damaged or has an id that Hugging Face's library would not give it.
    """
    added: dict[str, int] = {}
    flags: dict[str, TokenFlags] = {}
    next_id = n_entries
    for index, entry in enumerate(array_at(value, location)):
        path = f"{location}[{index}]"
        token = object_at(entry, path)
        text: Any = token.get("content")
        token_id: Any = token.get("id")
        if not isinstance(text, str) or not text or not is_text(text):
            raise wrong_value(f"{path}.content", text, "a text")
        check_id(token_id, f"{path}.id")
        token_flags = flags_at(token, path)
        if text in added:
            raise TokenizerFileError(f"{path}: {shown(text)} appears twice")
        # Hugging Face's library ignores the id in the file.
        known = id_of(text)
        actual = next_id if known is None else known
        if actual != token_id:
            raise TokenizerFileError(
                f"{path}.id is {token_id} for {shown(text)}, but Hugging Face's library gives it {actual}",
                hint="put the token into model.vocab with the intended id",
            )
        next_id = max(next_id, token_id + 1)
        added[text] = token_id
        if token_flags != _DEFAULT_FLAGS:
            flags[text] = token_flags
    return added, flags


def flags_at(token: Mapping[str, Any], location: str) -> TokenFlags:
    """Return the flags of a JSON token. Missing ones are false, as in Hugging Face's library.

    Raises:
        TokenizerFileError: A flag is not a boolean.
    """
    return TokenFlags(*(bool_at(token.get(flag, False), f"{location}.{flag}") for flag in _FLAGS))


def _checked_pairs(merges: Any, location: str) -> Sequence[Sequence[str]]:
    """Return the merges as pairs of byte-level texts; earlier versions of the format have strings."""
    merges = array_at(merges, location)
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    # Checking all at once takes a tenth of the time of checking each.
    if not (
        set(map(type, pairs)) <= {list}
        and set(map(len, pairs)) <= {2}
        and set(map(type, chain.from_iterable(pairs))) <= {str}
    ):
        for index, pair in enumerate(pairs):
            match pair:
                case [str(), str()]:
                    pass
                case _:
                    raise wrong_value(f"{location}[{index}]", merges[index], "a pair of tokens")
    return pairs
