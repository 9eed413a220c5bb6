"""Reading of what a tokenizer.json says about tokens: `added_tokens` and the BPE model."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerFileError
from bytemill.formats.bytes_to_unicode import first_foreign_character, text_to_bytes
from bytemill.formats.files import is_array, is_object, shown
from bytemill.formats.vocabulary import MAX_ID, is_text, missing_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# Beyond this many pairs of added tokens nobody compares them: it would take seconds, and no such file is known.
_MAX_COMPARED_PAIRS = 1_000_000


def read_added_tokens(value: Any, model: Mapping[str, Any], where: str) -> dict[str, int]:
    """The added tokens by text. Raises TokenizerFileError for flags and ids that bytemill cannot follow."""
    where = f"{where}: added_tokens"
    if not is_array(value):
        raise TokenizerFileError(f"{where}: is {shown(value)}, not an array")
    vocab = model.get("vocab")
    vocab = vocab if is_object(vocab) else {}
    added: dict[str, int] = {}
    by_normalized: dict[bool, list[str]] = {False: [], True: []}
    next_id = len(vocab)
    for index, token in enumerate(value):
        place = f"{where}[{index}]"
        if not is_object(token):
            raise TokenizerFileError(f"{place}: is {shown(token)}, not an object")
        text, token_id = token.get("content"), token.get("id")
        if not isinstance(text, str) or not text or not is_text(text):
            raise TokenizerFileError(f"{place}.content: is {shown(text)}, not a text")
        _check_id(token_id, f"{place}.id")
        for flag in ("single_word", "lstrip", "rstrip"):
            if token.get(flag, False) is not False:
                raise TokenizerFileError(
                    f"{place}.{flag}: is {shown(token[flag])} for {shown(text)}, which bytemill cannot do",
                    hint=f"Set {flag!r} to false if the text needs no such treatment.",
                )
        if text in added:
            raise TokenizerFileError(f"{place}: {shown(text)} is there twice")
        given = vocab.get(text, next_id)
        if given != token_id:
            raise TokenizerFileError(
                f"{place}.id: is {token_id} for {shown(text)}, but Hugging Face's library gives it {shown(given)}",
                hint="Put the token into model.vocab with the id it is to have.",
            )
        next_id = max(next_id, token_id + 1)
        added[text] = token_id
        by_normalized[token.get("normalized", True) is not False].append(text)
    _refuse_overlaps(by_normalized[False], by_normalized[True], where)
    return added


def read_model(
    model: dict[str, Any], special_tokens: Mapping[str, int], where: str
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """The ordinary tokens by id, and the merges. Raises TokenizerFileError naming the place."""
    where = f"{where}: model"
    _refuse_unsupported(model, where)
    vocab = _checked_vocab(model.get("vocab"), f"{where}.vocab")
    pairs = _checked_pairs(model.get("merges"), f"{where}.merges")
    products = {left + right for left, right in pairs}

    bytes_of: dict[str, bytes] = {}
    foreign: list[str] = []
    for text in vocab:
        try:
            bytes_of[text] = text_to_bytes(text)
        except ValueError:
            foreign.append(text)
    for text in foreign:
        if text not in special_tokens:
            raise TokenizerFileError(
                f"{where}.vocab[{shown(text)}]: {first_foreign_character(text)!r} is none of the 256 characters "
                "that stand for bytes",
                hint="bytemill reads byte-level BPE; a special token must also be among 'added_tokens'.",
            )
    for text, token_id in special_tokens.items():
        if text not in bytes_of:
            continue
        # An added token may also be one that merges make: both then have its id. Otherwise it is only special.
        is_ordinary = len(text) == 1 or text in products
        if is_ordinary and bytes_of[text] != text.encode():
            raise TokenizerFileError(
                f"{where}.vocab[{shown(text)}]: id {token_id} is both the bytes {bytes_of[text]!r} and an added token"
            )
        if not is_ordinary:
            del bytes_of[text]

    tokens = {vocab[text]: token for text, token in bytes_of.items()}
    by_id = {token_id: text for text, token_id in special_tokens.items()}
    for token_id in tokens.keys() & by_id.keys():
        if tokens[token_id] != by_id[token_id].encode():
            raise TokenizerFileError(
                f"{where}.vocab: id {token_id} is both {tokens[token_id]!r} and {by_id[token_id]!r}"
            )
    if len(by_id) != len(special_tokens):
        raise TokenizerFileError(f"{where}.vocab: two added tokens have the same id")
    missing = missing_bytes(tokens.values())
    if missing is not None:
        raise TokenizerFileError(
            f"{where}.vocab: lacks {missing}",
            hint="Hugging Face's library drops such bytes from a text; train with initial_alphabet=ByteLevel.alphabet().",
        )
    return tokens, _merges_as_bytes(pairs, products, bytes_of, f"{where}.merges")


def _check_id(value: Any, place: str) -> None:
    if type(value) is not int or not 0 <= value <= MAX_ID:
        raise TokenizerFileError(f"{place}: is {shown(value)}, not an id between 0 and {MAX_ID}")


def _refuse_overlaps(first: Collection[str], second: Collection[str], where: str) -> None:
    """Refuse added tokens of unequal `normalized` of which one can overlap another in a text.

    Without a normalizer the flag decides only that those without it are looked for first; that is the same as looking
    for all at once where none of the ones can touch one of the others.
    """
    if len(first) * len(second) > _MAX_COMPARED_PAIRS:
        raise TokenizerFileError(f"{where}: thousands of tokens with 'normalized' and thousands without")
    for one, other in product(first, second):
        shorter = min(len(one), len(other))
        if (
            one in other
            or other in one
            or any(one.endswith(other[:n]) or other.endswith(one[:n]) for n in range(1, shorter))
        ):
            raise TokenizerFileError(
                f"{where}: {shown(one)} and {shown(other)} can overlap in a text, and 'normalized' of only one is true",
                hint="Give both the same 'normalized'.",
            )


def _refuse_unsupported(model: dict[str, Any], where: str) -> None:
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind != "BPE":
        raise TokenizerFileError(f"{where}.type: is {shown(kind)}, and bytemill reads byte-level BPE only")
    for field in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        # `unk_token` and `fuse_unk` are of no effect where all 256 bytes have tokens, which is checked.
        if model.get(field):
            raise TokenizerFileError(
                f"{where}.{field}: is {shown(model[field])}, which bytemill cannot do",
                hint=f"Set {field!r} to null." if field == "dropout" else None,
            )
    if model.get("byte_fallback"):
        raise TokenizerFileError(f"{where}.byte_fallback: is set: this is not a byte-level vocabulary")
    if not isinstance(model.get("ignore_merges", False), bool):
        raise TokenizerFileError(f"{where}.ignore_merges: is {shown(model['ignore_merges'])}, not true or false")


def _checked_vocab(vocab: Any, place: str) -> dict[str, int]:
    if not is_object(vocab) or not vocab:
        raise TokenizerFileError(f"{place}: is {'empty' if is_object(vocab) else shown(vocab)}, not a vocabulary")
    ids = vocab.values()
    well_formed = {type(token_id) for token_id in ids} == {int} and min(ids) >= 0 and max(ids) <= MAX_ID
    if not well_formed or len(set(ids)) != len(vocab):
        seen: dict[int, str] = {}
        for text, token_id in vocab.items():
            _check_id(token_id, f"{place}[{shown(text)}]")
            if token_id in seen:
                raise TokenizerFileError(f"{place}: {shown(seen[token_id])} and {shown(text)} have the same id {token_id}")
            seen[token_id] = text
    return vocab


def _checked_pairs(merges: Any, place: str) -> list[tuple[str, str]]:
    """The merges as pairs of spellings; the file has them as pairs or, from earlier versions, as "left right"."""
    if not is_array(merges):
        raise TokenizerFileError(f"{place}: is {shown(merges)}, not an array")
    pairs: list[tuple[str, str]] = []
    for index, merge in enumerate(merges):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        match parts:
            case [str(left), str(right)]:
                pairs.append((left, right))
            case _:
                raise TokenizerFileError(f"{place}[{index}]: is {shown(merge)}, not a pair of tokens")
    if len(set(pairs)) != len(pairs):
        first_seen: dict[tuple[str, str], int] = {}
        for index, pair in enumerate(pairs):
            if first_seen.setdefault(pair, index) != index:
                raise TokenizerFileError(f"{place}[{index}]: {shown(pair)} is there already at [{first_seen[pair]}]")
    return pairs


def _merges_as_bytes(
    pairs: list[tuple[str, str]], products: set[str], bytes_of: Mapping[str, bytes], place: str
) -> list[tuple[bytes, bytes]]:
    try:
        merges = [(bytes_of[left], bytes_of[right]) for left, right in pairs]
    except KeyError:
        merges = None
    if merges is None or not products <= bytes_of.keys():
        for index, (left, right) in enumerate(pairs):
            for text in (left, right, left + right):
                if text not in bytes_of:
                    raise TokenizerFileError(
                        f"{place}[{index}]: {shown(text)} is not an ordinary token of the vocabulary"
                    )
    return merges or []
