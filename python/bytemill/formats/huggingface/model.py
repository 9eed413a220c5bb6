"""Reading of what a tokenizer.json says about tokens: `added_tokens` and the BPE model."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerFileError
from bytemill.formats.files import is_array, is_object, shown
from bytemill.formats.ids import check_id, is_text
from bytemill.formats.spec import TokenFlags

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_USUAL = TokenFlags()
_FLAGS = ("special", "single_word", "lstrip", "rstrip", "normalized")


def read_model(
    model: dict[str, Any], added_tokens: Any, location: str
) -> tuple[dict[str, int], dict[str, TokenFlags], dict[int, bytes], list[tuple[bytes, bytes]]]:
    """The special tokens by text, their flags, the ordinary tokens by id, and the merges.

    `model` and `added_tokens` are the fields of the file. Raises TokenizerFileError naming the place.
    """
    # Brought in only here: where the core reads the model, the rest of the file needs none of it.
    from bytemill.formats.byte_level import checked_vocab, tokens_and_merges

    vocab = checked_vocab(model.get("vocab"), f"{location}: model.vocab")
    pairs = _checked_pairs(model.get("merges"), f"{location}: model.merges")
    special_tokens, flags = special_tokens_of(
        added_tokens, vocab.get, len(vocab), f"{location}: added_tokens"
    )
    tokens, merges = tokens_and_merges(
        vocab,
        pairs,
        special_tokens,
        vocab_location=f"{location}: model.vocab",
        merge_location=lambda index: f"{location}: model.merges[{index}]",
    )
    return special_tokens, flags, tokens, merges


def refuse_other_models(model: dict[str, Any], location: str) -> None:
    """Raise TokenizerFileError where `model` is no BPE, or BPE of a kind that bytemill cannot follow."""
    location = f"{location}: model"
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind != "BPE":
        raise TokenizerFileError(f"{location}.type is {shown(kind)}, and bytemill reads byte-level BPE only")
    for field in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field) not in (None, ""):
            raise TokenizerFileError(
                f"{location}.{field} is {shown(model[field])}, which bytemill cannot do"
            )
    dropout = model.get("dropout")
    if dropout is not None and (isinstance(dropout, bool) or dropout != 0):
        raise TokenizerFileError(
            f"{location}.dropout is {shown(dropout)}, which bytemill cannot do",
            hint="For encoding without chance set 'dropout' to null.",
        )
    # `unk_token`, `fuse_unk` and `byte_fallback` are for characters without a token. The model sees only the 256
    # characters that stand for bytes, and all of them have tokens, which is checked.
    for field in ("fuse_unk", "byte_fallback", "ignore_merges"):
        if not isinstance(model.get(field, False), bool):
            raise TokenizerFileError(f"{location}.{field} is {shown(model[field])}, not true or false")
    if not isinstance(model.get("unk_token"), str | None):
        raise TokenizerFileError(
            f"{location}.unk_token is {shown(model['unk_token'])}, neither a text nor null"
        )


def special_tokens_of(
    value: Any, id_of: Callable[[str], int | None], n_entries: int, location: str
) -> tuple[dict[str, int], dict[str, TokenFlags]]:
    """The added tokens by text, beside a vocabulary of `n_entries`, of which `id_of` gives the ids.

    And the flags of those that have others than a special token has. Raises TokenizerFileError for damaged ones
    and for ids that bytemill cannot follow.
    """
    if not is_array(value):
        raise TokenizerFileError(f"{location} is {shown(value)}, not an array")
    added: dict[str, int] = {}
    flags: dict[str, TokenFlags] = {}
    next_id = n_entries
    for index, token in enumerate(value):
        place = f"{location}[{index}]"
        if not is_object(token):
            raise TokenizerFileError(f"{place} is {shown(token)}, not an object")
        text: Any = token.get("content")
        token_id: Any = token.get("id")
        if not isinstance(text, str) or not text or not is_text(text):
            raise TokenizerFileError(f"{place}.content is {shown(text)}, not a text")
        check_id(token_id, f"{place}.id")
        # Where a flag is missing, it is false in Hugging Face's library; special are those in this list that say so.
        values = [token.get(flag, False) for flag in _FLAGS]
        for flag, value_of_flag in zip(_FLAGS, values, strict=True):
            if not isinstance(value_of_flag, bool):
                raise TokenizerFileError(f"{place}.{flag} is {shown(value_of_flag)}, not true or false")
        if text in added:
            raise TokenizerFileError(f"{place}: {shown(text)} appears twice")
        # What Hugging Face's library does, whatever id the file says.
        known = id_of(text)
        given = next_id if known is None else known
        if given != token_id:
            raise TokenizerFileError(
                f"{place}.id is {token_id} for {shown(text)}, "
                f"but Hugging Face's library gives it {shown(given)}",
                hint="Put the token into model.vocab with the id it is to have.",
            )
        next_id = max(next_id, token_id + 1)
        added[text] = token_id
        token_flags = TokenFlags(*values)
        if token_flags != _USUAL:
            flags[text] = token_flags
    return added, flags


def _checked_pairs(merges: Any, place: str) -> Sequence[Sequence[str]]:
    """The merges as pairs of spellings. The file has pairs, or strings as earlier versions wrote them."""
    if not is_array(merges):
        raise TokenizerFileError(f"{place} is {shown(merges)}, not an array")
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    # Checked as a whole, which takes a tenth of the time of a look at each.
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
                    raise TokenizerFileError(
                        f"{place}[{index}]: is {shown(merges[index])}, not a pair of tokens"
                    )
    return pairs
