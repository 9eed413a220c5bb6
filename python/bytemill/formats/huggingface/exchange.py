"""Model folders, and objects of Hugging Face's libraries `tokenizers` and `transformers`.

A folder has a tokenizer.json and its sidecar files (`sidecars`), which are written as they were read.
"""

from __future__ import annotations

import copy
import json
import tempfile
from dataclasses import asdict, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.formats.files import is_array, is_object
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.huggingface.parts import with_bos_token, with_new_ids
from bytemill.formats.huggingface.sidecars import CONFIG, MAP, TEMPLATE, Sidecars, named_tokens
from bytemill.formats.registry import Content, load_content
from bytemill.formats.spec import TokenFlags, TokenizerMetadata
from bytemill.system.atomic_files import make_folder, write_text
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.formats.encoder import Loaded
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
    processor = with_bos_token(metadata.post_processor, token, spec.special_tokens[token])
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


# Fields of tokenizer_config.json that the object itself determines, or that name other files.
_NOT_ARGUMENTS = frozenset(
    (
        *("added_tokens_decoder", "auto_map", "backend", "chat_template", "is_local", "local_files_only"),
        *(
            "merges_file",
            "name_or_path",
            "tokenizer_class",
            "tokenizer_file",
            "tokenizer_object",
            "vocab_file",
        ),
    )
)

# Arguments of the constructor of `PreTrainedTokenizerFast`, which takes any and keeps those that it does not know.
_ARGUMENTS = frozenset(
    (
        *(
            "add_bos_token",
            "add_eos_token",
            "add_prefix_space",
            "additional_special_tokens",
            "chat_control_tokens",
        ),
        *(
            "chat_template",
            "clean_up_tokenization_spaces",
            "extra_special_tokens",
            "max_len",
            "model_input_names",
        ),
        *(
            "model_max_length",
            "model_specific_special_tokens",
            "name_or_path",
            "padding_side",
            "processor_class",
        ),
        *("response_template", "split_special_tokens", "truncation_side", "verbose"),
    )
)


def to_tokenizers(spec: TokenizerSpec) -> Any:
    """Return a `tokenizers.Tokenizer` with the same ids.

    Raises:
        MissingExtraError: `tokenizers` is not installed.
        TokenizerError: It could not give the same ids.
    """
    return import_library("tokenizers", "to_huggingface").Tokenizer.from_str(tokenizer_json.write(spec))


def to_transformers(spec: TokenizerSpec, arguments: dict[str, Any]) -> Any:
    """Return a `transformers.PreTrainedTokenizerFast`. Raises as `to_tokenizers` does.

    Args:
        spec: The tokenizer.
        arguments: Arguments of the constructor; they override the tokenizer's metadata.

    Raises:
        TypeError: An argument is unknown.
    """
    for name in arguments:
        # Tokens may have any name.
        if name not in _ARGUMENTS and not name.endswith("_token"):
            close = get_close_matches(name, _ARGUMENTS, n=1)
            raise TypeError(
                f"to_transformers() got an unexpected keyword argument {name!r}"
                + (f"; did you mean {close[0]!r}?" if close else "")
            )
    transformers = import_library("transformers", "to_transformers")
    metadata = spec.metadata or TokenizerMetadata()
    if metadata.config is None:
        fields = default_config(spec)
    else:
        fields = {name: value for name, value in metadata.config.items() if name not in _NOT_ARGUMENTS}
    fields = (metadata.special_tokens_map or {}) | fields
    template = metadata.chat_template or (metadata.config or {}).get("chat_template")
    if isinstance(template, list):  # several named templates
        entries = cast("list[dict[str, str]]", template)
        template = {entry["name"]: entry["template"] for entry in entries}
    if template is not None:
        fields["chat_template"] = template
    fields = {name: _added_token(value) for name, value in fields.items()}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=to_tokenizers(spec), **(fields | arguments))


def from_object(tokenizer: Any) -> Loaded:
    """Load a `tokenizers.Tokenizer`, or a tokenizer of `transformers` that wraps one.

    Truncation and padding that calls of the latter have set are ignored.

    Raises:
        TypeError: `tokenizer` is another kind of object.
        TokenizerFileError: bytemill cannot give the same ids.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        if not hasattr(tokenizer, "to_str"):
            raise TypeError(
                f"from_huggingface expects a tokenizers.Tokenizer or a PreTrainedTokenizerFast, "
                f"not {type(tokenizer).__name__}"
            )
        return load_content(Content(tokenizer.to_str().encode(), type(tokenizer).__name__))
    backend = copy.deepcopy(backend)
    backend.no_truncation()
    backend.no_padding()
    loaded = load_content(Content(backend.to_str().encode(), type(tokenizer).__name__))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return replace(loaded, metadata=Sidecars.beside(Path(folder)).metadata(loaded.metadata))


def _added_token(value: Any) -> Any:
    """Convert the JSON form of a special token with flags to an object; return any other value unchanged."""
    match value:
        case {"content": str(content)}:
            flags = ("single_word", "lstrip", "rstrip", "normalized")
            fields = {flag: value[flag] for flag in flags if isinstance(value.get(flag), bool)}
            return import_library("tokenizers", "to_transformers").AddedToken(content, special=True, **fields)
        case list():
            return [_added_token(part) for part in cast("list[Any]", value)]
        case _:
            return value
