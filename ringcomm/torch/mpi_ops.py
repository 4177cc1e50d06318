"""The operations of ``ringcomm.torch``, under the name of the module that scripts written for Horovod import."""

from __future__ import annotations

from ringcomm.common.basics import HorovodBasics
from ringcomm.common.util import (
    ccl_built,
    check_extension,
    check_installed_version,
    cuda_built,
    ddl_built,
    get_average_backwards_compatibility_fun,
    gloo_built,
    gloo_enabled,
    gpu_available,
    mpi_built,
    mpi_enabled,
    nccl_built,
    num_rank_is_power_2,
    rocm_built,
)
from ringcomm.errors import HorovodInternalError
from ringcomm.joining import join
from ringcomm.ops import Adasum, Average, Max, Min, Product, Sum
from ringcomm.ops import chosen_op as handle_average_backwards_compatibility
from ringcomm.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ringcomm.runtime import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_threads_supported,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from ringcomm.torch.asynchronous import poll, sparse_allreduce_async, synchronize
from ringcomm.torch.autograd import (  # noqa: F401
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
)
from ringcomm.torch.compression import Compression
from ringcomm.torch.synchronous import operations

allgather = operations.allgather
allgather_async = operations.allgather_async
allreduce = operations.allreduce
allreduce_ = operations.allreduce_
allreduce_async = operations.allreduce_async
allreduce_async_ = operations.allreduce_async_
alltoall = operations.alltoall
alltoall_async = operations.alltoall_async
barrier = operations.barrier
broadcast = operations.broadcast
broadcast_ = operations.broadcast_
broadcast_async = operations.broadcast_async
broadcast_async_ = operations.broadcast_async_
grouped_allgather = operations.grouped_allgather
grouped_allgather_async = operations.grouped_allgather_async
grouped_allreduce = operations.grouped_allreduce
grouped_allreduce_ = operations.grouped_allreduce_
grouped_allreduce_async = operations.grouped_allreduce_async
grouped_allreduce_async_ = operations.grouped_allreduce_async_
grouped_reducescatter = operations.grouped_reducescatter
grouped_reducescatter_async = operations.grouped_reducescatter_async
reducescatter = operations.reducescatter
reducescatter_async = operations.reducescatter_async
_basics = HorovodBasics()

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
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
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "get_average_backwards_compatibility_fun",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "num_rank_is_power_2",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
