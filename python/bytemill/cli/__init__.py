"""The command line: what is asked for in words and options, said to the library, and its answer printed."""

from bytemill.cli.entry import main

__all__ = ["main"]
