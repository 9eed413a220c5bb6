"""Conversations as training examples: ids, and which of them the model learns to produce.

The text of a conversation is one rendering of the tokenizer's chat template, and its ids are those of
`Tokenizer.apply_chat_template`. Targets are what the assistant says and the token that ends its turn. Templates with
`{% generation %}` say where that is. For others it is found in two ways:

1. Private characters before and after the content of each message of the assistant mark it in a second rendering,
   which must be the first one otherwise.
2. A rendering of the messages before it, with the beginning of an answer, ends where the answer starts. This checks the
   first way. It replaces it for a message with tool calls or reasoning, and where the template changes the content.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bytemill.errors import TokenizerError
from bytemill.tokenizer.chat import has_generation, render_chat, template_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bytemill.tokenizer.tokenizer import Tokenizer

    Message = Mapping[str, Any]
    Span = tuple[int, int]

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
"""Roles of messages."""
_CALLS = ("tool_calls", "function_call")
_SAID_BESIDES = (*_CALLS, "reasoning_content", "reasoning", "thinking")
"""Fields beside the content that the assistant produces."""
_STRIPPED = ("", "\n", None)
"""Characters that templates strip from contents: none, ends of lines, white space."""
PROBE = ({"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"})
"""A conversation that every chat template has a text for."""
_SHOWN_CHARACTERS = 300
"""Characters of a conversation in an error."""


@dataclass(frozen=True)
class Conversation:
    """A conversation as a training example."""

    ids: list[int]
    """As `Tokenizer.apply_chat_template` returns them."""
    mask: list[bool]
    """True for each id that the model learns to produce."""
    text: str
    """The text of the ids."""


def render_conversation(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    tools: Sequence[Any] | None = None,
    max_tokens: int | None = None,
    n_prompt: int = 0,
) -> Conversation:
    """Return the ids of a conversation, and which of them are targets.

    A token is a target if it has a character that the assistant says: its content, tool calls and reasoning as the
    template writes them, and what ends its turn, up to the special token.

    Args:
        tokenizer: A tokenizer with a chat template.
        messages: Messages with `role` and `content`.
        tools: As for `Tokenizer.apply_chat_template`.
        max_tokens: Leave out messages at the end, so that the conversation ends with a turn of the assistant and has at
            most this many ids.
        n_prompt: Number of messages at the start that have no targets.

    Raises:
        TokenizerError: There is no template, or it rejects a message or leaves out what the assistant says; a role is
            unknown; no message is the assistant's; or a text has a lone surrogate.
        TurnTooLongError: The first turn of the assistant ends after `max_tokens`.

    >>> from bytemill import Tokenizer
    >>> tok = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["</s>"])
    >>> tok.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}"
    >>> said = [{"role": "user", "content": "Hi!"}, {"role": "assistant", "content": "Hello."}]
    >>> example = render_conversation(tok, said)
    >>> example.text
    'user: Hi!</s>assistant: Hello.</s>'
    >>> tok.decode([i for i, is_target in zip(example.ids, example.mask) if is_target])
    'Hello.</s>'
    """
    check_messages(messages, n_prompt)
    rendered = _Rendering(tokenizer, messages, tools).conversation(n_prompt)
    if max_tokens is None or len(rendered.ids) <= max_tokens:
        return rendered
    ends = [number for number, message in enumerate(messages, 1) if message["role"] == "assistant"]
    ends = [end for end in ends if end > n_prompt]

    def n_tokens(end: int) -> int:
        return len(tokenizer.encode(_Rendering(tokenizer, messages[:end], tools).text))

    n_turns = bisect_right(ends, max_tokens, key=n_tokens)
    if not n_turns:
        raise TurnTooLongError(
            f"the first turn of the assistant ends after {n_tokens(ends[0]):,} tokens, and max_tokens is {max_tokens:,}"
        )
    return _Rendering(tokenizer, messages[: ends[n_turns - 1]], tools).conversation(n_prompt)


def end_of_turn(tokenizer: Tokenizer) -> str | None:
    """Return the special token with which the chat template ends an answer of the assistant.

    Args:
        tokenizer: The tokenizer.

    Returns:
        The token, or None: there is no template, it rejects a question with an answer, or no special token follows.
    """
    if tokenizer.chat_template is None:
        return None
    try:
        example = render_conversation(tokenizer, PROBE)
    except TokenizerError:
        return None
    last = max(index for index, is_target in enumerate(example.mask) if is_target)
    names = {token_id: token for token, token_id in tokenizer.special_tokens.items()}
    return next((names[token_id] for token_id in example.ids[last:] if token_id in names), None)


class TurnTooLongError(TokenizerError):
    """The first turn of the assistant does not fit into the wanted number of tokens."""


def check_messages(messages: Sequence[Message], n_prompt: int = 0) -> None:
    """Check the roles and texts of a conversation.

    Args:
        messages: The messages.
        n_prompt: Number of messages at the start that have no targets.

    Raises:
        TokenizerError: A role is unknown, no message is the assistant's, or a text has a lone surrogate.
    """
    for number, message in enumerate(messages, 1):
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise TokenizerError(
                f"message {number} has the unknown role {role!r}", hint=f"roles are {', '.join(ROLES)}"
            )
        if not isinstance(content, str | list | None):
            raise TokenizerError(
                f"message {number} ({role}) has a content of type {type(content).__name__}, not str"
            )
        if isinstance(content, list) and not all(
            isinstance(part, Mapping) for part in cast("list[Any]", content)
        ):
            raise TokenizerError(f"message {number} ({role}) has a part of its content that is not an object")
        if any("\ud800" <= character <= "\udfff" for character in _characters(message)):
            raise TokenizerError(f"message {number} ({role}) has a lone surrogate, which UTF-8 cannot encode")
    if not any(message["role"] == "assistant" for message in messages[n_prompt:]):
        raise TokenizerError("the conversation has no message of the assistant, so nothing in it is a target")


def _characters(value: Any) -> set[str]:
    return set(json.dumps(value, ensure_ascii=False, default=str))


class _Rendering:
    """One conversation with the template of a tokenizer."""

    def __init__(
        self, tokenizer: Tokenizer, messages: Sequence[Message], tools: Sequence[Any] | None
    ) -> None:
        self._tokenizer = tokenizer
        self._messages = [dict(message) for message in messages]
        self._tools = tools
        self._template = template_of(None, tokenizer.chat_template, has_tools=tools is not None)

    def conversation(self, n_prompt: int) -> Conversation:
        """Return the ids and the mask, without targets in the first `n_prompt` messages."""
        self._check_calls()
        encoded = self._tokenizer.encode_with_offsets(self.text)
        starts, ends = encoded.char_offsets.T
        is_special = np.isin(encoded.ids, list(self._tokenizer.special_tokens.values()))
        mask = np.zeros(len(encoded.ids), np.bool_)
        spans = list(self._generated() if has_generation(self._template) else self._turns())
        turns = [index for index, message in enumerate(self._messages) if message["role"] == "assistant"]
        if n_prompt and len(spans) != len(turns):
            raise self._error(f"{len(spans)} blocks of generated text are not {len(turns)} messages")
        for start, end in spans[sum(index < n_prompt for index in turns) :]:
            # A special token may take in white space after it, which does not make it a target.
            mask |= (ends > start) & (starts < end) & ~(is_special & (starts < start))
        if not mask.any():
            raise self._error("no token of the conversation is a target")
        return Conversation(encoded.ids.tolist(), mask.tolist(), self.text)

    def _check_calls(self) -> None:
        """Raise `TokenizerError` if the template leaves out the tool calls of a message."""
        for index, message in enumerate(self._messages):
            if any(map(message.get, _CALLS)):
                without = {key: value for key, value in message.items() if key not in _CALLS}
                others = [*self._messages[:index], {"content": "", **without}, *self._messages[index + 1 :]]
                if self._attempt(others) == self.text:
                    raise self._error(f"the chat template leaves out the tool calls of message {index + 1}")

    @cached_property
    def text(self) -> str:
        """The text of the conversation. Errors of the template name the message."""
        try:
            return self._render(self._messages)
        except TokenizerError as error:
            number = len(self._messages)
            while number > 1 and self._problem(self._messages[: number - 1]) == str(error):
                number -= 1
            role = self._messages[number - 1]["role"]
            raise TokenizerError(f"message {number} ({role}): {error}", hint=error.hint) from error

    def _problem(self, messages: Sequence[Message]) -> str | None:
        try:
            self._render(messages)
        except TokenizerError as error:
            return str(error)
        return None

    def _render(
        self, messages: Sequence[Message], *, prompt: bool = False, around: tuple[str, str] = ("", "")
    ) -> str:
        return render_chat(
            self._template,
            messages,
            tools=self._tools,
            add_generation_prompt=prompt,
            variables=self._tokenizer.special_tokens_map,
            around_generated=around,
        ).text

    def _attempt(self, messages: Sequence[Message], *, prompt: bool = False) -> str | None:
        """Return the text of other messages, or None if the template rejects them."""
        try:
            return self._render(messages, prompt=prompt)
        except TokenizerError:
            return None

    def _error(self, what: str) -> TokenizerError:
        kept = self._tokenizer.chat_template
        names = {source: name for name, source in kept.items()} if isinstance(kept, dict) else {}
        shown = json.dumps(self._messages, ensure_ascii=False, default=str)
        shown = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"
        return TokenizerError(
            f"{what} (chat template {names.get(self._template, 'default')!r} of {self._tokenizer.name}): {shown}",
            hint="mark what the assistant says in the template by {% generation %}",
        )

    def _generated(self) -> Iterator[Span]:
        """Yield the blocks of `{% generation %}`."""
        opening, closing = self._markers[:2]
        marked = self._render(self._messages, around=(opening, closing))
        if marked.replace(opening, "").replace(closing, "") != self.text:
            raise self._error("the chat template changes text inside {% generation %} afterwards")
        starts: list[int] = []
        for marker, position in self._found(marked):
            if marker == 0:
                starts.append(position)
            else:
                yield starts.pop(), position

    def _turns(self) -> Iterator[Span]:
        """Yield what the assistant says in each of its messages, with what ends the turn."""
        contents, previous_end = self._contents(), 0
        for index, message in enumerate(self._messages):
            if message["role"] != "assistant":
                continue
            before = self._attempt(self._messages[:index], prompt=True) if index else None
            if index in contents:
                start, end = contents[index]
                end = self._end_of_turn(end)
            else:
                start, end = self._changed(index, before)
            starts_at = len(before) if before is not None and self.text.startswith(before) else previous_end
            if not previous_end <= starts_at <= start <= end:
                raise self._error(
                    f"the markers and the renderings of prefixes disagree about message {index + 1}: it starts at "
                    f"character {start:,} or {starts_at:,}"
                )
            yield start, end
            previous_end = end

    @cached_property
    def _markers(self) -> list[str]:
        """Two private characters for each message and one more, none of which is in the conversation."""
        used = _characters([self._messages, self.text])
        private = map(chr, range(0xF0000, 0x10FFFE))
        free = (character for character in private if character not in used)
        return [character for character, _ in zip(free, range(2 * len(self._messages) + 1), strict=False)]

    def _contents(self) -> dict[int, Span]:
        """Return where the content of each of the assistant's messages is, unless the template changes it."""
        plain = [
            index
            for index, message in enumerate(self._messages)
            if message["role"] == "assistant" and not any(map(message.get, _SAID_BESIDES))
        ]
        if (outer := self._positions(plain, "", "")) is not None:
            return outer
        # A template that strips a content does not strip markers around it. They are as far outside as they can be.
        inner = self._positions(plain, None, None) or {}
        contents = {index: span for index, span in inner.items() if self._is_stripped(index, span)}
        for index, (left, right) in product(plain, product(_STRIPPED, repeat=2)):
            if index not in contents and (found := self._positions([index], left, right)) is not None:
                contents |= found
        return contents

    def _is_stripped(self, index: int, span: Span) -> bool:
        """Return True if the text has none of the white space around the content of a message."""
        content = self._messages[index].get("content")
        core = content.strip() if isinstance(content, str) else ""
        if not core:
            return False
        head, tail = str(content).split(core, 1)
        return not (
            (head and self.text.endswith(head[-1], 0, span[0]))
            or (tail and self.text.startswith(tail[0], span[1]))
        )

    def _positions(self, indices: list[int], left: str | None, right: str | None) -> dict[int, Span] | None:
        """Return where the contents of messages are, or None if their markers change the text.

        Args:
            indices: Indices of the messages.
            left: Characters at the start of a content that stay outside the markers; None for white space.
            right: The same at its end.
        """
        messages: list[Message] = list(self._messages)
        for index in indices:
            messages[index] = _marked(messages[index], self._markers[2 * index : 2 * index + 2], left, right)
        marked = self._attempt(messages)
        if marked is None or marked.translate(dict.fromkeys(map(ord, self._markers))) != self.text:
            return None
        found: dict[int, list[int]] = {}
        for marker, position in self._found(marked):
            found.setdefault(marker, []).append(position)
        ranges = {i: (found.get(2 * i, []), found.get(2 * i + 1, [])) for i in indices}
        return {
            i: (start[0], end[0])
            for i, (start, end) in ranges.items()
            if len(start) == len(end) == 1 and start <= end
        }

    def _found(self, marked: str) -> Iterator[tuple[int, int]]:
        """Yield the number of each marker in a text, and its position in the text without markers."""
        numbers = {marker: number for number, marker in enumerate(self._markers)}
        for n_before, match in enumerate(re.finditer(f"[{''.join(self._markers)}]", marked)):
            yield numbers[match[0]], match.start() - n_before

    @cached_property
    def _tail(self) -> str:
        """What follows the content of the assistant's last message if no message follows."""
        index = max(i for i, message in enumerate(self._messages) if message["role"] == "assistant")
        found = self._attempt([*self._messages[:index], {"role": "assistant", "content": self._markers[-1]}])
        return "" if found is None else found.rpartition(self._markers[-1])[2]

    @cached_property
    def _special(self) -> re.Pattern[str]:
        tokens = sorted(self._tokenizer.special_tokens, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, tokens)) or "(?!)")

    def _end_of_turn(self, at: int) -> int:
        """Return the end of the turn in which the assistant says nothing after `at`."""
        tail = self._tail
        if usual := self._special.search(tail):
            tail = tail[: usual.start()]
            token = self._special.match(self.text, at + len(tail))
            if token and self.text.startswith(tail, at):
                ends_turn = token[0] == usual[0] or self._ends_messages(tail + token[0])
                return token.end() if ends_turn else at + len(tail)
        n_common = _n_common(tail, self.text[at : at + len(tail)])
        return at + (n_common if n_common == len(tail) else tail.rfind("\n", 0, n_common) + 1)

    def _ends_messages(self, tail: str) -> bool:
        """Return True if this ends messages of the user too, so that it does not begin the next one."""
        found = self._attempt([{"role": "user", "content": self._markers[-1]}])
        return found is not None and found.rpartition(self._markers[-1])[2].startswith(tail)

    def _changed(self, index: int, before: str | None) -> Span:
        """Return what the assistant says in a message whose content the template changes, or that has more.

        Args:
            index: Index of the message.
            before: Rendering of the messages before it, with the beginning of an answer.
        """
        text, messages, marker = self.text, self._messages, self._markers[-1]
        replaced = {"role": "assistant", "content": marker}
        probe = self._attempt([*messages[:index], replaced, *messages[index + 1 :]])
        if probe is not None and probe.count(marker) > 1:
            raise self._error(f"the chat template writes message {index + 1} (assistant) more than once")
        if probe is not None and marker not in probe:
            raise self._error(f"the chat template leaves out message {index + 1} (assistant)")
        head, rest = probe.split(marker) if probe is not None and probe.count(marker) == 1 else (None, None)
        says_more = any(messages[index].get(field) for field in _SAID_BESIDES)
        if head is not None and not says_more and text.startswith(head):
            start = len(head)
        elif before is not None:
            start = _n_common(text, before)
            if start < len(before):  # it begins otherwise than an answer, such as with a tool call
                start = max((token.end() for token in self._special.finditer(text, 0, start)), default=-1)
        else:
            start = -1
        through = text if index == len(messages) - 1 else self._attempt(messages[: index + 1])
        ends: set[int] = set()
        if through is not None and text.startswith(through):
            ends.add(self._end_of_rendering(start, len(through)))
        if rest is not None and text.endswith(rest):
            ends.add(self._end_of_turn(len(text) - len(rest)))
        if start < 0 or len(ends) != 1:
            problem = "at several places" if len(ends) > 1 else "nowhere"
            raise self._error(
                f"message {index + 1} (assistant) ends {problem} in the text of the chat template"
            )
        return start, ends.pop()

    def _end_of_rendering(self, start: int, stop: int) -> int:
        """Return the end of a turn that starts at `start` and whose rendering ends at `stop`."""
        if self._tail and self.text.endswith(self._tail, start, stop):
            return self._end_of_turn(stop - len(self._tail))
        tokens = [token.end() for token in self._special.finditer(self.text, start, stop)]
        return max(tokens, default=start + len(self.text[start:stop].rstrip()))


def _n_common(first: str, second: str) -> int:
    """Return the number of characters with which both texts start."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(first), len(second)))


def _marked(message: Message, markers: Sequence[str], left: str | None, right: str | None) -> Message:
    """Return a message with markers around its content; see `_Rendering._positions`."""
    opening, closing = markers
    content: Any = message.get("content") or ""
    if isinstance(content, str):
        core = content.lstrip(left)
        head, core = content[: len(content) - len(core)], core.rstrip(right)
        return {**message, "content": f"{head}{opening}{core}{closing}{content[len(head) + len(core) :]}"}
    parts = [dict(part) for part in content]
    if texts := [part for part in parts if isinstance(part.get("text"), str)]:
        texts[0]["text"] = opening + texts[0]["text"]
        texts[-1]["text"] += closing
    return {**message, "content": parts}
