"""Rows of JSON with conversations, as messages and as ids with a mask.

`ConversationEncoder` takes the place of the encoder of text, with lines as documents. It marks targets by the highest
bit of their ids, from which the writer of shards makes the mask.
"""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from bytemill.data.manifest import PAIR
from bytemill.errors import ShardError, TokenizerError
from bytemill.storage import shown
from bytemill.tokenizer.conversations import Conversation, TurnTooLongError, render_conversation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bytemill.data.manifest import ConversationSettings
    from bytemill.data.reader import StoredTokens, TokenShards
    from bytemill.tokenizer import Tokenizer

    Messages = list[dict[str, Any]]

TARGET = 1 << 31
"""Bit of the ids of targets."""
_ROLES = {
    **dict.fromkeys(("human", "user", "prompter"), "user"),
    **dict.fromkeys(("gpt", "assistant", "model", "bot", "chatgpt"), "assistant"),
    **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
    "system": "system",
}
"""Roles of ShareGPT's `from`."""


class ConversationError(TokenizerError):
    """A row has no conversation that the chat template accepts."""

    def __init__(self, error: TokenizerError, row: str) -> None:
        super().__init__(str(error), hint=error.hint)
        self.row = row


class Example(NamedTuple):
    """A conversation of a row."""

    messages: Messages
    n_prompt: int
    """Number of messages at the start that have no targets."""
    tools: list[Any] | None


def is_pair(row: str) -> bool:
    """Return True if a row has two answers. Raises `ConversationError` if it is no JSON object."""
    return PAIR[0] in _parsed(row)


def example_of(row: str, side: str | None = None) -> Example:
    """Return the conversation in a row.

    Rows have `messages`; or `conversations` with `from` and `value`; or `prompt` with `completion` or `response`; or
    `chosen` and `rejected`, whose common beginning is the prompt if there is no `prompt`. `tools` and `system` are
    optional.

    Args:
        row: A JSON object.
        side: "chosen" or "rejected", for a row with both.

    Raises:
        ConversationError: The row has none of these.

    >>> example_of('{"prompt": "1+1?", "completion": "2"}').messages
    [{'role': 'user', 'content': '1+1?'}, {'role': 'assistant', 'content': '2'}]
    """
    fields = _parsed(row)
    try:
        tools = _tools(fields.get("tools"))
        messages, n_prompt = _messages(fields, side)
        if isinstance(system := fields.get("system"), str) and system and messages[0].get("role") != "system":
            messages, n_prompt = [{"role": "system", "content": system}, *messages], n_prompt and n_prompt + 1
        return Example(messages, n_prompt, tools)
    except TokenizerError as error:
        raise ConversationError(error, row) from error


def _parsed(row: str) -> dict[str, Any]:
    try:
        fields: Any = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise ConversationError(TokenizerError(f"the row is not JSON: {error}"), row) from error
    if not isinstance(fields, dict):
        raise ConversationError(TokenizerError("the row is not a JSON object"), row)
    return cast("dict[str, Any]", fields)


def _tools(value: Any) -> list[Any] | None:
    """Return the tools of a row, which some files store as a text of JSON."""
    try:
        tools: Any = json.loads(value) if isinstance(value, str) and value else value
    except ValueError as error:
        raise TokenizerError(f"'tools' is not JSON: {error}") from error
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in cast("list[Any]", tools)):
        raise TokenizerError("'tools' is not a list of objects")
    return cast("list[Any]", tools)


def _messages(fields: dict[str, Any], side: str | None) -> tuple[Messages, int]:
    """Return the messages of a row, and how many of them are the prompt."""
    prompt = fields.get("prompt")
    if side is not None:
        if missing := [name for name in PAIR if fields.get(name) is None]:
            raise TokenizerError(f"the row has no {missing[0]!r}, as other rows have")
        answers = {name: _listed(fields[name], "assistant", name) for name in PAIR}
        if prompt is None or _starts_conversation(answers[side]):
            if isinstance(fields[side], str):
                raise TokenizerError(f"{side!r} is a text, so the row needs a 'prompt'")
            both = zip(*answers.values(), strict=False)
            n_prompt = next((i for i, (one, other) in enumerate(both) if one != other), None)
            if n_prompt is None:
                raise TokenizerError("'chosen' and 'rejected' do not differ in a message")
            return answers[side], n_prompt
        messages = _listed(prompt, "user", "prompt")
        return messages + answers[side], len(messages)
    if PAIR[0] in fields:
        raise TokenizerError(f"the row has {PAIR[0]!r}, unlike the first row")
    for name in ("messages", "conversations"):
        if fields.get(name) is not None:
            return _listed(fields[name], "user", name), 0
    for name in ("completion", "response"):
        if prompt is not None and fields.get(name) is not None:
            messages = _listed(prompt, "user", "prompt")
            return messages + _listed(fields[name], "assistant", name), len(messages)
    raise TokenizerError(
        "the row has neither 'messages' nor 'conversations', nor 'prompt' with 'completion' or 'response'",
        hint=f"its fields: {', '.join(fields) or 'none'}",
    )


def _starts_conversation(messages: Messages) -> bool:
    return (
        next((message.get("role") for message in messages if message.get("role") != "system"), "") == "user"
    )


def _listed(value: Any, role: str, name: str) -> Messages:
    """Return a text or a list of messages as messages with `role` and `content`."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list) or not value:
        raise TokenizerError(f"{name!r} is not a list of messages")
    messages: Messages = []
    for number, message in enumerate(cast("list[Any]", value), 1):
        if not isinstance(message, dict):
            raise TokenizerError(f"message {number} of {name!r} is not an object")
        fields = cast("dict[str, Any]", message)
        if "from" in fields and "role" not in fields:
            known = _ROLES.get(str(fields["from"]))
            if known is None:
                raise TokenizerError(
                    f"message {number} of {name!r} is from {fields['from']!r}, which is unknown",
                    hint=f"known are {', '.join(_ROLES)}",
                )
            fields = {"role": known, "content": fields.get("value")}
        messages.append(fields)
    return messages


def first_conversations(
    tokens: TokenShards | StoredTokens, tokenizer: Tokenizer, n: int
) -> Iterator[tuple[list[int], list[bool]]]:
    """Yield the ids of the first `n` conversations of a shard folder, and which of them are targets.

    Raises:
        ShardError: The shards are not of conversations, or of another tokenizer.
    """
    if tokens.manifest.fingerprint != tokenizer.fingerprint:
        raise ShardError(
            f"{shown(tokens.folder)} was encoded with tokenizer {tokens.manifest.fingerprint}, "
            f"not {tokenizer.fingerprint}",
            hint="name the tokenizer that encoded it",
        )
    ends = tokens.document_ends()
    bounds: list[int] = [0] if ends is None else [0, *ends[:n].tolist()]
    for start, end in pairwise(bounds):
        yield tokens.read(start, end).tolist(), tokens.mask(start, end).tolist()


def template_hash(tokenizer: Tokenizer) -> str:
    """Return the SHA-256 (hexadecimal) of what determines the text of conversations."""
    determined_by = [tokenizer.chat_template, tokenizer.special_tokens_map]
    return hashlib.sha256(json.dumps(determined_by, sort_keys=True).encode()).hexdigest()


class ConversationEncoder:
    """Encodes rows with conversations. Has the methods that `LibraryDocumentEncoder` calls."""

    dtype = "uint32"

    def __init__(self, tokenizer: Tokenizer, settings: ConversationSettings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings

    def encode(self, *_: object) -> list[int]:
        """Return no ids."""
        return []

    def encode_batch(self, rows: Sequence[str], *_: object) -> list[list[int]]:
        """Return the ids of each row, with `TARGET` in those of targets; none if its first turn is too long.

        Of a row with two answers neither has ids if one is too long, so that the two sets are parallel.
        """
        return [self._ids(row) for row in rows]

    def _ids(self, row: str) -> list[int]:
        side = self._settings.side
        try:
            found = self._rendered(row, side)
            if side is not None and self._settings.max_tokens is not None:
                self._rendered(row, PAIR[1 - PAIR.index(side)])
        except TurnTooLongError:
            return []
        except TokenizerError as error:
            raise ConversationError(error, row) from error
        return [i | TARGET if is_target else i for i, is_target in zip(found.ids, found.mask, strict=True)]

    def _rendered(self, row: str, side: str | None) -> Conversation:
        messages, n_prompt, tools = example_of(row, side)
        return render_conversation(
            self._tokenizer, messages, tools=tools, max_tokens=self._settings.max_tokens, n_prompt=n_prompt
        )
