"""The operations of ``ringcomm.torch``, under the names that Horovod gives them."""

from __future__ import annotations

from ringcomm._src.base.ops import chosen_op as handle_average_backwards_compatibility
from ringcomm._src.named.basics import HorovodBasics
from ringcomm._src.named.build import (
    check_extension,
    check_installed_version,
    get_average_backwards_compatibility_fun,
    gpu_available,
    num_rank_is_power_2,
)
from ringcomm._src.named.joining import join
from ringcomm._src.named.names import *  # noqa: F403
from ringcomm._src.named.names import __all__ as _names
from ringcomm._src.torch.asynchronous import poll, sparse_allreduce_async, synchronize
from ringcomm._src.torch.autograd import with_gradients as operations
from ringcomm._src.torch.compression import Compression
from ringcomm._src.torch.horovod_functions import (
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
)

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
    "Compression",
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce",
    "HorovodGroupedReducescatter",
    "HorovodReducescatter",
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
    "check_extension",
    "check_installed_version",
    "get_average_backwards_compatibility_fun",
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
    "join",
    "num_rank_is_power_2",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
    *_names,
]
