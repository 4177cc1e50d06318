"""The class HorovodBasics, by which libraries written for Horovod query ranks and builds."""

from __future__ import annotations

from ringcomm._src.base import ops
from ringcomm._src.named import build as util
from ringcomm._src.named import runtime

_QUESTIONS = ("size", "local_size", "cross_size", "rank", "local_rank", "cross_rank", "is_homogeneous")
_RUNTIME = ("init", "shutdown", "is_initialized", "start_timeline", "stop_timeline", "mpi_threads_supported")
_BUILT = ("mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built", "nccl_built", "ddl_built", "ccl_built")
_DEVICES = ("cuda_built", "rocm_built")


class HorovodBasics:
    """The functions and reduction ops of `ringcomm` as attributes. Arguments are ignored.

    Examples
    --------
    >>> from ringcomm.common.basics import HorovodBasics
    >>> HorovodBasics("horovod.torch").size()
    2
    """

    def __init__(self, pkg_path: str = "", *args: object) -> None:
        for name in _QUESTIONS + _RUNTIME:
            setattr(self, name, getattr(runtime, name))
        for name in _BUILT + _DEVICES:
            setattr(self, name, getattr(util, name))
        for name, op in ops.Op.__members__.items():
            setattr(self, name, op)
