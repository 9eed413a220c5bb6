"""Hugging Face formats: `tokenizer.json`, model folders, and `tokenizers` and `transformers` objects."""
