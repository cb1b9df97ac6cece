"""`python -m trace COMMAND`: the command-line tool; `trace-shift COMMAND` where the package is installed."""

import sys

from .tool.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
