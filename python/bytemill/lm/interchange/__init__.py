"""Weights in and out: import models of other programs, and export models to them."""
