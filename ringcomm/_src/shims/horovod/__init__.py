"""Replaces Horovod in programs that `ringrun --as-horovod` starts: the folder above is first in their path."""

import ringcomm.as_horovod  # noqa: F401  replaces this module in sys.modules
