"""Tokenizer files, one module per format."""
