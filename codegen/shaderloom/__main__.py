"""``python -m shaderloom``: the command line, where no script is installed."""

import sys

from shaderloom.cli import main

if __name__ == "__main__":
    sys.exit(main())
