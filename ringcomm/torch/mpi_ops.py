"""The operations of ``ringcomm.torch``, under the name of the module that scripts written for Horovod import."""

from __future__ import annotations

from ringcomm.common.basics import HorovodBasics
from ringcomm.common.names import *  # noqa: F403
from ringcomm.common.names import __all__ as _names
from ringcomm.common.util import (
    check_extension,
    check_installed_version,
    get_average_backwards_compatibility_fun,
    gpu_available,
    num_rank_is_power_2,
)
from ringcomm.joining import join
from ringcomm.ops import chosen_op as handle_average_backwards_compatibility
from ringcomm.torch.asynchronous import poll, sparse_allreduce_async, synchronize
from ringcomm.torch.autograd import with_gradients as operations
from ringcomm.torch.compression import Compression
from ringcomm.torch.horovod_functions import (  # noqa: F401
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
