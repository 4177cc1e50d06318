"""`python -m ringcomm.launch`: ringrun under any interpreter."""

import sys

from ringcomm.launch import main

if __name__ == "__main__":
    sys.exit(main())
