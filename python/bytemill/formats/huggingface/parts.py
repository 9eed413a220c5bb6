"""The parts of a tokenizer.json around its model: options of the model, added tokens, post-processor, decoder.

The post-processor and the decoder are kept as plain data, because they do not affect ids.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

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
from bytemill.formats.huggingface.components import Table
from bytemill.formats.spec import TokenFlags, TokenizerMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_META = "\N{LOWER ONE EIGHTH BLOCK}"

MODEL_OPTIONS: Table[None] = Table("option of the model")
FLAGS: Table[bool] = Table("flag of added tokens")
for _field in fields(TokenFlags):
    FLAGS.row(_field.name)(bool_at)

_OTHER_MODELS = {
    "Unigram": "use tokenizers or sentencepiece for it",
    "WordPiece": "use tokenizers or transformers for it",
    "WordLevel": "use tokenizers for it",
}


@MODEL_OPTIONS.row("type", settings="`BPE`, or none with `merges`")
def _type(kind: Any, location: str) -> None:
    if kind not in ("BPE", None):
        hint = _OTHER_MODELS.get(kind) if isinstance(kind, str) else None
        raise TokenizerFileError(f"{location} is {shown(kind)}; only BPE is supported", hint=hint)


@MODEL_OPTIONS.row("continuing_subword_prefix", settings="none")
def _prefix(prefix: Any, location: str) -> None:
    if prefix not in (None, ""):
        raise TokenizerFileError(f"{location} is {shown(prefix)}, which is not supported")


@MODEL_OPTIONS.row("end_of_word_suffix", settings="with byte-level BPE, if each byte has a token with it")
def _suffix(suffix: Any, location: str) -> None:
    if not isinstance(suffix, str | None) or (suffix and not suffix.isascii()):
        raise TokenizerFileError(f"{location} is {shown(suffix)}, which is not supported")


@MODEL_OPTIONS.row("dropout", settings="none or 0")
def _dropout(dropout: Any, location: str) -> None:
    if dropout is not None and (isinstance(dropout, bool) or dropout != 0):
        raise TokenizerFileError(
            f"{location} is {shown(dropout)}, which is not supported",
            hint="set 'dropout' to null for deterministic encoding",
        )


# In byte-level BPE, these concern bytes without a token.
@MODEL_OPTIONS.row("fuse_unk", "byte_fallback")
@MODEL_OPTIONS.row("ignore_merges", settings="not with `end_of_word_suffix`, nor with spaces before words")
def _option(value: Any, location: str) -> None:
    bool_at(False if value is None else value, location)


@MODEL_OPTIONS.row("unk_token", settings="a token of the vocabulary")
def _unknown(token: Any, location: str) -> None:
    if not isinstance(token, str | None):
        raise wrong_value(location, token, "a string or null")


def check_model(model: dict[str, Any], location: str) -> None:
    """Raise TokenizerFileError if `model` is not BPE, or has an option that the core does not run."""
    kind = model.get("type", "BPE" if "merges" in model else "none")
    for name, row in MODEL_OPTIONS.rows.items():
        row.read(kind if name == "type" else model.get(name), f"{location}.{name}")


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
        if missing := FLAGS.rows.keys() - token.keys():
            raise TokenizerFileError(f"{path}: {min(missing)!r} is missing")
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
    """Return the flags of a JSON token. Missing ones are false.

    Raises:
        TokenizerFileError: A flag is not a boolean.
    """
    return TokenFlags(
        *(row.read(token.get(name, False), f"{location}.{name}") for name, row in FLAGS.rows.items())
    )


DECODERS: Table[str] = Table("decoder", "decoders")
"""What each decoder is in a list of steps, of which only some are run."""


@DECODERS.row("ByteLevel", settings="alone or before `Fuse`, for byte-level BPE")
@DECODERS.row("ByteFallback", "Fuse", settings="in the order of Llama's files")
def _plain(step: dict[str, Any], _: str) -> str:
    return step["type"]


@DECODERS.row("Replace", settings="`▁` by a space")
def _replace(step: dict[str, Any], path: str) -> str:
    if step.get("pattern") != {"String": _META} or step.get("content") != " ":
        raise TokenizerFileError(f"{path} is 'Replace' of something else than {_META!r} by a space")
    return "Replace"


@DECODERS.row("Strip", settings="one space at the start")
def _strip(step: dict[str, Any], path: str) -> str:
    if [step.get(field) for field in ("content", "start", "stop")] != [" ", 1, 0]:
        raise TokenizerFileError(f"{path} is 'Strip' of something else than one space at the start")
    return "Strip"


@DECODERS.row("Metaspace", settings="`replacement` `▁`, alone, without `byte_fallback`")
def _metaspace(step: dict[str, Any], path: str) -> str:
    if step.get("replacement") != _META:
        raise TokenizerFileError(
            f"{path}.replacement is {shown(step.get('replacement'))}, which is not supported"
        )
    default = "always" if step.get("add_prefix_space", True) else "never"
    return "Metaspace never" if step.get("prepend_scheme", default) == "never" else "Metaspace"


def check_decoder(value: Any, location: str) -> None:
    """Raise TokenizerFileError for a `decoder` object that does not join the bytes of the tokens.

    Without a decoder (null), the tokens are joined as the file writes them, with spaces between them.
    """
    kinds = ["ByteLevel"] if value is None else DECODERS.read_all(value, location)
    if kinds[:1] != ["ByteLevel"] or any(kind != "Fuse" for kind in kinds[1:]):
        raise TokenizerFileError(
            f"{location} is {' + '.join(map(shown, kinds)) or 'empty'}, which does not join the bytes of the tokens"
        )


# With trim_offsets false, a token's offsets include its space, as in GPT-2's own file.
POST_PROCESSOR: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": False,
    "use_regex": True,
}
DECODER: dict[str, Any] = POST_PROCESSOR | {"trim_offsets": True}

_MAX_DEPTH = 30


def metadata_of(document: dict[str, Any], location: str) -> TokenizerMetadata | None:
    """Return what does not affect the ids of a text in a tokenizer.json, or None if all of it is bytemill's default.

    Post-processor, decoder, truncation and padding. A missing one counts as the default, which has the same effect.

    Raises:
        TokenizerFileError: One of them is damaged or unknown.
    """
    post_processor, decoder = document.get("post_processor"), document.get("decoder")
    check_depth(post_processor, f"{location}: post_processor")
    if post_processor is not None:
        POST_PROCESSORS.read_all(post_processor, f"{location}: post_processor")
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


POST_PROCESSORS: Table[None] = Table("post-processor", "processors")


@POST_PROCESSORS.row("ByteLevel")
def _byte_level(_: dict[str, Any], __: str) -> None:
    pass


@POST_PROCESSORS.row("TemplateProcessing")
def _template(processor: dict[str, Any], path: str) -> None:
    for name, entry in object_at(processor.get("special_tokens"), f"{path}.special_tokens").items():
        if not _has_ids(entry):
            raise TokenizerFileError(f"{path}.special_tokens[{shown(name)}] is not a token with its ids")


@POST_PROCESSORS.row("RobertaProcessing", "BertProcessing")
def _sides(processor: dict[str, Any], path: str) -> None:
    if not all(_is_token_and_id(processor.get(side)) for side in ("sep", "cls")):
        raise TokenizerFileError(f"{path} is not a valid {processor['type']}")


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
