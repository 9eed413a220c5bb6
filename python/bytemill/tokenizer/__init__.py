"""Tokenizers: encoding, decoding, offsets, explanations, truncation."""

from bytemill.tokenizer.tokenizer import Tokenizer, open_tokenizer

__all__ = ["Tokenizer", "open_tokenizer"]
