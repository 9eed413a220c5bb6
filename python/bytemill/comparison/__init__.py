"""Compare tokenizers on the same text, without training a model."""

from bytemill.comparison.compare import compare
from bytemill.comparison.result import Comparison
from bytemill.comparison.values import Value

__all__ = ["Comparison", "Value", "compare"]
