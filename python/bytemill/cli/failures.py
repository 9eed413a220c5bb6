"""Report exceptions to the user and map them to exit codes, and say after an interruption how to continue."""

import errno
import os
import re
import sys
from collections.abc import Callable, Generator, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bytemill.cli import output
from bytemill.errors import BytemillError

if TYPE_CHECKING:
    from pathlib import Path

    from cyclopts import UnknownOptionError

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130

_OUT_OF_MEMORY = (
    r"failed to map segment|[Cc]annot allocate memory|can't start new thread|failed to spawn thread"
)
"""Messages of exceptions that are no `MemoryError` but mean the same: of the loader of libraries, and of threads."""

_OPTION = r"(?<![\w-])--[a-z][\w.-]*\w"

_PYTHON_ARGUMENTS = r'(?:\w+=(?:"[^"]*"|[^\s"]+),? )+\((--[^)]*)\)| \(\w+=[^)]*\)'
"""Python arguments before an option in parentheses, or in parentheses after one."""

_MEMORY_OPTIONS = ("--threads", "--batch-size", "--samples", "--max-tokens", "--shard-tokens")
"""Options that save memory if they are lowered."""


_OTHER_NAMES = {
    "lr": "learning-rate",
    "max-lr": "learning-rate",
    "wd": "weight-decay",
    "bs": "batch-size",
    "gradient-accumulation-steps": "accumulation",
    "grad-accum": "accumulation",
    "grad-clip": "clip",
    "max-grad-norm": "clip",
    "max-iters": "steps",
    "max-steps": "steps",
    "num-iterations": "steps",
    "warmup": "warmup-steps",
    "warmup-iters": "warmup-steps",
    "dtype": "precision",
    "block-size": "context-length",
    "seq-len": "context-length",
    "n-layer": "num-layers",
    "layers": "num-layers",
    "n-head": "num-heads",
    "heads": "num-heads",
    "n-embd": "d-model",
    "hidden-size": "d-model",
    "dim": "d-model",
    "out-dir": "folder",
    "eval-interval": "validate-every",
}
"""What other programs call a setting: its name here."""
_REPLACED_OPTIONS = {
    "--append-eot": "leave it out: <|endoftext|> ends every document; --documents TOKEN names another token, "
    "--no-separators adds none",
    "--document-separator": "use --documents TOKEN",
    "--no-special-tokens": "use --no-end-of-text",
}
"""Options that exist no more, and what to use instead."""


def report(error: BaseException, options: Set[str] = frozenset()) -> int:
    """Print an exception on standard error, with a traceback if BYTEMILL_DEBUG=1.

    Args:
        error: The exception.
        options: Names of the options of the command that failed.

    Returns:
        The exit code.
    """
    from cyclopts import CycloptsError

    if os.environ.get("BYTEMILL_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    match error:
        case KeyboardInterrupt():
            output.interrupted(" ".join(getattr(error, "__notes__", [])))
            return INTERRUPTED
        case CycloptsError():
            output.error(_usage_message(error), _usage_hint(error))
            return WRONG_USAGE
        case BytemillError():
            notes = getattr(error, "__notes__", [])
            output.error("; ".join([str(error), *notes]), _for_command(error.hint, options))
        case BrokenPipeError():
            # The reader has seen enough (`| head`), which is no failure.
            output.give_up_stdout()
            return 0
        case _ if _is_out_of_memory(error):
            output.error("there is not enough memory", _memory_hint(options))
        case OSError():
            output.error(_os_message(error), "choose another path, or fix the cause and run it again")
            if error.errno in (errno.ENOSPC, errno.EIO):
                output.give_up_stdout()
        case _:
            name = type(error).__name__
            output.error(
                f"bytemill has a bug: {name}: {error}",
                "run the command again with BYTEMILL_DEBUG=1 and report what it prints",
            )
    return FAILED


def _for_command(hint: str | None, options: Set[str]) -> str | None:
    """Adapt a hint of the library to a command.

    Clauses (separated by semicolons) that name an option which the command lacks are left out, unless they name a
    command or an installer too. Python arguments beside options are left out.

    >>> hint = 'errors="replace" (--errors replace) reads it as U+FFFD; or convert the input to UTF-8'
    >>> _for_command(hint, {"--errors"})
    '--errors replace reads it as U+FFFD; or convert the input to UTF-8'
    >>> _for_command(hint, {"--file"})
    'convert the input to UTF-8'
    """
    if hint is None:
        return None
    clauses = hint.split("; ")
    if options:
        clauses = [
            each
            for each in clauses
            if re.search(r"\b(bytemill|uv|pip) ", each) or options >= set(re.findall(_OPTION, each))
        ]
    return re.sub(_PYTHON_ARGUMENTS, r"\1", "; ".join(clauses).removeprefix("or ")) or None


def _is_out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if re.search(_OUT_OF_MEMORY, str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _memory_hint(options: Set[str]) -> str:
    names = [name for name in _MEMORY_OPTIONS if name in options]
    lower = f"lower {' or '.join(names)}, " if names else ""
    return f"{lower}close other programs, or raise the memory limit of the process"


def _os_message(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _replaced_option(error: Exception) -> str | None:
    """Return the option that is unknown now and was not once."""
    from cyclopts import UnknownOptionError

    if not isinstance(error, UnknownOptionError):
        return None
    name = error.token.keyword or error.token.value.partition("=")[0]
    return name if name in _REPLACED_OPTIONS else None


def _usage_message(error: Exception) -> str:
    from cyclopts import UnknownOptionError

    if (name := _replaced_option(error)) is not None:
        return f"unknown option: {name}"
    message = str(error).rstrip(".")
    if isinstance(error, UnknownOptionError) and (name := _meant_option(error)):
        message = f"{message.partition('. Did you mean')[0]}. Did you mean {name}?"
    return message[:1].lower() + message[1:]


def _meant_option(error: "UnknownOptionError") -> str | None:
    """Return the option that was probably meant: by its last part, as others call it, or nearly spelled so."""
    import difflib

    names = [name for argument in error.argument_collection if argument.parse for name in argument.names]
    names = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]
    word = (error.token.keyword or error.token.value).partition("=")[0].replace("_", "-")
    if not word.startswith("--"):
        return None
    section, dot, last = word.removeprefix("--").rpartition(".")
    last = _OTHER_NAMES.get(last, last)
    if same := [name for name in names if name.removeprefix("--").rpartition(".")[2] == last]:
        return max(same, key=lambda name: name == f"--{section}{dot}{last}")
    close = difflib.get_close_matches(f"--{section}{dot}{last}", names, n=1)
    return close[0] if close else None


def _usage_hint(error: Exception) -> str:
    if (name := _replaced_option(error)) is not None:
        return _REPLACED_OPTIONS[name]
    chain = getattr(error, "command_chain", None) or ()
    return f"see `{' '.join([_program(), *chain, '--help'])}`"


def _program() -> str:
    return "python -m bytemill" if sys.argv[:1] and sys.argv[0].endswith("__main__.py") else "bytemill"


@contextmanager
def interruptible(hint: str | Callable[[], str]) -> Generator[None]:
    """Attach a hint to an interruption of the block.

    Args:
        hint: What to do next, or a function that returns it, called after the interruption.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(hint if isinstance(hint, str) else hint())
        raise


def resume_hint(folder: "Path") -> str:
    """Return how to continue an interrupted encoding to a folder."""
    from bytemill.data.object_store import work_folder
    from bytemill.data.unfinished import JOURNAL_NAME
    from bytemill.storage import url_of

    if (url := url_of(folder)) is not None:
        folder = work_folder(url)
    if (folder / JOURNAL_NAME).exists():
        return "run the same command again to resume from the last checkpoint"
    return "run the same command again to start over (there is no checkpoint yet)"
