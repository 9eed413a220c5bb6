"""Names of special tokens and the chat template in a GGUF file, as metadata of a tokenizer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerError
from bytemill.formats.huggingface.parts import with_bos_token
from bytemill.formats.huggingface.sidecars import named_tokens, text_of
from bytemill.formats.spec import TokenizerMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.formats.encoder import Loaded
    from bytemill.formats.gguf_metadata import Value
    from bytemill.formats.spec import TokenizerSpec

_PREFIX = "tokenizer.ggml."
_TEMPLATE, _ADDS_BOS = "tokenizer.chat_template", f"{_PREFIX}add_bos_token"
_CHOSEN = "bytemill.chosen_names"
"""Roles whose tokens were chosen by usual names when the file was written: the tokenizer has no names for them."""
_ROLES = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "sep_token": "seperator",  # GGUF's spelling
    "pad_token": "padding",
    "cls_token": "cls",
    "mask_token": "mask",
}
"""Role in tokenizer_config.json -> name of the key in GGUF."""
KEYS = frozenset((_TEMPLATE, _ADDS_BOS, _CHOSEN, *(f"{_PREFIX}{name}_token_id" for name in _ROLES.values())))
"""What is read here."""

_PRE_WITH_BOS = frozenset(
    (
        *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        *("jina-v5-nano", "tekken", "chameleon"),
    )
)
"""Pre-tokenizers with which llama.cpp puts a token before every text if the file does not say whether to. It does so
with SentencePiece's BPE (`llama`) too."""


# Default end-of-text and beginning-of-text tokens, in order of preference.
END_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<|eot_id|>", "<|im_end|>")
BEGIN_NAMES = ("<|begin_of_text|>", "<|startoftext|>", "<s>", "<|endoftext|>")


def metadata_of(values: Mapping[str, Value], special_tokens: Mapping[str, int]) -> TokenizerMetadata | None:
    """Return the names and the template of a file; None if it has neither.

    Args:
        values: Metadata of the file.
        special_tokens: Special tokens by text. Ids of other tokens have no name.
    """
    by_id = {token_id: token for token, token_id in special_tokens.items()}
    ids = {role: values.get(f"{_PREFIX}{name}_token_id") for role, name in _ROLES.items()}
    chosen = str(values.get(_CHOSEN, "")).split()
    names = {
        role: by_id[value]
        for role, value in ids.items()
        if type(value) is int and value in by_id and role not in chosen
    }
    template = values.get(_TEMPLATE)
    if not names and not isinstance(template, str):
        return None
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **names,
    }
    processor = None
    bos, kind = names.get("bos_token"), values.get(f"{_PREFIX}model")
    is_usual = kind == "llama" or values.get(f"{_PREFIX}pre") in _PRE_WITH_BOS
    if bos is not None and kind in ("gpt2", "llama") and values.get(_ADDS_BOS, is_usual):
        config["add_bos_token"] = True
        processor = with_bos_token(None, bos, special_tokens[bos])
        if kind == "llama":  # without the step for byte-level BPE
            processor = processor["processors"][-1]
    return TokenizerMetadata(
        post_processor=processor,
        config=config,
        chat_template=template if isinstance(template, str) else None,
    )


def with_names(loaded: Loaded, values: Mapping[str, Value]) -> Loaded:
    """Return a tokenizer with the names and the template of its file. `values` are the file's metadata."""
    found = metadata_of(values, loaded.core.special_tokens)
    if found is None or loaded.metadata is None:
        return replace(loaded, metadata=found or loaded.metadata)
    metadata = replace(loaded.metadata, config=found.config, chat_template=found.chat_template)
    if found.post_processor is not None:
        metadata = replace(metadata, post_processor=found.post_processor)
    return replace(loaded, metadata=metadata)


def add_names(
    writer: Any, spec: TokenizerSpec, *, bos_token: str | None, eos_token: str | None, turn_token: str | None
) -> None:
    """Add the names of special tokens and the chat template to a `gguf.GGUFWriter`.

    Args:
        writer: The writer.
        spec: The tokenizer.
        bos_token: Special token that begins a text; None for the one that the tokenizer names, else a usual one.
        eos_token: Special token that ends a text; likewise.
        turn_token: Special token that ends a turn of a conversation.

    Raises:
        TokenizerError: One of them is not a special token.
    """
    for wanted in (bos_token, eos_token, turn_token):
        if wanted is not None and wanted not in spec.special_tokens:
            raise TokenizerError(f"{wanted!r} is not a special token of this tokenizer")
    metadata = spec.metadata or TokenizerMetadata()
    own = {
        role: text_of(token)
        for role, token in named_tokens(metadata.config, metadata.special_tokens_map).items()
        if text_of(token) in spec.special_tokens
    }
    explicit = {"bos_token": bos_token, "eos_token": eos_token, "eot_token": turn_token}
    own |= {role: token for role, token in explicit.items() if token is not None}
    names = _usual_names(spec.special_tokens) | own
    for role, add in (
        ("bos_token", writer.add_bos_token_id),
        ("eos_token", writer.add_eos_token_id),
        ("eot_token", writer.add_eot_token_id),
        ("unk_token", writer.add_unk_token_id),
        ("sep_token", writer.add_sep_token_id),
        ("pad_token", writer.add_pad_token_id),
        ("mask_token", writer.add_mask_token_id),
    ):
        if role in names:
            add(spec.special_tokens[names[role]])
    if chosen := names.keys() - own.keys():
        writer.add_string(_CHOSEN, " ".join(sorted(chosen)))
    template = metadata.chat_template or (metadata.config or {}).get("chat_template")
    if template:
        writer.add_chat_template(template)


def _usual_names(special_tokens: Mapping[str, int]) -> dict[str, str]:
    """Return the tokens around a text that have a usual name."""
    found = {
        role: next((token for token in usual if token in special_tokens), None)
        for role, usual in (("bos_token", BEGIN_NAMES), ("eos_token", END_NAMES))
    }
    return {role: token for role, token in found.items() if token is not None}
