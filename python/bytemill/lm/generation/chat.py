"""What a model reads of a conversation before it answers.

`text_generation.generate_text` continues the text, up to the special token that ends the turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.errors import RunConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation in the chat template of a tokenizer, with the beginning of the next answer."""

    text: str
    ids: list[int]
    n_forgotten: int
    """Messages after the system prompt that were left out, so that an answer fits into the context."""


def require_chat_template(tokenizer: Tokenizer, model: str) -> None:
    """Raise `RunConfigError` if the tokenizer of a model has no chat template.

    Args:
        tokenizer: The tokenizer.
        model: Name of the model for the error.
    """
    if tokenizer.chat_template is None:
        raise RunConfigError(
            f"the tokenizer of {model} has no chat template",
            hint="tune the model on conversations with a tokenizer that has one: --data.tokenizer FOLDER",
        )


def chat_prompt(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]], context_length: int, max_tokens: int
) -> ChatPrompt:
    """Return what the model reads of a conversation, whose oldest turns are forgotten where the context is too short.

    Args:
        tokenizer: A tokenizer with a chat template.
        messages: Messages with `role` and `content`, the last one from the user. A system prompt comes first.
        context_length: Ids that the model reads.
        max_tokens: Ids of the context that are kept free for the answer.

    Raises:
        RunConfigError: The last message with room for an answer does not fit into the context.
        TokenizerError: There is no template, or it rejects the conversation.
    """
    n_system = int(bool(messages) and messages[0]["role"] == "system")
    system, turns = [dict(message) for message in messages[:n_system]], list(messages[n_system:])
    n_forgotten = 0
    while True:
        text: str = tokenizer.apply_chat_template(
            [*system, *(dict(message) for message in turns[n_forgotten:])],
            tokenize=False,
            add_generation_prompt=True,
        )
        ids = tokenizer.encode(text)
        if len(ids) <= context_length - max_tokens:
            return ChatPrompt(text, ids, n_forgotten)
        later = (i for i, message in enumerate(turns) if i > n_forgotten and message["role"] == "user")
        n_forgotten = next(later, len(turns))
        if n_forgotten == len(turns):
            raise RunConfigError(
                f"the message has {len(ids):,} tokens, which with an answer of max_tokens {max_tokens:,} exceeds "
                f"the context of {context_length:,} tokens",
                hint="write less, or lower max_tokens",
            )
