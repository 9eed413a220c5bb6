"""Changes to a finished tokenizer: what it needs to stay exact, and what a model has to be told."""
