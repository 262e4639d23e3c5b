"""``python -m shaderloom_runtime``: the command line, where no script is installed."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
