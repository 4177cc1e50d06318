"""Replaces Horovod: `ringrun --as-horovod` puts the parent folder first in the path."""

import ringcomm.as_horovod  # noqa: F401  replaces this module in sys.modules
