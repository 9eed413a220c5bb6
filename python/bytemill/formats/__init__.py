"""Tokenizer files: one module a format."""
