"""`bytemill quickstart`."""


def quickstart():
    """Run."""
