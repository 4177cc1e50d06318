"""Found first by programs that `ringrun --as-horovod` starts, for the folder above is in front of their path."""

import ringcomm.as_horovod  # noqa: F401  takes this module's place
