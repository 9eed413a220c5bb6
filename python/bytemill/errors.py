"""Exceptions raised by bytemill."""


class BytemillError(Exception):
    """Base class of bytemill's exceptions.

    Args:
        message: What is wrong, with the offending value and its place.
        hint: What to do about it, in the imperative. The command line prints it on its own line.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class CorpusError(BytemillError, ValueError):
    """A corpus cannot be read: a missing file, no match for a glob, invalid UTF-8, or no text at all."""


class TokenizerFileError(BytemillError, ValueError):
    """A tokenizer file is damaged, has an unknown format, or needs a feature that bytemill does not support exactly."""


class TokenizerError(BytemillError, ValueError):
    """Vocabulary, merges, special tokens or options are invalid or contradict each other."""


class UnknownTokenError(TokenizerError, KeyError):
    """An id belongs to no token. Also a `KeyError`, as in tiktoken.

    Args:
        token_id: The id.
    """

    def __init__(self, token_id: int) -> None:
        super().__init__(f"no token has the id {token_id}")
        self.token_id = token_id

    def __str__(self) -> str:
        # KeyError would print the repr of the message.
        return str(self.args[0])

    def __reduce__(self) -> tuple[type["UnknownTokenError"], tuple[int]]:
        return type(self), (self.token_id,)


class SpecialTokenError(BytemillError, ValueError):
    """A text contains a disallowed special token, or a special token is unknown."""


class CurationError(BytemillError, ValueError):
    """A setting of curation is invalid, or a step would remove far more than expected."""


class ShardError(BytemillError, ValueError):
    """A folder of token shards is damaged, incomplete, or was written with another tokenizer or other settings."""


class RunConfigError(BytemillError, ValueError):
    """A setting of a language model run is unknown, has the wrong type, or contradicts another one."""


class ScalingError(BytemillError, ValueError):
    """Runs do not tell what a scaling law is asked for."""


class CheckpointError(BytemillError, ValueError):
    """A checkpoint is damaged, or belongs to another model, configuration or tokenizer."""


class CheckpointFormatError(CheckpointError):
    """A checkpoint has a format that this version does not read."""


class TrainingDivergedError(BytemillError, ArithmeticError):
    """The loss or gradient was not finite for several training steps in a row."""


class NotFiniteError(BytemillError, ArithmeticError):
    """A model computes values that are not finite, or its weights are not."""


class ProcessFailedError(BytemillError, RuntimeError):
    """A process of a training run ended with an error, was killed, or lost the connection to the others."""


class ClusterError(BytemillError, RuntimeError):
    """A cluster cannot be reached, has lost all its workers, or a part of the work failed on it."""


class DownloadError(BytemillError, OSError):
    """A download failed: no connection, an HTTP error, or a checksum that does not match."""


class OutputError(BytemillError, OSError):
    """A result cannot be written: no permission, no space, or the output already exists."""


class StorageError(BytemillError, OSError):
    """An object store cannot be reached, refuses access, has no such object, or a damaged one."""


class ModelConfigError(BytemillError, ValueError):
    """The settings of a language model are invalid or contradict each other."""


class NotEnoughMemoryError(BytemillError, MemoryError):
    """An operation does not fit into memory."""


class MissingExtraError(BytemillError, ImportError):
    """A feature needs libraries that are not installed."""


class PreTokenizerWarning(UserWarning):
    """Another program may split texts otherwise.

    An output format has no name for the tokenizer's pre-tokenizer, or the files of a folder contradict each other.
    """
