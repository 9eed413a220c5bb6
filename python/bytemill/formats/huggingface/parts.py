"""The parts of a tokenizer.json around its model: added tokens, normalizer, pre-tokenizer, post-processor, decoder.

A pattern of several steps, each of which splits the output of the previous one, joins their expressions with
`STEP_SEPARATOR`. Steps after `ByteLevel` see a character for each byte; they follow `BYTES_SEPARATOR`. The
post-processor and the decoder are kept as plain data, because they do not affect ids.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from bytemill._core import NAMED_PATTERNS, check_pattern, named_pattern
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import (
    array_at,
    bool_at,
    check_id,
    is_array,
    is_object,
    is_text,
    object_at,
    shown,
    wrong_value,
)
from bytemill.formats.spec import BYTES_SEPARATOR, STEP_SEPARATOR, TokenFlags, TokenizerMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bytemill.formats.spec import NormalizerSteps

_FLAGS = [field.name for field in fields(TokenFlags)]


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
            if (added[text], flags.get(text, TokenFlags())) == (token_id, token_flags):
                continue
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
        if token_flags != TokenFlags():
            flags[text] = token_flags
    return added, flags


def flags_at(token: Mapping[str, Any], location: str) -> TokenFlags:
    """Return the flags of a JSON token. Missing ones are false, as in Hugging Face's library.

    Raises:
        TokenizerFileError: A flag is not a boolean.
    """
    return TokenFlags(*(bool_at(token.get(flag, False), f"{location}.{flag}") for flag in _FLAGS))


def steps_of(value: Any, location: str, field: str, what: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the objects in nested sequences in order, with their paths; an object that is no sequence is the only one.

    Args:
        value: The object.
        location: Its path, for errors.
        field: Name of the array in a `Sequence`.
        what: What an object is, for errors.

    Raises:
        TokenizerFileError: A part is not an object, or a sequence has no array.
    """
    pending = [(value, location)]
    while pending:
        inner, path = pending.pop()
        step = object_at(inner, path, what)
        if step.get("type") == "Sequence":
            path = f"{path}.{field}"
            parts = array_at(step.get(field), path)
            pending.extend((part, f"{path}[{i}]") for i, part in reversed(list(enumerate(parts))))
        else:
            yield step, path


_WITHOUT_ARGUMENTS = frozenset(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"))
_SEVERAL_SPACES = " {2,}"
# Spaces at the end are trimmed after U+2581 has replaced them.
_TRIMMED = {"left": r"\A +", "right": r"▁+\z"}
_MAX_NORMALIZER_STEPS = 64


def from_normalizer(value: Any, location: str) -> NormalizerSteps:
    """Return the steps of a `normalizer` object or of null.

    Raises:
        TokenizerFileError: The object is damaged, or a step is not supported.
    """
    if value is None:
        return ()
    steps: list[tuple[str, ...]] = []
    for step, path in steps_of(value, location, "normalizers", "a normalizer"):
        parsed = _normalizer_step(step, path)
        # The steps without arguments change nothing a second time.
        if not (steps and steps[-1] == parsed and len(parsed) == 1):
            steps.append(parsed)
    if len(steps) > _MAX_NORMALIZER_STEPS:
        raise TokenizerFileError(
            f"{location} has {len(steps)} steps; at most {_MAX_NORMALIZER_STEPS} are supported"
        )
    return tuple(steps)


def to_normalizer(steps: NormalizerSteps) -> dict[str, Any] | None:
    """Return the `normalizer` object of steps without `Metaspace`; None for no steps."""
    objects = [_normalizer_object(*step) for step in steps]
    if len(objects) > 1:
        return {"type": "Sequence", "normalizers": objects}
    return objects[0] if objects else None


def _normalizer_object(name: str, *arguments: str) -> dict[str, Any]:
    match name, arguments:
        case "Replace", (before, after):
            return {"type": "Replace", "pattern": {"String": before}, "content": after}
        case "JoinSpaces", _:
            return {"type": "Replace", "pattern": {"Regex": _SEVERAL_SPACES}, "content": " "}
        case "TrimSpaces", (side,):
            return {"type": "Replace", "pattern": {"Regex": _TRIMMED[side]}, "content": ""}
        case "Prepend", (text,):
            return {"type": "Prepend", "prepend": text}
        case "Strip", (sides,):
            return {"type": "Strip", "strip_left": sides != "right", "strip_right": sides != "left"}
        case _:
            return {"type": name}


def _normalizer_step(step: dict[str, Any], path: str) -> tuple[str, ...]:
    kind = step.get("type")
    match step:
        case {"type": str(name)} if name in _WITHOUT_ARGUMENTS:
            return (name,)
        case {"type": "Replace", "pattern": {"String": str(before)}, "content": str(after)} if before:
            return ("Replace", before, after)
        case {"type": "Replace", "pattern": {"Regex": str(expression)}, "content": ""} if (
            expression in _TRIMMED.values()
        ):
            return ("TrimSpaces", "left" if expression == _TRIMMED["left"] else "right")
        case {"type": "Replace", "pattern": {"Regex": str(expression)}, "content": " " | "▁"} if (
            expression == _SEVERAL_SPACES
        ):
            return ("JoinSpaces",)
        case {"type": "Prepend", "prepend": str(text)}:
            return ("Prepend", text)
        case {"type": "Strip"}:
            left = bool_at(step.get("strip_left", True), f"{path}.strip_left")
            right = bool_at(step.get("strip_right", True), f"{path}.strip_right")
            if left or right:
                return ("Strip", "both" if left and right else "left" if left else "right")
        case _:
            pass
    raise TokenizerFileError(
        f"{path} is {shown(kind)}, which is not supported"
        + (" with a regular expression as pattern" if kind == "Replace" else ""),
        hint="normalize texts before encoding them, and set 'normalizer' to null",
    )


PREFIX: NormalizerSteps = (("Metaspace", "always"),)
"""The step of a normalizer for `add_prefix_space`: a space before each text that does not begin with one."""

# Published files have up to four steps; each costs one pass over the text.
_MAX_PRE_TOKENIZER_STEPS = 16

# Digits steps, by `individual_digits`. Hugging Face's library uses `char::is_numeric`, which is \p{N}.
_DIGITS = {True: r"\p{N}", False: r"\p{N}+"}
# Punctuation steps, by `behavior`. Their library knows ASCII's punctuation and Unicode's of version 8, in which two
# characters were punctuation that no longer are.
_PUNCTUATION_CLASS = r"[[\p{P}&&\p{Age=8.0}]$+<=>^`|~\x{166D}\x{111C9}]"
_PUNCTUATION = {"Isolated": _PUNCTUATION_CLASS, "Contiguous": _PUNCTUATION_CLASS + "+"}
# cl100k as in Hugging Face's own conversions, which other readers of tokenizer.json recognize (JavaScript has neither
# possessive quantifiers nor \z). The alternative with (?![\s\S]), the end of the text, distinguishes it from Llama 3's
# pattern: trailing white space stays in one pre-token even if it contains a line break.
CL100K_FOR_ONIGURUMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+(?![\s\S])|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def to_pre_tokenizer(pattern: str | None, *, add_prefix_space: bool = False) -> dict[str, Any]:
    """Return the `pre_tokenizer` object of a pattern.

    Args:
        pattern: The pattern.
        add_prefix_space: Put a space before texts.

    Raises:
        TokenizerError: Hugging Face's library has no exact equivalent.
    """
    of_texts, _, of_bytes = (pattern or "").partition(BYTES_SEPARATOR)
    before = of_texts.split(STEP_SEPARATOR) if of_texts else []
    ends_with_gpt2 = bool(before) and named_pattern(before[-1]) == "gpt2"
    steps = [_pre_tokenizer_step(expression) for expression in (before[:-1] if ends_with_gpt2 else before)]
    if steps and add_prefix_space:
        raise TokenizerError(
            "tokenizer.json cannot represent a space before texts that a pattern of steps splits"
        )
    steps.append(_byte_level(use_regex=ends_with_gpt2, add_prefix_space=add_prefix_space))
    steps += [
        _pre_tokenizer_step(expression) for expression in (of_bytes.split(STEP_SEPARATOR) if of_bytes else [])
    ]
    return {"type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else steps[0]


def _pre_tokenizer_step(pattern: str) -> dict[str, Any]:
    """Return the object of one step: Punctuation if it is exactly that, else Split."""
    for behavior, expression in _PUNCTUATION.items():
        if pattern == expression:
            return {"type": "Punctuation", "behavior": behavior}
    name = named_pattern(pattern)
    if name == "cl100k":
        expression = CL100K_FOR_ONIGURUMA
    else:
        expression = pattern if name is None else NAMED_PATTERNS[name]
        from bytemill.formats.huggingface.oniguruma import ExpressionError, to_oniguruma

        try:
            expression = to_oniguruma(expression)
        except ExpressionError as error:
            raise TokenizerError(
                f"pattern {shown(pattern)} has no exact equivalent in Hugging Face tokenizers: {error}",
                hint="use \\p{...}, \\s, \\d and plain classes, which have the same meaning in both engines",
            ) from error
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def from_pre_tokenizer(value: Any, location: str) -> str | None:
    """Return the pattern of a `pre_tokenizer` object; None for no pre-tokenization.

    Raises:
        TokenizerFileError: The object is damaged, or is not ByteLevel with any number of Split, Digits and Punctuation
            steps before and after it.
    """
    steps = list(steps_of(value, location, "pretokenizers", "a pre-tokenizer of byte-level BPE"))
    at = next((index for index, (step, _) in enumerate(steps) if step.get("type") == "ByteLevel"), None)
    if at is None:
        raise TokenizerFileError(
            f"{location} is {_kinds(steps)}, which has no ByteLevel",
            hint="bytemill reads byte-level BPE tokenizers only",
        )
    byte_level, path = steps[at]
    if _flag(byte_level, "add_prefix_space", path, default=True) and at > 0:
        raise TokenizerFileError(
            f"{path}.add_prefix_space is true, which is not supported after another step",
            hint="set it to false and add the space to the text yourself",
        )
    if len(steps) > _MAX_PRE_TOKENIZER_STEPS:
        raise TokenizerFileError(
            f"{location} has {len(steps)} steps; at most {_MAX_PRE_TOKENIZER_STEPS} are supported"
        )
    patterns = [_step_pattern(step, step_path) for step, step_path in steps[:at]]
    if _flag(byte_level, "use_regex", path, default=True):
        patterns.append(NAMED_PATTERNS["gpt2"])
    of_texts = STEP_SEPARATOR.join(patterns)
    if at == len(steps) - 1:
        return of_texts or None
    of_bytes = STEP_SEPARATOR.join(_step_pattern(step, step_path) for step, step_path in steps[at + 1 :])
    try:
        check_pattern(BYTES_SEPARATOR + of_bytes)
    except ValueError as error:
        raise TokenizerFileError(f"{location}: after ByteLevel, {error}") from error
    return of_texts + BYTES_SEPARATOR + of_bytes


def check_decoder(value: Any, location: str) -> None:
    """Raise TokenizerFileError for a `decoder` object that does not join the bytes of the tokens.

    Without a decoder, Hugging Face's library puts spaces between the tokens.
    """
    steps = [] if value is None else steps_of(value, location, "decoders", "a decoder")
    kinds = [step.get("type") for step, _ in steps]
    if not kinds or kinds[0] != "ByteLevel" or any(kind != "Fuse" for kind in kinds[1:]):
        raise TokenizerFileError(
            f"{location} is {' + '.join(shown(kind) for kind in kinds) or 'missing'}, not ByteLevel"
        )


def adds_prefix_space(value: Any) -> bool:
    """Return whether the first step of a `pre_tokenizer` object puts a space before texts."""
    for step, _ in steps_of(value, "pre_tokenizer", "pretokenizers", "a pre-tokenizer"):
        return step.get("type") == "ByteLevel" and step.get("add_prefix_space", True) is True
    return False


def _flag(step: dict[str, Any], field: str, path: str, *, default: bool) -> bool:
    return bool_at(step.get(field, default), f"{path}.{field}")


def _byte_level(*, use_regex: bool, add_prefix_space: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _kinds(steps: list[tuple[dict[str, Any], str]]) -> str:
    kinds = [shown(step.get("type")).strip("'") for step, _ in steps]
    return (
        " + ".join(
            [*kinds[:_MAX_PRE_TOKENIZER_STEPS], *(["…"] if len(kinds) > _MAX_PRE_TOKENIZER_STEPS else [])]
        )
        or "empty"
    )


def _step_pattern(step: dict[str, Any], path: str) -> str:
    """Return the pattern of one step before or after ByteLevel."""
    kind = step.get("type")
    if kind == "Punctuation":
        behavior = step.get("behavior", "Isolated")
        if isinstance(behavior, str) and behavior in _PUNCTUATION:
            return _PUNCTUATION[behavior]
        raise TokenizerFileError(f"{path}: Punctuation with behavior {shown(behavior)} is not supported")
    if kind == "Digits":
        return _DIGITS[_flag(step, "individual_digits", path, default=False)]
    if kind != "Split":
        raise TokenizerFileError(
            f"{path}: the pre-tokenizer {shown(kind)} is not supported"
            + (" a second time" if kind == "ByteLevel" else "")
        )
    pattern = step.get("pattern")
    match pattern:
        case {"Regex": str(expression)} if len(pattern) == 1:
            name, found = _recognized(expression, f"{path}.pattern.Regex")
        case {"String": str(text)} if len(pattern) == 1 and text:
            name, found = None, re.sub(r"([\\.+*?()|\[\]{}^$#&~-])", r"\\\1", text)
        case _:
            raise TokenizerFileError(f"{path}.pattern is neither {{'Regex': …}} nor {{'String': …}}")
    behavior, invert = step.get("behavior"), _flag(step, "invert", path, default=False)
    # Isolated keeps matches and the text between them, inverted or not. Removed with invert drops the text between
    # matches: nothing, if the expression matches every character, as the known patterns do.
    if behavior == "Isolated" or (behavior == "Removed" and invert and name is not None):
        return found
    raise TokenizerFileError(
        f"{path}: a Split with behavior {shown(behavior)} and invert {shown(invert)} is not supported"
    )


def _recognized(expression: str, path: str) -> tuple[str | None, str]:
    """Return the name of the known pattern, if any, and the expression in Rust's syntax, for one in Oniguruma's."""
    if expression == CL100K_FOR_ONIGURUMA:
        return "cl100k", NAMED_PATTERNS["cl100k"]
    from bytemill.formats.huggingface.oniguruma import from_oniguruma

    try:
        translated = from_oniguruma(expression)
        check_pattern(translated)
    except ValueError as error:
        raise TokenizerFileError(f"{path}: {shown(expression)} has no exact equivalent: {error}") from error
    name = named_pattern(translated)
    return name, translated if name is None else NAMED_PATTERNS[name]


# With trim_offsets false, a token's offsets include its space, as in GPT-2's own file.
POST_PROCESSOR: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": False,
    "use_regex": True,
}
DECODER: dict[str, Any] = POST_PROCESSOR | {"trim_offsets": True}

_POST_PROCESSORS = ("ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing", "Sequence")
_MAX_DEPTH = 30


def metadata_of(document: dict[str, Any], location: str) -> TokenizerMetadata | None:
    """Return what does not affect the ids of a text in a tokenizer.json, or None if all of it is bytemill's default.

    Post-processor, decoder, truncation and padding. A missing one counts as the default, which has the same effect.

    Raises:
        TokenizerFileError: One of them is damaged or unknown.
    """
    post_processor, decoder = document.get("post_processor"), document.get("decoder")
    _check_post_processor(post_processor, f"{location}: post_processor")
    if decoder is not None and (not is_object(decoder) or not isinstance(decoder.get("type"), str)):
        raise TokenizerFileError(f"{location}: decoder is {shown(decoder)} and has no type")
    check_depth(decoder, f"{location}: decoder")
    options: dict[str, dict[str, Any] | None] = {}
    for field in ("truncation", "padding"):
        value = document.get(field)
        options[field] = None if value is None else object_at(value, f"{location}: {field}")
        check_depth(value, f"{location}: {field}")
    metadata = TokenizerMetadata(
        post_processor=None if post_processor == POST_PROCESSOR else post_processor,
        decoder=None if decoder == DECODER else decoder,
        truncation=options["truncation"],
        padding=options["padding"],
    )
    return None if metadata == TokenizerMetadata() else metadata


def with_bos_token(processor: dict[str, Any] | None, token: str, token_id: int) -> dict[str, Any]:
    """Return a post-processor that puts a special token before every text, as Llama 3's does.

    Args:
        processor: The post-processor so far, which is kept if it adds the token; None for bytemill's default.
        token: The special token.
        token_id: Its id.
    """
    steps: list[dict[str, Any]] = [] if processor is None else processor.get("processors", [processor])
    if processor is not None and any(
        {"SpecialToken": {"id": token, "type_id": 0}} in step.get("single", [])[:1] for step in steps
    ):
        return processor
    parts = {name: {"Sequence": {"id": name, "type_id": number}} for number, name in enumerate("AB")}
    starts = [{"SpecialToken": {"id": token, "type_id": number}} for number in (0, 1)]
    template = {
        "type": "TemplateProcessing",
        "single": [starts[0], parts["A"]],
        "pair": [starts[0], parts["A"], starts[1], parts["B"]],
        "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}},
    }
    return {"type": "Sequence", "processors": [POST_PROCESSOR, template]}


def with_new_ids(processor: dict[str, Any], new_ids: Mapping[int, int | None]) -> dict[str, Any]:
    """Return a post-processor for a tokenizer whose ids have changed.

    Its own ids count, as in `tokenizers`, even if the vocabulary has others for its tokens or lacks them.

    Args:
        processor: The post-processor.
        new_ids: Old id -> new id of every token that has changed, None for a token that is gone.

    Raises:
        TokenizerError: It adds a token that is gone.
    """

    def new(token: str, token_id: int) -> int:
        changed = new_ids.get(token_id, token_id)
        if changed is None:
            raise TokenizerError(
                f"the post-processor adds {token!r}, which is not a token any more",
                hint="remove 'metadata' from the spec: Tokenizer.from_spec(dataclasses.replace(tok.to_spec(), "
                "metadata=None))",
            )
        return changed

    match processor["type"]:
        case "Sequence":
            return processor | {
                "processors": [with_new_ids(part, new_ids) for part in processor["processors"]]
            }
        case "TemplateProcessing":
            entries = processor["special_tokens"].items()
            updated = {
                name: entry | {"ids": list(map(new, entry["tokens"], entry["ids"]))}
                for name, entry in entries
            }
            return processor | {"special_tokens": updated}
        case "RobertaProcessing" | "BertProcessing":
            return processor | {side: [processor[side][0], new(*processor[side])] for side in ("sep", "cls")}
        case _:
            return processor


def _check_post_processor(value: Any, location: str) -> None:
    check_depth(value, location)
    pending: list[tuple[Any, str]] = [] if value is None else [(value, location)]
    while pending:
        processor, path = pending.pop()
        kind: Any = processor.get("type") if is_object(processor) else None
        if not is_object(processor) or kind not in _POST_PROCESSORS:
            what = shown(kind if is_object(processor) else processor)
            raise TokenizerFileError(f"{path} is {what}, which is unknown")
        parts, entries = processor.get("processors"), processor.get("special_tokens")
        well_formed = True
        if kind == "Sequence" and is_array(parts):
            pending.extend((part, f"{path}.processors[{i}]") for i, part in enumerate(parts))
        elif kind == "TemplateProcessing" and is_object(entries):
            for name, entry in entries.items():
                if not _has_ids(entry):
                    raise TokenizerFileError(
                        f"{path}.special_tokens[{shown(name)}] is not a token with its ids"
                    )
        elif kind != "ByteLevel":
            sides = [processor.get(side) for side in ("sep", "cls")]
            well_formed = kind in {"RobertaProcessing", "BertProcessing"} and all(
                map(_is_token_and_id, sides)
            )
        if not well_formed:
            raise TokenizerFileError(f"{path} is not a valid {kind}")


def _has_ids(entry: Any) -> bool:
    ids, tokens = (entry.get("ids"), entry.get("tokens")) if is_object(entry) else (None, None)
    return (
        is_array(ids)
        and is_array(tokens)
        and len(ids) == len(tokens)
        and all(type(token_id) is int for token_id in ids)
        and all(isinstance(token, str) for token in tokens)
    )


def _is_token_and_id(value: Any) -> bool:
    return is_array(value) and len(value) == 2 and isinstance(value[0], str) and type(value[1]) is int


def check_depth(value: Any, location: str) -> None:
    """Raise TokenizerFileError for a value that is nested too deeply to be written again."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if is_object(outer) else outer)
        ]
        if not level:
            return
    raise TokenizerFileError(f"{location} is nested more than {_MAX_DEPTH} deep")
