"""What lies around a tokenizer in Hugging Face's files and decides no ids.

Post-processor and decoder in tokenizer.json; beside it tokenizer_config.json (chat template, names of special tokens,
the greatest length), special_tokens_map.json and chat_template.jinja. All of it is kept as plain data and written
again. tokenizer.json alone decides about ids.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import decode_utf8, is_array, is_object, parse_json, read_bytes, shown
from bytemill.formats.spec import Companions, TokenFlags

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bytemill.formats.spec import TokenizerSpec

# With trim_offsets false a token's offsets take in its space, as in GPT-2's own file.
POST_PROCESSOR: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": False,
    "use_regex": True,
}
DECODER: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}

_POST_PROCESSORS = ("ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing", "Sequence")
FILES_BESIDE = _CONFIG, _MAP, _TEMPLATE = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
_MAX_DEPTH = 30
_MAX_BYTES = 1 << 26


def companions_of(document: dict[str, Any], where: str) -> Companions | None:
    """The post-processor and the decoder of a tokenizer.json; None where they are what bytemill writes itself.

    One that is null is as good as that: nothing is put around a text, and bytes are decoded as bytes.
    Raises TokenizerFileError where they are damaged or of a kind that is not known.
    """
    post_processor, decoder = document.get("post_processor"), document.get("decoder")
    _check_post_processor(post_processor, f"{where}: post_processor")
    if decoder is not None and (not is_object(decoder) or not isinstance(decoder.get("type"), str)):
        raise TokenizerFileError(f"{where}: decoder: is {shown(decoder)}, which has no type")
    _check_depth(decoder, f"{where}: decoder")
    kept = Companions(
        post_processor=None if post_processor == POST_PROCESSOR else post_processor,
        decoder=None if decoder == DECODER else decoder,
    )
    return None if kept == Companions() else kept


def with_files_beside(companions: Companions | None, folder: Path) -> Companions | None:
    """`companions` with what the files in `folder` say.

    Raises TokenizerFileError where one of them is damaged: `transformers` would stumble over it too.
    """
    config = _object_in(folder / _CONFIG)
    special_tokens_map = _object_in(folder / _MAP)
    template_path = folder / _TEMPLATE
    template = _text_in(template_path) if template_path.is_file() else None
    if config is None and special_tokens_map is None and template is None:
        return companions
    return replace(
        companions or Companions(),
        config=config,
        special_tokens_map=special_tokens_map,
        chat_template=template,
    )


def files_beside(spec: TokenizerSpec) -> dict[str, str]:
    """The texts, by file name, of what belongs beside the tokenizer.json of `spec`.

    At least a tokenizer_config.json, so that `AutoTokenizer.from_pretrained` knows the folder for a tokenizer's.
    """
    kept = spec.companions or Companions()
    config = kept.config
    if config is None:
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **default_config(spec)}
    elif "added_tokens_decoder" in config and not _knows_added_tokens(config["added_tokens_decoder"], spec):
        config = config | {"added_tokens_decoder": _added_tokens_decoder(spec)}
    files = {_CONFIG: _json(config)}
    if kept.special_tokens_map is not None:
        files[_MAP] = _json(kept.special_tokens_map)
    if kept.chat_template is not None:
        files[_TEMPLATE] = kept.chat_template
    return files


def write_folder(spec: TokenizerSpec, folder: Path) -> None:
    """Writes tokenizer.json and what belongs beside it into `folder`, which is made if need be.

    Raises TokenizerError where the format cannot hold `spec`, OutputError where a file cannot be written.
    """
    from bytemill.system.atomic_files import output_error, write_text
    from bytemill.formats.huggingface import tokenizer_json as huggingface

    files = {**files_beside(spec), "tokenizer.json": huggingface.write(spec)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(error, folder) from error
    for name, text in files.items():
        write_text(folder / name, text)


def default_config(spec: TokenizerSpec) -> dict[str, Any]:
    """What `transformers` is told where no tokenizer_config.json came with the tokenizer."""
    end = "<|endoftext|>"
    named = {"eos_token": end} if end in spec.special_tokens else {}
    return {"clean_up_tokenization_spaces": False, **named}


def post_processor_of(spec: TokenizerSpec, ids: Mapping[str, int]) -> dict[str, Any]:
    """The post-processor that is written for `spec`: the one that came with it, with today's ids.

    Raises TokenizerError where it puts a token around texts that is no longer there.
    """
    kept = None if spec.companions is None else spec.companions.post_processor
    return POST_PROCESSOR if kept is None else _with_ids(kept, ids)


def _with_ids(processor: dict[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    def id_of(token: str) -> int:
        if token not in ids:
            raise TokenizerError(
                f"the post-processor puts {token!r} around texts, which is no token any more",
                hint="Leave 'companions' of the specification away to write the tokenizer without it.",
            )
        return ids[token]

    match processor["type"]:
        case "Sequence":
            return processor | {"processors": [_with_ids(part, ids) for part in processor["processors"]]}
        case "TemplateProcessing":
            entries = processor["special_tokens"].items()
            renewed = {
                name: entry | {"ids": [id_of(token) for token in entry["tokens"]]} for name, entry in entries
            }
            return processor | {"special_tokens": renewed}
        case "RobertaProcessing" | "BertProcessing":
            return processor | {
                side: [processor[side][0], id_of(processor[side][0])] for side in ("sep", "cls")
            }
        case _:
            return processor


def _check_post_processor(value: Any, where: str) -> None:
    _check_depth(value, where)
    waiting: list[tuple[Any, str]] = [] if value is None else [(value, where)]
    while waiting:
        processor, place = waiting.pop()
        kind: Any = processor.get("type") if is_object(processor) else None
        if not is_object(processor) or kind not in _POST_PROCESSORS:
            what = shown(kind if is_object(processor) else processor)
            raise TokenizerFileError(f"{place}: is {what}, which bytemill does not know")
        parts, entries = processor.get("processors"), processor.get("special_tokens")
        well_formed = True
        if kind == "Sequence" and is_array(parts):
            waiting.extend((part, f"{place}.processors[{i}]") for i, part in enumerate(parts))
        elif kind == "TemplateProcessing" and is_object(entries):
            for name, entry in entries.items():
                if not _has_ids(entry):
                    raise TokenizerFileError(
                        f"{place}.special_tokens[{shown(name)}]: is no token with its ids"
                    )
        elif kind != "ByteLevel":
            sides = [processor.get(side) for side in ("sep", "cls")]
            well_formed = kind in {"RobertaProcessing", "BertProcessing"} and all(
                map(_is_token_and_id, sides)
            )
        if not well_formed:
            raise TokenizerFileError(f"{place}: is no {kind} as Hugging Face's library writes it")


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


def _check_depth(value: Any, where: str) -> None:
    """Raise TokenizerFileError for what is nested so deeply that it could not be written again."""
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
    raise TokenizerFileError(f"{where}: is nested more than {_MAX_DEPTH} deep")


def _text_in(path: Path) -> str:
    if path.stat().st_size > _MAX_BYTES:
        raise TokenizerFileError(f"{path}: larger than {_MAX_BYTES >> 20} MB, which no such file is")
    return decode_utf8(read_bytes(path), str(path))


def _object_in(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    value = parse_json(_text_in(path), str(path))
    if not is_object(value):
        raise TokenizerFileError(f"{path}: is {shown(value)}, not an object")
    _check_depth(value, str(path))
    return value


def _knows_added_tokens(entries: Any, spec: TokenizerSpec) -> bool:
    """Whether every entry of an `added_tokens_decoder` has the id that its token has in `spec`."""
    if not is_object(entries):
        return False
    for token_id, token in entries.items():
        content = token.get("content") if is_object(token) else None
        known = spec.special_tokens.get(content) if isinstance(content, str) else None
        if known is not None and str(known) != token_id:
            return False
    return True


def _added_tokens_decoder(spec: TokenizerSpec) -> dict[str, Any]:
    by_id = sorted((token_id, text) for text, token_id in spec.special_tokens.items())
    entries: dict[str, Any] = {}
    for token_id, text in by_id:
        flags = spec.flags.get(text, TokenFlags())
        entries[str(token_id)] = {
            "content": text,
            "lstrip": flags.lstrip,
            "normalized": flags.normalized,
            "rstrip": flags.rstrip,
            "single_word": flags.single_word,
            "special": flags.special,
        }
    return entries


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
