"""Calling a tokenizer as transformers' tokenizers are called: batches, padding, truncation, chat templates."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

from bytemill.errors import TokenizerError
from bytemill.tokenizer.batching import (
    BatchEncoding,
    Padding,
    Side,
    Truncation,
    padded,
    padded_length,
    tensors,
    truncate,
    truncation_strategy,
)
from bytemill.tokenizer.chat import (
    assistant_mask,
    check_mask,
    check_variables,
    render_chat,
    template_of,
)
from bytemill.tokenizer.post_processing import Encoded, PostProcessor

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill._core import Encoder
    from bytemill.formats.spec import TokenizerMetadata
    from bytemill.tokenizer.offsets import EncodedText

_NO_LIMIT = 10**12
"""Limits above this mean none in tokenizer_config.json (`VERY_LARGE_INTEGER`)."""


class ModelInputMethods:
    """Methods of `Tokenizer` that prepare inputs of models, with the results of transformers."""

    core: Encoder
    special_tokens: dict[str, int]
    metadata: TokenizerMetadata | None
    encode: Callable[..., list[int]]
    encode_batch: Callable[..., list[list[int]]]
    encode_with_offsets: Callable[..., EncodedText]
    decode: Callable[..., str]
    id_to_token: Callable[[int], str | None]

    def __call__(
        self,
        text: str | Sequence[str],
        text_pair: str | Sequence[str] | None = None,
        *,
        add_special_tokens: bool = True,
        padding: Padding = False,
        truncation: Truncation = None,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        return_tensors: Literal["np", "pt"] | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
    ) -> BatchEncoding:
        """Encode a text or a batch into the inputs of a model, as tokenizers of transformers do.

        Special tokens in the texts are recognized. The post-processor of the tokenizer.json adds those around texts.

        Args:
            text: A text, or a sequence of texts.
            text_pair: The second texts of pairs.
            add_special_tokens: Add the tokens that the post-processor puts around texts.
            padding: True or "longest" pads to the longest of the batch, "max_length" to `max_length`.
            truncation: True or "longest_first" cuts to `max_length`, from pairs the longer text first; "only_first" and
                "only_second" cut one text of a pair. None cuts only if `max_length` is set and nothing is padded.
            max_length: Number of ids; by default `model_max_length` of tokenizer_config.json.
            pad_to_multiple_of: Round padded lengths up.
            padding_side: By default that of tokenizer_config.json, or "right".
            return_tensors: "np" or "pt" for arrays or tensors (int64) of shape (batch, length); None for lists.
            return_token_type_ids: Return `token_type_ids`; by default if the model has them.
            return_attention_mask: Return `attention_mask`, 0 for padding; by default if the model has it.
            return_special_tokens_mask: Return `special_tokens_mask`, 1 for added tokens.
            return_offsets_mapping: Return `offset_mapping`, the character offsets (start, end) of each id.
            return_length: Return `length`, the number of ids.

        Raises:
            TokenizerError: There is no padding token, lengths differ where tensors are wanted, or a text is too short
                to be cut.
            TypeError: `text` is neither a str nor a sequence of str.

        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<pad>"])
        >>> tok.pad_token = "<pad>"
        >>> tok(["ab", "c"], padding=True)
        {'input_ids': [[97, 98], [99, 256]], 'attention_mask': [[1, 1], [1, 0]]}
        """
        is_batch = not isinstance(text, str)
        texts = [text] if isinstance(text, str) else list(text)
        if text_pair == "" and not is_batch:
            text_pair = None  # as in transformers
        pairs = None if text_pair is None else [text_pair] if isinstance(text_pair, str) else list(text_pair)
        _check_texts(texts, pairs, is_batch=is_batch, is_pair_batch=not isinstance(text_pair, str | None))
        firsts = self._encoded(texts, with_offsets=return_offsets_mapping)
        seconds = None
        if pairs is not None:
            seconds = self._encoded(pairs, with_offsets=return_offsets_mapping, type_id=1)
        processor = self._post_processor
        strategy = truncation_strategy(truncation, max_length, padding)
        limit = self._limit(max_length)
        is_truncated = strategy != "do_not_truncate"
        if is_truncated and limit is not None:
            n_added = processor.n_added(is_pair=pairs is not None) if add_special_tokens else 0
            side = self._setting("truncation_side", "right")
            for index, first in enumerate(firsts):
                truncate(
                    first,
                    None if seconds is None else seconds[index],
                    max(limit - n_added, 0),
                    strategy,
                    side,
                )
        rows = [
            processor.process(
                first, None if seconds is None else seconds[index], add_special_tokens=add_special_tokens
            )
            for index, first in enumerate(firsts)
        ]
        masks = [[1] * len(row.ids) for row in rows]
        length = padded_length(rows, padding, limit, pad_to_multiple_of, is_truncated=is_truncated)
        if length is not None:
            self._pad(rows, masks, length, padding_side or self._setting("padding_side", "right"))
        names = self._config.get("model_input_names", ["input_ids", "attention_mask"])
        found: dict[str, list[Any]] = {"input_ids": [row.ids for row in rows]}
        if "token_type_ids" in names if return_token_type_ids is None else return_token_type_ids:
            found["token_type_ids"] = [row.type_ids for row in rows]
        if "attention_mask" in names if return_attention_mask is None else return_attention_mask:
            found["attention_mask"] = masks
        if return_special_tokens_mask:
            found["special_tokens_mask"] = [row.special_mask for row in rows]
        if return_offsets_mapping:
            found["offset_mapping"] = [row.offsets for row in rows]
        if return_length:
            found["length"] = [len(row.ids) for row in rows]
        if return_tensors is not None:
            return tensors(found, return_tensors)
        if is_batch:
            return BatchEncoding(found)
        return BatchEncoding({name: rows[0] if name != "length" else rows for name, rows in found.items()})

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        tools: Sequence[Any] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        padding: Padding = False,
        truncation: Truncation = False,
        max_length: int | None = None,
        return_tensors: Literal["np", "pt"] | None = None,
        return_dict: bool = True,
        return_assistant_tokens_mask: bool = False,
        tokenizer_kwargs: Mapping[str, Any] | None = None,
        **variables: Any,
    ) -> Any:
        """Return a conversation as the model was trained on it: its inputs, or its text.

        Args:
            conversation: Messages with `role` and `content`, or a batch of conversations.
            tools: JSON schemas of tools, or functions with type hints and a docstring (these need transformers).
            documents: Objects with `title` and `text` for models that retrieve.
            chat_template: A template, or the name of one of several; by default that of the model's folder.
            add_generation_prompt: End with the beginning of the assistant's answer.
            continue_final_message: End inside the last message, for the model to continue it.
            tokenize: False returns the text.
            padding: As in a call, like the next three.
            truncation: False does not cut.
            max_length: Number of ids.
            return_tensors: "np", "pt" or None.
            return_dict: False returns the ids without the other inputs.
            return_assistant_tokens_mask: Return `assistant_masks`, 1 for the ids of text inside `{% generation %}`.
            tokenizer_kwargs: Further arguments of the call that encodes the text.
            **variables: Further variables of the template.

        Raises:
            TokenizerError: There is no template, or it rejects the conversation.
            TypeError: A keyword is neither a parameter nor a variable that the template uses.

        >>> from bytemill import Tokenizer
        >>> tok = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}"
        >>> messages = [{"role": "user", "content": "Hello!"}]
        >>> tok.apply_chat_template(messages, chat_template=template, tokenize=False)
        'user: Hello!\\n'
        """
        template = template_of(chat_template, self._chat_templates, has_tools=tools is not None)
        check_variables(template, variables, _CHAT_PARAMETERS)
        if return_assistant_tokens_mask:
            check_mask(template, is_dict=return_dict and tokenize, continues=continue_final_message)
        is_batch = bool(conversation) and not isinstance(conversation[0], Mapping)
        conversations = cast(
            "Sequence[Sequence[Mapping[str, Any]]]", conversation if is_batch else [conversation]
        )
        chats = [
            render_chat(
                template,
                messages,
                tools=tools,
                documents=documents,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                variables=self.special_tokens_map | variables,
            )
            for messages in conversations
        ]
        text = [chat.text for chat in chats] if is_batch else chats[0].text
        if not tokenize:
            return text
        options = dict(tokenizer_kwargs or {})
        returns_offsets = options.pop("return_offsets_mapping", False)
        inputs = self(
            text,
            add_special_tokens=False,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            return_tensors=return_tensors,
            return_offsets_mapping=returns_offsets or return_assistant_tokens_mask,
            **options,
        )
        if return_assistant_tokens_mask:
            offsets = inputs["offset_mapping"] if returns_offsets else inputs.pop("offset_mapping")
            rows = offsets.tolist() if return_tensors is not None else offsets if is_batch else [offsets]
            masks = [assistant_mask(row, chat.generated) for row, chat in zip(rows, chats, strict=True)]
            if return_tensors is not None:
                inputs["assistant_masks"] = tensors({"input_ids": masks}, return_tensors)["input_ids"]
            else:
                inputs["assistant_masks"] = masks if is_batch else masks[0]
        return inputs if return_dict else inputs["input_ids"]

    @cached_property
    def special_tokens_map(self) -> dict[str, Any]:
        """Special tokens by role: `bos_token`, `eos_token`, `pad_token` and others that the model's files name."""
        # Imported late: encoding does not need it.
        from bytemill.formats.huggingface.sidecars import named_tokens

        kept = self.metadata and self.metadata.special_tokens_map
        return {role: _content(token) for role, token in named_tokens(self._config, kept).items()}

    @property
    def bos_token(self) -> str | None:
        """The token that begins a text, if the model's files name one."""
        return self.special_tokens_map.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        """The token that ends a text, if the model's files name one."""
        return self.special_tokens_map.get("eos_token")

    @property
    def pad_token(self) -> str | None:
        """The token that fills batches. May be set to a special token."""
        return self.special_tokens_map.get("pad_token")

    @pad_token.setter
    def pad_token(self, token: str) -> None:
        if token not in self.special_tokens:
            raise TokenizerError(f"{token!r} is not a special token of this tokenizer")
        self.special_tokens_map["pad_token"] = token

    @property
    def bos_token_id(self) -> int | None:
        """Id of `bos_token`."""
        return self._id_of_role("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        """Id of `eos_token`."""
        return self._id_of_role("eos_token")

    @property
    def pad_token_id(self) -> int | None:
        """Id of `pad_token`."""
        return self._id_of_role("pad_token")

    def _id_of_role(self, role: str) -> int | None:
        token = self.special_tokens_map.get(role)
        return None if token is None else self.special_tokens.get(token)

    @property
    def _config(self) -> dict[str, Any]:
        return (self.metadata and self.metadata.config) or {}

    @property
    def _chat_templates(self) -> Any:
        return (self.metadata and self.metadata.chat_template) or self._config.get("chat_template")

    def _setting(self, name: str, default: Side) -> Side:
        value = self._config.get(name, default)
        return value if value in ("left", "right") else default

    @cached_property
    def _post_processor(self) -> PostProcessor:
        return PostProcessor(self.metadata and self.metadata.post_processor, self.id_to_token)

    def _limit(self, max_length: int | None) -> int | None:
        if max_length is not None:
            return max_length
        limit = self._config.get("model_max_length")
        return int(limit) if isinstance(limit, int | float) and limit < _NO_LIMIT else None

    def _encoded(self, texts: list[str], *, with_offsets: bool, type_id: int = 0) -> list[Encoded]:
        if not with_offsets:
            return [Encoded.of_text(ids, None, type_id) for ids in self.encode_batch(texts)]
        results = [self.encode_with_offsets(text) for text in texts]
        return [
            Encoded.of_text(
                each.ids.tolist(), [(start, end) for start, end in each.char_offsets.tolist()], type_id
            )
            for each in results
        ]

    def _pad(self, rows: list[Encoded], masks: list[list[int]], length: int, side: Side) -> None:
        pad_id = self.pad_token_id
        if pad_id is None:
            raise TokenizerError(
                "this tokenizer has no padding token",
                hint="set one: tokenizer.pad_token = tokenizer.eos_token, or another special token",
            )
        for row, mask in zip(rows, masks, strict=True):
            n = max(length - len(row.ids), 0)
            row.ids = padded(row.ids, [pad_id] * n, side)
            row.type_ids = padded(row.type_ids, [0] * n, side)
            row.special_mask = padded(row.special_mask, [1] * n, side)
            row.offsets = None if row.offsets is None else padded(row.offsets, [(0, 0)] * n, side)
            mask[:] = padded(mask, [0] * n, side)


_CHAT_PARAMETERS = tuple(inspect.signature(ModelInputMethods.apply_chat_template).parameters)


def _content(value: Any) -> str | None:
    """Return the text of a token in tokenizer_config.json: a str, or an object with its flags."""
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("content")
    return value if isinstance(value, str) else None


def _check_texts(texts: list[Any], pairs: list[Any] | None, *, is_batch: bool, is_pair_batch: bool) -> None:
    for each in (texts, pairs or []):
        for index, text in enumerate(each):
            if not isinstance(text, str):
                raise TypeError(f"text {index} is of type {type(text).__name__}, not str")
    if pairs is not None and (len(pairs) != len(texts) or is_batch != is_pair_batch):
        raise TypeError(f"{len(texts)} texts and {len(pairs)} second texts do not make pairs")
