"""Conversion from and to objects of Hugging Face's libraries, `tokenizers` and `transformers`."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import BytemillError
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.huggingface.core_reader import load_tokenizer_json
from bytemill.formats.huggingface.folder import default_config
from bytemill.formats.huggingface.sidecars import Sidecars
from bytemill.formats.loaded import Loaded, build
from bytemill.formats.spec import TokenizerMetadata
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from bytemill.formats.spec import TokenizerSpec

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
        return _from_text(tokenizer.to_str(), type(tokenizer).__name__)
    backend = copy.deepcopy(backend)
    backend.no_truncation()
    backend.no_padding()
    loaded = _from_text(backend.to_str(), type(tokenizer).__name__)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return replace(loaded, metadata=Sidecars.beside(Path(folder)).metadata(loaded.metadata))


def _from_text(text: str, location: str) -> Loaded:
    try:
        loaded = load_tokenizer_json(text.encode(), location)
    except BytemillError:
        loaded = None  # the reader below reports what is wrong
    return loaded or build(tokenizer_json.read(text, location))


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
