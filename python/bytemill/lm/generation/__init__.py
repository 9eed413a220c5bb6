"""Text generation: sampling, decoding loops, streamed text."""

from bytemill.lm.generation.generate import generate

__all__ = ["generate"]
