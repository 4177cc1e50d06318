"""What a binding of another framework is made of; docs/writing-a-binding.md shows one.

Two doors lead to the collectives. A :class:`Kind` says where the memory of a framework's arrays is: then every function
of ringcomm takes such arrays and gives such results. A *site* is one collective of a graph that is built once and run
often: :func:`make_site` when it is built, :func:`run_site` at every run, or C's functions in place of that.
"""

from ringcomm._src.arrays.arrays import register_kind
from ringcomm._src.arrays.buffers import Buffer, Kind
from ringcomm._src.arrays.numpy_kind import NumPyKind
from ringcomm._src.calls.calls import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from ringcomm._src.core._core import Site, site_functions
from ringcomm._src.named.sites import Description, Reduce
from ringcomm._src.named.sites import make as make_site
from ringcomm._src.named.sites import run as run_site

__all__ = [
    "ALLGATHER",
    "ALLREDUCE",
    "ALLTOALL",
    "BROADCAST",
    "REDUCESCATTER",
    "Buffer",
    "Description",
    "Kind",
    "NumPyKind",
    "Reduce",
    "Site",
    "make_site",
    "register_kind",
    "run_site",
    "site_functions",
]
