"""`python -m bytemill` runs the command line."""

import sys

from bytemill.cli import main

if __name__ == "__main__":
    sys.exit(main())
