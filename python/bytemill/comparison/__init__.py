"""Compare tokenizers on the same text, without training a model."""

from bytemill.comparison.figures import Value
from bytemill.comparison.result import Comparison
from bytemill.comparison.run import compare

__all__ = ["Comparison", "Value", "compare"]
