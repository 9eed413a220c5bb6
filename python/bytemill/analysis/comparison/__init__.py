"""Figures that compare tokenizers: how they are computed, and how certain they are."""
