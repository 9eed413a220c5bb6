"""The tokenizer section of llama.cpp model files (GGUF)."""
