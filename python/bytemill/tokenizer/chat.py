"""Chat templates: a conversation as the text that a model was trained on.

Templates are untrusted code from model folders, so they run in Jinja's sandbox. Functions, filters and settings of the
environment are those that transformers documents for template authors
(https://huggingface.co/docs/transformers/chat_templating_writing).
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template

    Message = Mapping[str, Any]

_CONTINUE_HERE = "\ue000bytemill continues here\ue000 "


def render_chat(
    template: str,
    conversation: Sequence[Message],
    *,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
    **variables: Any,
) -> str:
    """Return the text of a conversation.

    Args:
        template: Source of the template.
        conversation: Messages, each with `role` and `content`. Values of None count as missing.
        tools: JSON schemas, or functions with type hints and a docstring, which need `transformers`.
        documents: Objects with `title` and `text` for models that retrieve.
        add_generation_prompt: End with the beginning of the assistant's answer.
        continue_final_message: End inside the last message, for the model to continue it.
        **variables: Further variables of the template.

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
    try:
        text = _compiled(template).render(
            messages=messages,
            tools=schemas,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            **variables,
        )
    except TemplateError as error:
        raise TokenizerError(f"the chat template failed: {error}") from error
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        raise TokenizerError(f"the chat template failed: {type(error).__name__}: {error}") from error
    return _up_to_mark(text) if continue_final_message else text


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


@lru_cache(maxsize=32)
def _compiled(template: str) -> Template:
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
    return environment.from_string(template)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Jinja's own filter escapes characters of HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _generation_tag() -> type[Any]:
    """Return the extension for `{% generation %}`, which marks what the assistant says. It changes no text."""
    from jinja2 import ext, nodes

    class Generation(ext.Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    return Generation


def template_of(explicit: str | None, kept: Any, *, has_tools: bool) -> str:
    """Return the source of the template to use.

    Args:
        explicit: A template, or the name of one of several.
        kept: The tokenizer's template, or several with their names: a mapping, or the list of tokenizer_config.json.
        has_tools: Tools are used: then a template named `tool_use` is preferred.

    Raises:
        TokenizerError: There is none, or none of this name.
    """
    if isinstance(kept, list):
        entries = cast("list[dict[str, str]]", kept)
        kept = {entry["name"]: entry["template"] for entry in entries}
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
