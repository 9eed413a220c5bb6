"""Chat templates: a conversation as the text that a model was trained on.

Templates are untrusted code from model folders, so they run in Jinja's sandbox. Functions, filters and settings of the
environment are those that transformers documents for template authors
(https://huggingface.co/docs/transformers/chat_templating_writing).
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast

from bytemill.errors import TokenizerError
from bytemill.tokenizer.model_inputs import tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jinja2 import Environment, Template

    Message = Mapping[str, Any]

_OUTPUT = "output of bytemill"
"""Name of the variable that holds the output of a template so far. No template can use it: it is no identifier."""
_CONTINUE_HERE = "\ue000bytemill continues here\ue000 "


@dataclass
class RenderedChat:
    """The text of a conversation."""

    text: str
    generated: list[tuple[int, int]]
    """Where it is inside `{% generation %}`: characters (start, end), in the order in which these blocks end."""


@dataclass
class _Output:
    blocks: list[str] = field(default_factory=list[str])
    generated: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    around: tuple[str, str] = ("", "")


def render_chat(
    template: str,
    conversation: Sequence[Message],
    *,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
    variables: Mapping[str, Any],
    around_generated: tuple[str, str] = ("", ""),
) -> RenderedChat:
    """Return a conversation as text.

    Args:
        template: Source of the template.
        conversation: Messages, each with `role` and `content`. Values of None count as missing.
        tools: JSON schemas, or functions with type hints and a docstring, which need `transformers`.
        documents: Objects with `title` and `text` for models that retrieve.
        add_generation_prompt: End with the beginning of the assistant's answer.
        continue_final_message: End inside the last message, for the model to continue it.
        variables: Further variables of the template.
        around_generated: Texts before and after each block of `{% generation %}`.

    Raises:
        TokenizerError: The template is invalid or rejects the conversation, or the last message does not appear in
            the text.
    """
    from jinja2 import TemplateError

    messages = [
        {key: value for key, value in message.items() if value is not None} for message in conversation
    ]
    if not messages:
        raise TokenizerError("the conversation is empty", hint="give at least one message")
    if not isinstance(continue_final_message, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"continue_final_message must be True or False, not {continue_final_message!r}")
    if continue_final_message:
        if add_generation_prompt:
            raise TokenizerError(
                "continue_final_message and add_generation_prompt exclude each other",
                hint="the one continues the last message, the other one begins a new one",
            )
        if not isinstance(messages[-1].get("content"), str):
            raise TokenizerError("the last message has no text to continue")
        messages[-1]["content"] += _CONTINUE_HERE
    schemas = None if tools is None else [_schema(tool) for tool in tools]
    output = _Output(around=around_generated)
    values = {
        "messages": messages,
        "tools": schemas,
        "documents": documents,
        "add_generation_prompt": add_generation_prompt,
        **variables,
        _OUTPUT: output,
    }
    try:
        for block in _compiled(template).generate(values):
            output.blocks.append(block)
    except TemplateError as error:
        raise TokenizerError(f"the chat template failed: {error}") from error
    except (
        *(TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError),
        SyntaxError,  # of the code that Jinja generates, such as a break out of {% generation %}
    ) as error:
        raise TokenizerError(f"the chat template failed: {type(error).__name__}: {error}") from error
    text = "".join(output.blocks)
    return RenderedChat(_up_to_mark(text) if continue_final_message else text, output.generated)


def _up_to_mark(text: str) -> str:
    mark = _CONTINUE_HERE.strip()
    at = text.rfind(mark)
    if at < 0:
        raise TokenizerError("the chat template leaves the last message out, so it cannot be continued")
    is_whole = text.startswith(_CONTINUE_HERE, at)
    return text[:at] if is_whole else text[:at].rstrip()


def _schema(tool: Any) -> Any:
    if isinstance(tool, dict):
        return cast("dict[str, Any]", tool)
    if not callable(tool):
        raise TypeError(f"a tool is a JSON schema or a function, not {type(tool).__name__}")
    from bytemill.system.extras import import_library

    utils: Any = import_library("transformers", "tools that are functions").utils
    return utils.get_json_schema(tool)


def check_variables(template: str, variables: Iterable[str], method: Callable[..., Any]) -> None:
    """Raise `TypeError` for a variable that a template does not use.

    Args:
        template: Source of the template.
        variables: Names of the variables.
        method: The method that was called, whose parameters the caller may have meant.
    """
    if not (names := list(variables)):
        return
    used = variables_of(template)
    for name in names:
        if name not in used or name == "messages":
            others = [*inspect.signature(method).parameters, *sorted(used - {"messages"})]
            close = get_close_matches(name, others, n=1)
            raise TypeError(
                f"apply_chat_template() got an unexpected keyword argument {name!r}, and the chat template has no "
                "variable of this name" + (f"; did you mean {close[0]!r}?" if close else "")
            )


@lru_cache(maxsize=32)
def variables_of(template: str) -> frozenset[str]:
    """Return the names that a template uses and does not set."""
    from jinja2 import TemplateError, meta

    try:
        return frozenset(meta.find_undeclared_variables(_environment().parse(template)))
    except TemplateError as error:
        raise TokenizerError(f"the chat template failed: {error}") from error


def check_mask(template: str, *, is_dict: bool, continues: bool) -> None:
    """Check that a mask of what the assistant says can be returned.

    Args:
        template: Source of the template. If it has no `{% generation %}`, a warning says that the mask is 0 everywhere.
        is_dict: Ids are returned, by name.
        continues: The last message is continued.

    Raises:
        TokenizerError: The mask contradicts the other options.
    """
    if not is_dict:
        raise TokenizerError("return_assistant_tokens_mask needs tokenize=True and return_dict=True")
    if continues:
        raise TokenizerError("continue_final_message and return_assistant_tokens_mask exclude each other")
    if not has_generation(template):
        message = "the chat template has no {% generation %}, so the mask of what the assistant says is 0 everywhere"
        warnings.warn(message, UserWarning, stacklevel=3)


def has_generation(template: str) -> bool:
    """Return True if a template marks what the assistant says."""
    return re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None


def assistant_masks(
    offsets: Any,
    generated: Sequence[Iterable[tuple[int, int]]],
    return_tensors: Literal["np", "pt"] | None,
    *,
    is_batch: bool,
) -> Any:
    """Return 1 for each id inside a block of generated text, else 0, in the form of the other inputs of the model.

    Args:
        offsets: Characters (start, end) of each id of each text.
        generated: `RenderedChat.generated` of each text.
        return_tensors: Kind of tensors, or None for lists.
        is_batch: Several texts, or one in a list.
    """
    rows = offsets.tolist() if return_tensors is not None else offsets if is_batch else [offsets]
    masks = [_assistant_mask(row, blocks) for row, blocks in zip(rows, generated, strict=True)]
    if return_tensors is not None:
        return tensors({"input_ids": masks}, return_tensors)["input_ids"]
    return masks if is_batch else masks[0]


def _assistant_mask(offsets: Sequence[Sequence[int]], generated: Iterable[tuple[int, int]]) -> list[int]:
    """Return the mask of one text, as transformers does."""

    def id_at(character: int) -> int | None:
        return next((i for i, (start, end) in enumerate(offsets) if start <= character < end), None)

    mask = [0] * len(offsets)
    for start, end in generated:
        first, last = id_at(start), id_at(end - 1)
        if first is None:  # cut off
            break
        for index in range(first, last + 1 if last else len(mask)):
            mask[index] = 1
    return mask


@lru_cache(maxsize=32)
def _compiled(template: str) -> Template:
    return _environment().from_string(template)


@cache
def _environment() -> Environment:
    from jinja2 import TemplateError, ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def strftime_now(form: str) -> str:
        return datetime.now().strftime(form)

    environment: Any = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_generation_tag(), ext.loopcontrols]
    )
    environment.filters |= {"tojson": _to_json}
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Jinja's own filter escapes characters of HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _generation_tag() -> type[Any]:
    """Return the extension for `{% generation %}`, which marks what the assistant says. It changes no text.

    As in transformers, a block is where the output stands when the block ends, so the positions are wrong for a block
    inside a macro or a filter.
    """
    from jinja2 import ext, nodes

    class Generation(ext.Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            call = self.call_method("_note", [nodes.ContextReference()])
            return nodes.CallBlock(call, [], [], body, lineno=line)

        def _note(self, context: Any, caller: Callable[[], str]) -> str:
            output: _Output = context[_OUTPUT]
            text = caller().join(output.around)
            start = sum(map(len, output.blocks))
            output.generated.append((start, start + len(text)))
            return text

    return Generation


def template_of(explicit: str | None, kept: Any, *, has_tools: bool) -> str:
    """Return the source of the template to use.

    Args:
        explicit: A template, or the name of one of several.
        kept: The tokenizer's template, or several by name.
        has_tools: Tools are used: then a template named `tool_use` is preferred.

    Raises:
        TokenizerError: There is none, or none of this name.
    """
    if isinstance(kept, dict):
        templates = cast("dict[str, str]", kept)
        name = explicit or ("tool_use" if has_tools and "tool_use" in templates else "default")
        if name in templates:
            return templates[name]
        if explicit is None:
            raise TokenizerError(
                "this tokenizer has several chat templates and none is the default",
                hint=f"name one with chat_template=: {', '.join(templates)}",
            )
        return explicit
    if explicit is not None:
        return explicit
    if not isinstance(kept, str):
        raise TokenizerError(
            "this tokenizer has no chat template",
            hint="load it from its model's folder, or pass chat_template=",
        )
    return kept
