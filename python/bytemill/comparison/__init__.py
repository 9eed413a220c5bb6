"""Compare tokenizers on the same text, without training a model."""

from bytemill.comparison.compare import compare
from bytemill.comparison.figures import Value
from bytemill.comparison.result import Comparison

__all__ = ["Comparison", "Value", "compare"]
