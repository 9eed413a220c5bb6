"""Statistics of texts and tokenizers: compression, vocabulary summaries, baselines."""
