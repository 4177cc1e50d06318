"""`python -m ringcomm`: the command line under any interpreter, and under mpirun."""

import sys

from ringcomm._src.cli import main

if __name__ == "__main__":
    sys.exit(main())
