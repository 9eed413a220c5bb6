"""Model types of transformers, a family of them in each file."""
