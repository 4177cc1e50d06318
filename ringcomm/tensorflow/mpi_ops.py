"""The operations on tensors. Named as in Horovod."""

from ringcomm._src.tensorflow.mpi_ops import *  # noqa: F403
from ringcomm._src.tensorflow.mpi_ops import __all__, _basics  # noqa: F401
