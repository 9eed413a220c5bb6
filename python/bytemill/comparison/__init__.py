"""Compare tokenizers on the same text, without training a model."""

from bytemill.comparison.figures import Value
from bytemill.comparison.run import Comparison, compare

__all__ = ["Comparison", "Value", "compare"]
