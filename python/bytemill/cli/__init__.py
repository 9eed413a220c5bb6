"""The command line."""

from bytemill.cli.entry import main

__all__ = ["main"]
