"""An interactive prompt: each line is gone on with by the model; lines with / set how."""

from __future__ import annotations

import contextlib
import shlex
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from bytemill.cli import lm_generation, output
from bytemill.errors import BytemillError, RunConfigError
from bytemill.lm.generation.sampling import SamplingParameters

if TYPE_CHECKING:
    from bytemill.lm.generation.text_generation import GenerationOptions
    from bytemill.lm.loading import TrainedModel

_HELP = """Type a beginning and the model goes on with it; an empty line asks for a text from its start.
  /params               show the parameters
  /params NAME VALUE    set one, for example: /params temperature 0.7
  /tokens               show boundaries of tokens, or no longer
  /quit                 end (as Ctrl-D does); Ctrl-C ends only the text that is under way
"""
_OWN = ("max_tokens", "n_samples", "seed")


def run_prompt(trained: TrainedModel, options: GenerationOptions) -> None:
    """Reads lines from standard input until /quit or its end."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]  (gives input() its history)
    if sys.stdin.isatty():
        output.note(f"{trained.path}, step {trained.step:,}. /help lists what else there is")
    show_tokens = False
    while (line := _read()) is not None:
        try:
            match shlex.split(line) if line.startswith("/") else []:
                case ["/quit"] | ["/exit"]:
                    return
                case ["/help"]:
                    output.write(_HELP)
                case ["/params"]:
                    output.write_facts([(name, str(value)) for name, value in _parameters(options).items()])
                case ["/params", name, value]:
                    options = _with(options, name, value)
                case ["/tokens"]:
                    show_tokens = not show_tokens
                    output.note(f"boundaries of tokens are {'shown' if show_tokens else 'not shown'}")
                case [command, *_]:
                    output.error(f"{command} is no command, or has other arguments", "/help lists them all")
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
    own: dict[str, object] = {name: getattr(options, name) for name in _OWN}
    return own | {each.name: getattr(options.sampling, each.name) for each in fields(SamplingParameters)}


def _with(options: GenerationOptions, name: str, value: str) -> GenerationOptions:
    name = name.replace("-", "_")
    known = _parameters(options)
    if name not in known:
        raise RunConfigError(f"there is no parameter {name}", hint=f"parameters are {', '.join(known)}")
    kind = float if isinstance(known[name], float) else int
    try:
        number = None if value == "None" else kind(value)
    except ValueError as error:
        raise RunConfigError(f"{name} is {value!r}, which is no {kind.__name__}") from error
    if name not in _OWN:
        return replace(options, sampling=replace(options.sampling, **{name: number}))
    if number is None and name != "seed":
        raise RunConfigError(f"{name} needs a number")
    return replace(options, **{name: number})
