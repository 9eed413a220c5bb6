"""Tokenizers: encoding, decoding, offsets, explanations, truncation."""

from bytemill.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer"]
