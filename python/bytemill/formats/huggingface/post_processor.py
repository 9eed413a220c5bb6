"""The post-processor and the decoder of a `tokenizer.json`: kept as plain data, because they do not affect ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import is_array, is_object, shown
from bytemill.formats.spec import TokenizerMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """Return the post-processor and the decoder of a tokenizer.json, or None if both are bytemill's defaults.

    A missing one counts as the default, which has the same effect.

    Raises:
        TokenizerFileError: One of them is damaged or unknown.
    """
    post_processor, decoder = document.get("post_processor"), document.get("decoder")
    _check_post_processor(post_processor, f"{location}: post_processor")
    if decoder is not None and (not is_object(decoder) or not isinstance(decoder.get("type"), str)):
        raise TokenizerFileError(f"{location}: decoder is {shown(decoder)} and has no type")
    check_depth(decoder, f"{location}: decoder")
    metadata = TokenizerMetadata(
        post_processor=None if post_processor == POST_PROCESSOR else post_processor,
        decoder=None if decoder == DECODER else decoder,
    )
    return None if metadata == TokenizerMetadata() else metadata


def with_bos(processor: dict[str, Any] | None, token: str, token_id: int) -> dict[str, Any]:
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
