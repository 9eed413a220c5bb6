"""GPT-2's pair of files: `vocab.json` (token -> id) and `merges.txt` (one merge per line, in rank order).

The files store no pattern (GPT-2's is the default) and do not mark special tokens. A token that is neither a single
byte nor the product of a merge must be a special token; it is accepted if the caller names it or if it looks like one.
Files beside the two may name the class of the tokenizer, which has a pattern, and special tokens: see
`huggingface.sidecars`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill._core import StringArray, TokenizerJson, named_pattern
from bytemill.errors import BytemillError, TokenizerError, TokenizerFileError
from bytemill.formats.byte_level import (
    CHARACTER_TO_BYTE,
    byte_level_vocab,
    bytes_to_text,
    checked_vocab,
    is_vocabulary,
    tokens_and_merges,
)
from bytemill.formats.encoder import Loaded
from bytemill.formats.files import MAX_ID, is_text, read_json, read_text, shown, vocab_and_merges_paths
from bytemill.formats.huggingface.parts import flags_at
from bytemill.formats.huggingface.sidecars import Sidecars
from bytemill.formats.patterns import checked_pattern
from bytemill.formats.ranks import merges_of_ranks, unreachable_token
from bytemill.formats.spec import (
    TokenFlags,
    TokenizerSpec,
    check_expressible,
    checked_parts,
    explicit_ids,
    special_rules,
    training_left_out,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import EllipsisType

    from bytemill.formats.registry import Content
    from bytemill.formats.spec import SpecialTokens

_HEADER = "#version"


def recognize(content: Content) -> bool:
    """Return whether a file is one of the two."""
    if content.document is not None:
        return is_vocabulary(content.document)
    # The first line is the header of merges.txt, or a merge of two single bytes.
    first = next((line for line in content.text[:4096].split("\n") if line.strip()), "").removesuffix("\r")
    parts = first.split(" ")
    is_merge = len(parts) == 2 and all(part in CHARACTER_TO_BYTE for part in parts)
    return is_merge or re.fullmatch(r"#version: [0-9.]+", first) is not None


def read(content: Content) -> TokenizerSpec:
    """Read one of the two files with the other one, which must be beside it and named alike."""
    if content.file is not None:
        vocab, merges = vocab_and_merges_paths(content.file)
        if vocab.is_file() and merges.is_file():
            return read_in_folder(vocab, merges, content.pattern, content.special_tokens)
    what = (
        "merges without their vocabulary" if content.document is None else "a vocabulary without its merges"
    )
    raise TokenizerFileError(
        f"{content.location}: {what}",
        hint="give the folder that contains both vocab.json and merges.txt, or use from_files",
    )


def render(spec: TokenizerSpec, path: Path) -> dict[Path, bytes]:
    """Return the files for a folder, or for the name of one of the two. Raises as `write`."""
    vocab_json, merges_txt = write(spec)
    vocab, merges = vocab_and_merges_paths(path)
    return {merges: merges_txt.encode(), vocab: vocab_json.encode()}


def left_out(spec: TokenizerSpec) -> list[str]:
    """Describe what the files do not store: that unusual tokens are special, and statistics of training."""
    unmarked = _unmarked_special_tokens(spec)
    phrase = f"that these tokens are special: {', '.join(map(shown, unmarked))}"
    return [*([phrase] if unmarked else []), *training_left_out(spec)]


def load(content: Content) -> Loaded | None:
    """Load one of the two files with the other one; None if it is not one of them. See `load_in_folder`."""
    vocab, merges = vocab_and_merges_paths(content.file or Path())
    if content.file not in (vocab, merges) or not (vocab.is_file() and merges.is_file()):
        return None
    return load_in_folder(vocab, merges, content.pattern, content.special_tokens)


def load_in_folder(
    vocab: Path, merges: Path, pattern: str | EllipsisType | None, special_tokens: SpecialTokens | None
) -> Loaded | None:
    """Load the two files with the core; None if the reader in Python must read or reject them."""
    with contextlib.suppress(BytemillError):
        ids = checked_vocab(read_json(vocab), str(vocab))
        lines = [line.removesuffix("\r") for line in read_text(merges).split("\n")]
        lines = [line for line in lines[lines[0].startswith(_HEADER) :] if line]
        made = {line.replace(" ", "", 1) for line in lines}
        spec = _without_merges(ids, made, vocab, special_tokens, pattern=pattern, sidecars=_sidecars(vocab))
        texts = [text for text, _ in sorted(ids.items(), key=itemgetter(1))]
        if ids[texts[-1]] != len(texts) - 1 or "" in ids:
            return None
        file = TokenizerJson.of_strings(StringArray(texts), StringArray(lines), set())
        rules = special_rules(spec.special_tokens, spec.flags, spec.normalizer)
        core = file and file.encoder(spec.special_tokens, spec.pattern, False, rules, spec.normalizer)
        return core and Loaded(core, flags=spec.flags, metadata=spec.metadata)
    return None


def read_in_folder(
    vocab: Path, merges: Path, pattern: str | EllipsisType | None, special_tokens: SpecialTokens | None
) -> TokenizerSpec:
    """Read the two files, and those beside them if they have the names that transformers knows. See `read_pair`."""
    return read_pair(vocab, merges, special_tokens, pattern=pattern, sidecars=_sidecars(vocab))


def _sidecars(vocab: Path) -> Sidecars | None:
    return Sidecars.beside(vocab.parent, of_model=True) if vocab.name == "vocab.json" else None


def read_pair(
    vocab_path: str | os.PathLike[str],
    merges_path: str | os.PathLike[str],
    special_tokens: SpecialTokens | None = None,
    *,
    pattern: str | EllipsisType | None = ...,
    sidecars: Sidecars | None = None,
) -> TokenizerSpec:
    """Read a vocabulary file and a merges file.

    Args:
        vocab_path: The vocabulary file.
        merges_path: The merges file.
        special_tokens: Special tokens. Those in the vocabulary keep their ids; the others get their explicit ids or the
            next ids after the highest one. `<tokens>` and `[tokens]` that no merge produces, and tokens that are not
            byte-level text, are special tokens in any case.
        pattern: Name or regular expression; by default that of the class that `sidecars` names, or GPT-2's.
        sidecars: The files beside the two.

    Raises:
        TokenizerFileError: A file is damaged, the two do not belong together, or the class is unknown and `pattern` is
            not set.
    """
    location, merges_location = os.fspath(vocab_path), os.fspath(merges_path)
    vocab = checked_vocab(read_json(vocab_path), location)
    pairs, line_numbers = _read_pairs(read_text(merges_path), merges_location)
    made = {left + right for left, right in pairs}
    spec = _without_merges(vocab, made, Path(location), special_tokens, pattern=pattern, sidecars=sidecars)
    tokens, merges = tokens_and_merges(
        vocab,
        pairs,
        spec.special_tokens,
        vocab_location=location,
        merge_location=lambda index: f"{merges_location}:{line_numbers[index]}",
    )
    return replace(spec, vocab=tokens, merges=merges)


def _without_merges(
    vocab: Mapping[str, int],
    made: Collection[str],
    path: Path,
    special_tokens: SpecialTokens | None,
    *,
    pattern: str | EllipsisType | None,
    sidecars: Sidecars | None,
) -> TokenizerSpec:
    """Return the tokenizer without its ordinary tokens and merges.

    Arguments and errors are those of `read_pair`; `made` are the results of the merges.
    """
    location = str(path)
    sidecars = sidecars or Sidecars(path.parent)
    if pattern is ...:
        pattern = sidecars.pattern
    added = sidecars.added_tokens([], vocab.get, len(vocab))
    requested = {token["content"]: token["id"] for token in added}
    explicit = explicit_ids(special_tokens or ()) or {}
    special = _special_tokens(
        vocab,
        made,
        requested | {text: explicit.get(text, requested.get(text)) for text in special_tokens or ()},
        location,
        others_are_ordinary=sidecars.known_class is not None,
    )
    flags = {token["content"]: flags_at(token, location) for token in added}
    return TokenizerSpec(
        pattern=checked_pattern(pattern),
        special_tokens=special,
        normalizer=sidecars.normalizer,
        flags={text: each for text, each in flags.items() if each != TokenFlags()},
        metadata=sidecars.metadata(sidecars.post_processor(special)),
    )


def _read_pairs(text: str, location: str) -> tuple[list[tuple[str, str]], list[int]]:
    """Return the merges as byte-level text and the line number of each, skipping blank lines and the header."""
    pairs: list[tuple[str, str]] = []
    line_numbers: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        match line.removesuffix("\r").split(" "):
            case [left, right] if left and right and (number > 1 or not left.startswith(_HEADER)):
                pairs.append((left, right))
                line_numbers.append(number)
            case [""]:
                pass
            case _ if number == 1 and line.startswith(_HEADER):
                pass
            case _:
                raise TokenizerFileError(
                    f"{location}:{number}: {shown(line)} is not two tokens separated by a space"
                )
    return pairs, line_numbers


def _special_tokens(
    vocab: Mapping[str, int],
    made: Collection[str],
    requested: Mapping[str, int | None],
    location: str,
    *,
    others_are_ordinary: bool,
) -> dict[str, int]:
    """Return the requested special tokens and those that look like one, with ids.

    Args:
        vocab: The vocabulary.
        made: The results of the merges.
        requested: Special tokens, with an id or None for that of the vocabulary or the next one.
        location: Name of the vocabulary file, for errors.
        others_are_ordinary: Other tokens that no merge makes are ordinary ones, which no text encodes to.
    """
    special: dict[str, int] = {}
    next_id = (
        max([*vocab.values(), *(token_id for token_id in requested.values() if token_id is not None)]) + 1
    )
    for text, token_id in requested.items():
        if not text or not is_text(text):
            raise TokenizerError(f"special token {text!r} is not a text")
        if text in vocab:
            special[text] = vocab[text]
            if token_id not in (None, vocab[text]):
                raise TokenizerError(
                    f"special token {text!r} has id {vocab[text]} in {location}, not {token_id}"
                )
        elif token_id is not None:
            special[text] = token_id
        else:
            special[text] = next_id
            next_id += 1
    if next_id > MAX_ID + 1:
        raise TokenizerFileError(f"{location}: no ids are left for the special tokens")
    if others_are_ordinary:
        return special
    for text, token_id in vocab.items():
        if text in made or text in CHARACTER_TO_BYTE or text in special:
            continue
        if not looks_special(text):
            raise TokenizerFileError(
                f"{location}: token {shown(text)} (id {token_id}) is neither a single byte nor the product of a merge",
                hint="name it in special_tokens if it is a special token; otherwise the merges are truncated or "
                "belong to another vocabulary",
            )
        special[text] = token_id
    return special


def looks_special(text: str) -> bool:
    """Return whether a token is `<bracketed>`, `[bracketed]`, or not byte-level text."""
    if not is_text(text):
        return False
    bracketed = len(text) > 2 and (text[0], text[-1]) in {("<", ">"), ("[", "]")}
    return bracketed or not CHARACTER_TO_BYTE.keys() >= set(text)


def write(spec: TokenizerSpec) -> tuple[str, str]:
    """Return the texts of vocab.json and merges.txt.

    Raises:
        TokenizerError: `spec` has another pattern than GPT-2's, or tokens that no merge produces.
    """
    if spec.pattern is None or named_pattern(spec.pattern) != "gpt2":
        raise TokenizerError(
            f"vocab.json and merges.txt imply GPT-2's pattern; this tokenizer's pattern is {shown(spec.pattern)}",
            hint="write a tokenizer.json: it stores the pattern",
        )
    check_expressible(spec, "vocab.json and merges.txt")
    tokens, merges = checked_parts(spec)
    products = {left + right for left, right in merges}
    orphan = next((token for token in tokens.values() if len(token) > 1 and token not in products), None)
    if orphan is None and (spec.ignore_merges or spec.ranks is not None):
        orphan = unreachable_token(merges, list(tokens.values()))
    if orphan is not None:
        raise TokenizerError(
            f"no sequence of merges produces token {orphan!r}, so these two files cannot represent it",
            hint="write a tokenizer.json",
        )
    vocab = byte_level_vocab(spec, tokens, ignore_merges=False)
    text = {part: bytes_to_text(part) for merge in merges for part in merge}
    lines = [f"{_HEADER}: 0.2", *(f"{text[left]} {text[right]}" for left, right in merges)]
    vocab_json = "{\n" + json.dumps(vocab, ensure_ascii=False, separators=(",\n", ": "))[1:-1] + "\n}\n"
    return vocab_json, "\n".join(lines) + "\n"


def _unmarked_special_tokens(spec: TokenizerSpec) -> list[str]:
    """Return the special tokens that a reader of the two files cannot recognize and must be told."""
    merges = spec.merges if spec.merges is not None else merges_of_ranks(spec.ranks or {})
    made = {bytes_to_text(left + right) for left, right in merges} | CHARACTER_TO_BYTE.keys()
    return [text for text in spec.special_tokens if text in made or not looks_special(text)]
