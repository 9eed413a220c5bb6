"""Mixers other than attention: one module each, with its forward pass, its state and its counts."""
