"""ringcomm: collective communication for training, over any MPI.

Two ways in::

    comm = ringcomm.Communicator(MPI.COMM_WORLD)                     # ordered calls: MPI's semantics, lowest latency
    y = comm.allreduce(x, op=ringcomm.Sum, algorithm="ring")

    ringcomm.init()                                                  # named operations: any order, fused, checked
    h = ringcomm.allreduce_async(g, name="layer1.weight")
    y = ringcomm.synchronize(h)

Framework bindings: ``import ringcomm.torch as hvd``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringcomm import algorithms, errors, threads, updates
from ringcomm._core import ANY_SOURCE, ANY_TAG, PROC_NULL, MessageRequest, Status
from ringcomm.accounts import OperationStats, Stats, stats
from ringcomm.algorithms import register_algorithm
from ringcomm.collectives import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    poll,
    reducescatter,
    reducescatter_async,
    synchronize,
)
from ringcomm.communicator import Communicator
from ringcomm.compression import Compression, Feedback
from ringcomm.config import Config
from ringcomm.errors import (
    HorovodInternalError,
    InternalError,
    MismatchError,
    NotInitializedError,
    PeerLostError,
    RankJoinedError,
    RankLeftError,
    RingcommError,
    ShutDownError,
    TransportError,
    UnsupportedError,
)
from ringcomm.handles import Handle
from ringcomm.joining import join
from ringcomm.ops import (
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAXLOC,
    MINLOC,
    Adasum,
    Average,
    Max,
    Min,
    Op,
    Product,
    Sum,
)
from ringcomm.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ringcomm.relaxed.averager import (
    EagerAverager,
    ElasticAverager,
    GossipAverager,
    GroupAverager,
    OuterStep,
    PeriodicAverager,
)
from ringcomm.relaxed.consistency import SSP, Async, Backup, Consistency, SoftSync, Sync
from ringcomm.relaxed.parameter_store import ParameterStore
from ringcomm.run_function import run
from ringcomm.runtime import (
    communicator,
    cross_rank,
    cross_size,
    empty,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_threads_supported,
    rank,
    shared_arrays,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from ringcomm.topology import Topology, register_topology
from ringcomm.version import __version__

if TYPE_CHECKING:
    from ringcomm.device.array import DeviceArray

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "BAND",
    "BOR",
    "BXOR",
    "LAND",
    "LOR",
    "LXOR",
    "MAXLOC",
    "MINLOC",
    "PROC_NULL",
    "SSP",
    "Adasum",
    "Async",
    "Average",
    "Backup",
    "Communicator",
    "Compression",
    "Config",
    "Consistency",
    "DeviceArray",
    "EagerAverager",
    "ElasticAverager",
    "Feedback",
    "GossipAverager",
    "GroupAverager",
    "Handle",
    "HorovodInternalError",
    "InternalError",
    "Max",
    "MessageRequest",
    "Min",
    "MismatchError",
    "NotInitializedError",
    "Op",
    "OperationStats",
    "OuterStep",
    "ParameterStore",
    "PeerLostError",
    "PeriodicAverager",
    "ProcessSet",
    "Product",
    "RankJoinedError",
    "RankLeftError",
    "RingcommError",
    "ShutDownError",
    "SoftSync",
    "Stats",
    "Status",
    "Sum",
    "Sync",
    "Topology",
    "TransportError",
    "UnsupportedError",
    "__version__",
    "add_process_set",
    "algorithms",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "communicator",
    "cross_rank",
    "cross_size",
    "empty",
    "errors",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_threads_supported",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "register_algorithm",
    "register_topology",
    "remove_process_set",
    "run",
    "shared_arrays",
    "shutdown",
    "size",
    "start_timeline",
    "stats",
    "stop_timeline",
    "synchronize",
    "threads",
    "updates",
]


def __getattr__(name: str) -> Any:
    """What concerns GPUs is imported when it is first used."""
    if name == "DeviceArray":
        from ringcomm.device.array import DeviceArray

        return DeviceArray
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
