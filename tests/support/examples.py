"""How many examples a property test draws. The profiles are in `tests/conftest.py`."""

from hypothesis import settings

few = settings(max_examples=settings().max_examples // 5)
"""For tests whose single example takes about a second: a fifth of the profile's examples."""
