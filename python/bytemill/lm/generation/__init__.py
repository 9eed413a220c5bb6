"""Text generation: sampling, decoding loops, streamed text."""

from bytemill.lm.generation.decoding import generate

__all__ = ["generate"]
