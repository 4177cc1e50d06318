"""The autograd functions under Horovod's names, with the arguments of its ``apply``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringcomm._src.base.ops import Average, chosen_op
from ringcomm._src.named.reductions import Reduction
from ringcomm._src.torch.autograd import Allgather, Allreduce, Alltoall, Broadcast, Reducescatter


def _named_as_in_horovod(name: str, function: Any, arranged: Callable[..., tuple[Any, ...]]) -> Any:
    def apply(*arguments: Any) -> Any:
        result = function.run(*arranged(*arguments))
        return result[0] if function is Alltoall and arguments[1] is None else result

    return type(name, (function,), {"apply": staticmethod(apply), "__doc__": function.__doc__, "__module__": __name__})


HorovodAllreduce = _named_as_in_horovod(
    "HorovodAllreduce",
    Allreduce,
    lambda tensor, average, name, op, *how: (False, name, Reduction(chosen_op(op, average), *how), tensor),
)
HorovodGroupedAllreduce = _named_as_in_horovod(
    "HorovodGroupedAllreduce",
    Allreduce,
    lambda average, name, op, pre, post, process_set, *tensors: (
        *(True, name, Reduction(chosen_op(op, average), pre, post, process_set)),
        *tensors,
    ),
)
HorovodAllgather = _named_as_in_horovod(
    "HorovodAllgather", Allgather, lambda tensor, name, process_set: (Average, False, name, process_set, None, tensor)
)
HorovodGroupedAllgather = _named_as_in_horovod(
    "HorovodGroupedAllgather",
    Allgather,
    lambda name, process_set, *tensors: (Average, True, name, process_set, None, *tensors),
)
HorovodBroadcast = _named_as_in_horovod(
    "HorovodBroadcast", Broadcast, lambda tensor, root, name, process_set: (root, name, process_set, None, tensor)
)
HorovodAlltoall = _named_as_in_horovod(
    "HorovodAlltoall", Alltoall, lambda tensor, splits, name, process_set: (splits, name, process_set, None, tensor)
)
HorovodReducescatter = _named_as_in_horovod(
    "HorovodReducescatter",
    Reducescatter,
    lambda tensor, name, op, process_set, pre, post: (False, name, Reduction(op, pre, post, process_set), tensor),
)
HorovodGroupedReducescatter = _named_as_in_horovod(
    "HorovodGroupedReducescatter",
    Reducescatter,
    lambda name, op, process_set, pre, post, *tensors: (True, name, Reduction(op, pre, post, process_set), *tensors),
)
