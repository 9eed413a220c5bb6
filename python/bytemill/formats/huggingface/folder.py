"""What lies around a tokenizer in Hugging Face's files and decides no ids.

Post-processor and decoder in tokenizer.json; beside it tokenizer_config.json (chat template, names of special tokens,
the greatest length), special_tokens_map.json and chat_template.jinja. All of it is kept as plain data and written
again. tokenizer.json alone decides about ids.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerFileError
from bytemill.formats.files import decode_utf8, is_object, parse_json, read_bytes, shown
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.huggingface.post_processor import check_depth
from bytemill.formats.spec import TokenFlags, TokenizerMetadata
from bytemill.system.atomic_files import output_error, write_text

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.formats.spec import TokenizerSpec

SIDECAR_FILES = _CONFIG, _MAP, _TEMPLATE = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
_MAX_BYTES = 1 << 26


def with_sidecar_files(metadata: TokenizerMetadata | None, folder: Path) -> TokenizerMetadata | None:
    """`metadata` with what the files in `folder` say.

    Raises TokenizerFileError where one of them is damaged: `transformers` would stumble over it too.
    """
    config = _object_in(folder / _CONFIG)
    special_tokens_map = _object_in(folder / _MAP)
    template_path = folder / _TEMPLATE
    template = _text_in(template_path) if template_path.is_file() else None
    if config is None and special_tokens_map is None and template is None:
        return metadata
    return replace(
        metadata or TokenizerMetadata(),
        config=config,
        special_tokens_map=special_tokens_map,
        chat_template=template,
    )


def sidecar_files(spec: TokenizerSpec) -> dict[str, str]:
    """The texts, by file name, of what belongs beside the tokenizer.json of `spec`.

    At least a tokenizer_config.json, so that `AutoTokenizer.from_pretrained` knows the folder for a tokenizer's.
    """
    kept = spec.metadata or TokenizerMetadata()
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
    files = {**sidecar_files(spec), "tokenizer.json": tokenizer_json.write(spec)}
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


def _text_in(path: Path) -> str:
    if path.stat().st_size > _MAX_BYTES:
        raise TokenizerFileError(f"{path}: larger than {_MAX_BYTES >> 20} MB, which no such file is")
    return decode_utf8(read_bytes(path), str(path))


def _object_in(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    value = parse_json(_text_in(path), str(path))
    if not is_object(value):
        raise TokenizerFileError(f"{path} is {shown(value)}, not an object")
    check_depth(value, str(path))
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
