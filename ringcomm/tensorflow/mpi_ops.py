"""The operations on tensors, under Horovod's module name."""

from ringcomm._src.tensorflow.mpi_ops import *  # noqa: F403
from ringcomm._src.tensorflow.mpi_ops import __all__, _basics  # noqa: F401
