"""SentencePiece models: `.model` files."""
