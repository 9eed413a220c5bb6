"""Errors of the studio, each with a status of its own."""

from __future__ import annotations

from bytemill.errors import BytemillError


class NotThereError(BytemillError, LookupError):
    """What a request names was removed, renamed, or never there."""


class ChangedError(BytemillError, ValueError):
    """The files of a model or tokenizer are no longer those that a request was made for."""


class ChangingError(BytemillError, OSError):
    """Files keep changing while they are read."""


class ForgottenTextError(BytemillError, LookupError):
    """The studio has forgotten a text to make room for others, or because it was started again."""
