"""Interactive prompt: the model continues or answers each line; lines that start with / are commands."""

from __future__ import annotations

import contextlib
import shlex
import sys
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from bytemill.cli import lm_generation, output
from bytemill.errors import BytemillError, RunConfigError
from bytemill.lm.generation.chat import chat_prompt
from bytemill.lm.generation.sampling import SamplingParameters

if TYPE_CHECKING:
    from bytemill.lm.generation.text_generation import GenerationOptions
    from bytemill.lm.training.saved_model import TrainedModel

_HELP = """Type a text and the model continues it. An empty line starts a new document.
  /params               show the parameters
  /params NAME VALUE    set a parameter, for example: /params temperature 0.7
  /tokens               turn token boundaries on or off
  /quit                 quit, like Ctrl-D; Ctrl-C only stops the current text
"""
_CHAT_HELP = """Type a message and the model answers.
  /reset                forget the conversation
  /system TEXT          set the system prompt, and forget the conversation
  /params               show the parameters
  /params NAME VALUE    set a parameter, for example: /params temperature 0.7
  /quit                 quit, like Ctrl-D; Ctrl-C only stops the current answer
"""
_GENERATION = ("max_tokens", "n_samples", "seed")


@dataclass
class Chat:
    """A conversation with a model, in the chat template of its tokenizer."""

    trained: TrainedModel
    system: str | None = None
    messages: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """What was said after the system prompt."""

    def answer(self, line: str, options: GenerationOptions) -> None:
        """Print the answer to a message while it is generated, and keep both.

        Raises:
            RunConfigError: The message with room for an answer does not fit into the context.
        """
        self.messages.append({"role": "user", "content": line})
        parts: list[str] = []
        try:
            system = [] if self.system is None else [{"role": "system", "content": self.system}]
            context_length = self.trained.model.config.context_length
            prompt = chat_prompt(
                self.trained.tokenizer, [*system, *self.messages], context_length, options.max_tokens
            )
            del self.messages[: prompt.n_forgotten]
            parts.extend(lm_generation.stream_text(self.trained, prompt.text, options))
        except BaseException:
            if not parts:
                self.messages.pop()
            raise
        finally:
            if parts:  # also of an answer that was stopped
                self.messages.append({"role": "assistant", "content": "".join(parts)})
        output.write_line()


def run_prompt(trained: TrainedModel, options: GenerationOptions, chat: Chat | None = None) -> None:
    """Read lines from standard input until /quit or the end of the input.

    Args:
        trained: The model.
        options: How to generate.
        chat: The conversation that lines continue; by default each line is a text of its own.
    """
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]  (adds history to input())
    if sys.stdin.isatty():
        output.note(f"{trained.path}, step {trained.step:,}; /help lists commands")
    show_tokens = False
    while (line := _read()) is not None:
        try:
            match shlex.split(line) if line.startswith("/") else []:
                case ["/quit"] | ["/exit"]:
                    return
                case ["/help"]:
                    output.write(_HELP if chat is None else _CHAT_HELP)
                case ["/reset"] if chat is not None:
                    chat.messages.clear()
                case ["/system", *words] if chat is not None:
                    chat.system = " ".join(words) or None
                    chat.messages.clear()
                case ["/params"]:
                    output.write_fields([(name, str(value)) for name, value in _parameters(options).items()])
                case ["/params", name, value]:
                    options = _with(options, name, value)
                case ["/tokens"] if chat is None:
                    show_tokens = not show_tokens
                    output.note(f"token boundaries are {'on' if show_tokens else 'off'}")
                case [command, *_]:
                    output.error(f"unknown command {command}, or wrong arguments", "/help lists all commands")
                case _ if chat is not None:
                    chat.answer(line, options)
                case _:
                    write = lm_generation.write_tokens if show_tokens else lm_generation.write_text
                    write(trained, line, options)
        except (BytemillError, ValueError) as error:
            output.error(str(error), getattr(error, "hint", None))
        except KeyboardInterrupt:
            output.write_line()
        output.flush()


def _read() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt):
        return None


def _parameters(options: GenerationOptions) -> dict[str, object]:
    generation: dict[str, object] = {name: getattr(options, name) for name in _GENERATION}
    return generation | {
        each.name: getattr(options.sampling, each.name) for each in fields(SamplingParameters)
    }


def _with(options: GenerationOptions, name: str, value: str) -> GenerationOptions:
    name = name.replace("-", "_")
    known = _parameters(options)
    if name not in known:
        raise RunConfigError(f"unknown parameter {name}", hint=f"choose one of {', '.join(known)}")
    kind = float if isinstance(known[name], float) else int
    try:
        number = None if value == "None" else kind(value)
    except ValueError as error:
        raise RunConfigError(f"{name} is {value!r}, not a {'whole ' if kind is int else ''}number") from error
    if name not in _GENERATION:
        return replace(options, sampling=replace(options.sampling, **{name: number}))
    if number is None and name != "seed":
        raise RunConfigError(f"{name} must be a number")
    return replace(options, **{name: number})
