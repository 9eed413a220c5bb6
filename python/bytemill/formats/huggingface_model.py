"""Reading of what a tokenizer.json says about tokens: `added_tokens` and the BPE model."""

from __future__ import annotations

from itertools import chain, product
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerFileError
from bytemill.formats.files import is_array, is_object, shown
from bytemill.formats.spelling import check_id, checked_vocab, tokens_and_merges
from bytemill.formats.vocabulary import is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

# Characters of the one kind times characters of the other: a bound on the time that comparing them takes,
# some hundred times what published files need.
_MAX_COMPARISONS = 10_000_000


def read_model(
    model: dict[str, Any], added_tokens: Any, where: str
) -> tuple[dict[str, int], dict[int, bytes], list[tuple[bytes, bytes]]]:
    """The special tokens by text, the ordinary tokens by id, and the merges.

    `model` and `added_tokens` are the fields of the file. Raises TokenizerFileError naming the place.
    """
    vocab = checked_vocab(model.get("vocab"), f"{where}: model.vocab")
    pairs = _checked_pairs(model.get("merges"), f"{where}: model.merges")
    special_tokens = special_tokens_of(added_tokens, vocab.get, len(vocab), f"{where}: added_tokens")
    tokens, merges = tokens_and_merges(
        vocab,
        pairs,
        special_tokens,
        vocab_place=f"{where}: model.vocab",
        merge_place=lambda index: f"{where}: model.merges[{index}]",
    )
    return special_tokens, tokens, merges


def refuse_other_models(model: dict[str, Any], where: str) -> None:
    """Raise TokenizerFileError where `model` is no BPE, or BPE of a kind that bytemill cannot follow."""
    where = f"{where}: model"
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind != "BPE":
        raise TokenizerFileError(f"{where}.type: is {shown(kind)}, and bytemill reads byte-level BPE only")
    # `unk_token` and `fuse_unk` have no effect where all 256 bytes have tokens, which is checked.
    for field in ("continuing_subword_prefix", "end_of_word_suffix", "dropout", "byte_fallback"):
        if model.get(field):
            raise TokenizerFileError(
                f"{where}.{field}: is {shown(model[field])}, which bytemill cannot do",
                hint="For encoding without chance set 'dropout' to null." if field == "dropout" else None,
            )
    if not isinstance(model.get("ignore_merges", False), bool):
        raise TokenizerFileError(
            f"{where}.ignore_merges: is {shown(model['ignore_merges'])}, not true or false"
        )


def special_tokens_of(
    value: Any, id_of: Callable[[str], int | None], n_entries: int, where: str
) -> dict[str, int]:
    """The added tokens by text, beside a vocabulary of `n_entries`, of which `id_of` gives the ids.

    Raises TokenizerFileError for flags and ids that bytemill cannot follow.
    """
    if not is_array(value):
        raise TokenizerFileError(f"{where}: is {shown(value)}, not an array")
    added: dict[str, int] = {}
    by_normalized: dict[bool, list[str]] = {False: [], True: []}
    next_id = n_entries
    for index, token in enumerate(value):
        place = f"{where}[{index}]"
        if not is_object(token):
            raise TokenizerFileError(f"{place}: is {shown(token)}, not an object")
        text: Any = token.get("content")
        token_id: Any = token.get("id")
        if not isinstance(text, str) or not text or not is_text(text):
            raise TokenizerFileError(f"{place}.content: is {shown(text)}, not a text")
        check_id(token_id, f"{place}.id")
        for flag in ("single_word", "lstrip", "rstrip"):
            if token.get(flag, False) is not False:
                raise TokenizerFileError(
                    f"{place}.{flag}: is {shown(token[flag])} for {shown(text)}, which bytemill cannot do",
                    hint=f"Set {flag!r} to false if texts need no such treatment.",
                )
        if text in added:
            raise TokenizerFileError(f"{place}: {shown(text)} is there twice")
        # What Hugging Face's library does, whatever id the file says.
        known = id_of(text)
        given = next_id if known is None else known
        if given != token_id:
            raise TokenizerFileError(
                f"{place}.id: is {token_id} for {shown(text)}, "
                f"but Hugging Face's library gives it {shown(given)}",
                hint="Put the token into model.vocab with the id it is to have.",
            )
        next_id = max(next_id, token_id + 1)
        added[text] = token_id
        by_normalized[token.get("normalized") is True].append(text)
    _refuse_overlaps(by_normalized[False], by_normalized[True], where)
    return added


def _refuse_overlaps(first: Collection[str], second: Collection[str], where: str) -> None:
    """Refuse added tokens of unequal `normalized` of which one can overlap another in a text.

    Without a normalizer the flag decides only that those without it are looked for first; that is the same as
    looking for all at once where none of the ones can touch one of the others.
    """
    if sum(map(len, first)) * sum(map(len, second)) > _MAX_COMPARISONS:
        raise TokenizerFileError(f"{where}: too many tokens with 'normalized' and without it")
    for one, other in product(first, second):
        if (
            one in other
            or other in one
            or any(
                one.endswith(other[:n]) or other.endswith(one[:n])
                for n in range(1, min(len(one), len(other)))
            )
        ):
            raise TokenizerFileError(
                f"{where}: {shown(one)} and {shown(other)} can overlap, and only one of them is 'normalized'",
                hint="Give both the same 'normalized'.",
            )


def _checked_pairs(merges: Any, place: str) -> Sequence[Sequence[str]]:
    """The merges as pairs of spellings. The file has pairs, or strings as earlier versions wrote them."""
    if not is_array(merges):
        raise TokenizerFileError(f"{place}: is {shown(merges)}, not an array")
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
