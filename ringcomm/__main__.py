"""Runs the command line as `python -m ringcomm`, under any interpreter, and under mpirun."""

import sys

from ringcomm._src.cli import main

if __name__ == "__main__":
    sys.exit(main())
