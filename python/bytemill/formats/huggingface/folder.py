"""Write a model folder: a tokenizer.json and its sidecar files (`sidecars`), which are written as they were read."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from bytemill.formats.files import is_array, is_object
from bytemill.formats.huggingface import post_processor, tokenizer_json
from bytemill.formats.huggingface.post_processor import with_new_ids
from bytemill.formats.huggingface.sidecars import CONFIG, MAP, TEMPLATE, named_tokens
from bytemill.formats.spec import TokenFlags, TokenizerMetadata
from bytemill.system.atomic_files import make_folder, write_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bytemill.formats.spec import TokenizerSpec


def sidecar_files(spec: TokenizerSpec) -> dict[str, str]:
    """Return the texts of the sidecar files by file name.

    Always includes tokenizer_config.json, which `AutoTokenizer.from_pretrained` needs to recognize the folder.
    """
    metadata = spec.metadata or TokenizerMetadata()
    config = _config_of(spec)
    if "added_tokens_decoder" in config and not _has_current_ids(config["added_tokens_decoder"], spec):
        config = config | {"added_tokens_decoder": _added_tokens_decoder(spec)}
    files = {CONFIG: _json(config)}
    if metadata.special_tokens_map is not None:
        files[MAP] = _json(metadata.special_tokens_map)
    if metadata.chat_template is not None:
        files[TEMPLATE] = metadata.chat_template
    return files


def with_bos(spec: TokenizerSpec, token: str) -> TokenizerSpec:
    """Return the tokenizer with metadata that make `transformers` put a special token before every text."""
    metadata = spec.metadata or TokenizerMetadata()
    config = _config_of(spec) | {"bos_token": token, "add_bos_token": True}
    processor = post_processor.with_bos(metadata.post_processor, token, spec.special_tokens[token])
    names = metadata.special_tokens_map
    if names is not None:
        names = names | {"bos_token": token}
    return replace(
        spec,
        metadata=replace(metadata, config=config, post_processor=processor, special_tokens_map=names),
    )


def write_folder(spec: TokenizerSpec, folder: Path) -> None:
    """Write tokenizer.json and its sidecar files into `folder`, creating it if necessary.

    Raises:
        TokenizerError: The format cannot represent `spec`.
        OutputError: A file cannot be written.
    """
    files = {**sidecar_files(spec), "tokenizer.json": tokenizer_json.write(spec)}
    make_folder(folder)
    for name, text in files.items():
        write_text(folder / name, text)


def _config_of(spec: TokenizerSpec) -> dict[str, Any]:
    config = None if spec.metadata is None else spec.metadata.config
    if config is None:
        return {"tokenizer_class": "PreTrainedTokenizerFast", **default_config(spec)}
    return config


def default_config(spec: TokenizerSpec) -> dict[str, Any]:
    """Return the configuration for `transformers` of a tokenizer without a tokenizer_config.json."""
    end = "<|endoftext|>"
    named = {"eos_token": end} if end in spec.special_tokens else {}
    return {"clean_up_tokenization_spaces": False, **named}


def without_special_tokens(spec: TokenizerSpec, tokens: Mapping[str, int]) -> TokenizerSpec:
    """Return a tokenizer that does not know some special tokens; the sidecar files name them no more.

    Args:
        spec: The tokenizer.
        tokens: The special tokens and their ids.

    Raises:
        TokenizerError: The post-processor adds one of them.
    """

    def cleaned(fields: dict[str, Any] | None) -> dict[str, Any] | None:
        if fields is None:
            return None
        kept = {name: value for name, value in fields.items() if _content(value) not in tokens}
        for name, value in kept.items():
            if is_array(value):
                kept[name] = [each for each in value if _content(each) not in tokens]
            elif name in ("added_tokens_decoder", "extra_special_tokens") and is_object(value):
                kept[name] = {key: each for key, each in value.items() if _content(each) not in tokens}
        return kept

    metadata = spec.metadata
    if metadata is not None:
        processor = metadata.post_processor
        config = cleaned(metadata.config)
        if config is not None:
            # The class may name one of them where the configuration names none.
            roles = named_tokens(config, None).items()
            config |= {role: None for role, token in roles if _content(token) in tokens}
        metadata = replace(
            metadata,
            post_processor=processor and with_new_ids(processor, dict.fromkeys(tokens.values())),
            config=config,
            special_tokens_map=cleaned(metadata.special_tokens_map),
        )
    return replace(
        spec,
        special_tokens={token: i for token, i in spec.special_tokens.items() if token not in tokens},
        flags={token: flags for token, flags in spec.flags.items() if token not in tokens},
        metadata=metadata,
    )


def _content(value: Any) -> str | None:
    """Return the text of a token, which files write as a string or as an object."""
    text = value.get("content") if is_object(value) else value
    return text if isinstance(text, str) else None


def _has_current_ids(entries: Any, spec: TokenizerSpec) -> bool:
    """Return whether every entry of an `added_tokens_decoder` has the id of its token in `spec`."""
    if not is_object(entries):
        return False
    for token_id, token in entries.items():
        known = spec.special_tokens.get(_content(token) or "")
        if known is not None and str(known) != token_id:
            return False
    return True


def _added_tokens_decoder(spec: TokenizerSpec) -> dict[str, Any]:
    by_id = sorted((token_id, text) for text, token_id in spec.special_tokens.items())
    return {
        str(token_id): {"content": text, **asdict(spec.flags.get(text, TokenFlags()))}
        for token_id, text in by_id
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
