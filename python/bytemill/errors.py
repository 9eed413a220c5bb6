"""Exceptions that name the offending thing and say what to do about it."""


class BytemillError(Exception):
    """Base of the errors that bytemill raises on its own account.

    `hint` is one sentence that says what to do; the command line prints it on a line of its own.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class CorpusError(BytemillError, ValueError):
    """A corpus cannot be read: a folder where a file is needed, nothing matches, not UTF-8, nothing in it."""


class TokenizerFileError(BytemillError, ValueError):
    """A tokenizer file is damaged, of no known format, or asks for what bytemill cannot do exactly."""


class TokenizerError(BytemillError, ValueError):
    """Vocabulary, merges, special tokens or options contradict each other."""


class SpecialTokenError(BytemillError, ValueError):
    """A text holds a special token where none is allowed, or an unknown special token was named."""


class ShardError(BytemillError, ValueError):
    """A folder of token shards is damaged, incomplete, or belongs to another tokenizer or other settings."""


class RunConfigError(BytemillError, ValueError):
    """A setting of a language model's run is unknown, of the wrong type, or contradicts another one."""


class CheckpointError(BytemillError, ValueError):
    """A checkpoint is damaged, or belongs to another model, configuration or tokenizer."""


class TrainingDivergedError(BytemillError, ArithmeticError):
    """Several steps of training in a row had a loss or a gradient that is not finite."""


class DownloadError(BytemillError, OSError):
    """A file cannot be fetched: no connection, the server refuses, or it has another file than was published."""


class OutputError(BytemillError, OSError):
    """A result cannot be written: no permission, no space, or something of that name is there already."""


class ModelConfigError(BytemillError, ValueError):
    """A language model's settings are impossible or contradict each other."""


class NotEnoughMemoryError(BytemillError, MemoryError):
    """An operation does not fit into memory."""


class MissingExtraError(BytemillError, ImportError):
    """A part of bytemill was asked for whose libraries are not installed."""


class PreTokenizerWarning(UserWarning):
    """A tokenizer was written for a tool that has no name for the way in which it splits texts."""
