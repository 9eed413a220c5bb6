"""The tokenizer of an exported model: its end token, and whether transformers reads it as it is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerError
from bytemill.formats.gguf import BEGIN_NAMES, END_NAMES, PRE_TOKENIZERS, same_split
from bytemill.formats.huggingface.exchange import default_config, with_bos, write_folder
from bytemill.formats.spec import TokenizerMetadata
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.formats.spec import TokenizerSpec

_GENERAL_CLASS = "PreTrainedTokenizerFast"
"""The class of transformers that reads a tokenizer.json as it is."""
_OWN_CLASSES = {"qwen2": "Qwen2Tokenizer"}
"""Model types whose tokenizer transformers 5 reads with this class, whatever tokenizer_config.json says. It takes
tokens and merges from tokenizer.json, and has a pattern, a normalizer and an end token of its own."""
_PROBE = "It's 12345 naïve \u00e9 e\u0301 birds,\n\n  and\tI'LL see the 犬\u3000they’d 3.14 \r\n snake_case  "


@dataclass(frozen=True)
class Ends:
    """Special tokens around a text; None if the tokenizer has none."""

    bos: str | None = None
    eos: str | None = None
    adds_bos: bool = False
    """Whether `bos` began every text that the model was trained on, and is put before every text."""

    def ids(self, tokenizer: Tokenizer) -> dict[str, int | None]:
        """Return the ids under the names that transformers has for them."""
        known = tokenizer.special_tokens
        return {
            "bos_token_id": None if self.bos is None else known[self.bos],
            "eos_token_id": None if self.eos is None else known[self.eos],
        }


def ends_of(
    tokenizer: Tokenizer, separator: int | None, bos_id: int | None = None, eos_token: str | None = None
) -> Ends:
    """Choose the tokens that begin and end a text.

    The beginning is the token that began every training document, else the one that the tokenizer's files name.
    The end is the explicit token, else the separator of the documents that the model was trained on, else the one that
    the tokenizer's files name, else one with a usual name.

    Args:
        tokenizer: The tokenizer.
        separator: Id of the token between documents in the training data, if there was one.
        bos_id: Id of the token at the start of every training document, if there was one.
        eos_token: The explicit token.

    Raises:
        TokenizerError: `eos_token` is not a special token.
    """
    known = tokenizer.special_tokens
    if eos_token is not None and eos_token not in known:
        raise TokenizerError(
            f"{eos_token!r} is not a special token of the tokenizer",
            hint=f"name one of {', '.join(known)}" if known else "leave out --eos-token",
        )
    by_id = {token_id: token for token, token_id in known.items()}
    between, first = (None if token_id is None else by_id.get(token_id) for token_id in (separator, bos_id))
    ends = (eos_token, between, tokenizer.eos_token, *END_NAMES)
    begins = (first, tokenizer.bos_token, *BEGIN_NAMES, between)
    return Ends(
        bos=next((token for token in begins if token in known), None),
        eos=next((token for token in ends if token in known), None),
        adds_bos=first is not None,
    )


def keeps_ids(model_type: str, spec: TokenizerSpec) -> bool:
    """Return whether transformers gives the ids of a tokenizer.json beside a model of this type."""
    if model_type not in _OWN_CLASSES:
        return True
    return (
        same_split(spec.pattern, PRE_TOKENIZERS[model_type].pattern)
        and spec.normalizer == (("NFC",),)
        and spec.ranks is None
        and not spec.ignore_merges
        and "<|endoftext|>" in spec.special_tokens
    )


def write_tokenizer(tokenizer: Tokenizer, ends: Ends, folder: Path, model_type: str) -> None:
    """Write tokenizer.json and its sidecar files, with the class that reads it and the tokens around a text.

    Raises:
        TokenizerError: The format cannot represent the tokenizer.
        OutputError: A file cannot be written.
    """
    spec = tokenizer.to_spec()
    if ends.adds_bos and ends.bos is not None:
        spec = with_bos(spec, ends.bos)
    metadata = spec.metadata or TokenizerMetadata()
    named = {} if ends.eos is None else {"eos_token": ends.eos}
    config = default_config(spec) if metadata.config is None else metadata.config
    tokens_map = metadata.special_tokens_map
    metadata = replace(
        metadata,
        config={
            **config,
            "tokenizer_class": _OWN_CLASSES.get(model_type, _GENERAL_CLASS),
            **named,
        },
        special_tokens_map=None if tokens_map is None else {**tokens_map, **named},
    )
    write_folder(replace(spec, metadata=metadata), folder)
    if Tokenizer.load(folder).encode(_PROBE) != tokenizer.encode(_PROBE):
        raise TokenizerError(f"{folder / 'tokenizer.json'} gives other ids than the tokenizer of the model")
