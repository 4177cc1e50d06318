"""The autograd functions under Horovod's names, with the arguments of its ``apply``.

Users call ``hvd.allreduce`` and so on, which are differentiable too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringcomm._src.base.ops import Average, chosen_op
from ringcomm._src.named.reductions import Reduction
from ringcomm._src.torch.autograd import Allgather, Allreduce, Alltoall, Broadcast, Reducescatter


def _horovod_function(name: str, function: Any, arranged: Callable[..., tuple[Any, ...]], example: str) -> Any:
    def apply(*arguments: Any) -> Any:
        result = function.run(*arranged(*arguments))
        return result[0] if function is Alltoall and arguments[1] is None else result

    text = f"{function.__doc__}\n\nExamples\n--------\n{example}"
    return type(name, (function,), {"apply": staticmethod(apply), "__doc__": text, "__module__": __name__})


HorovodAllreduce = _horovod_function(
    "HorovodAllreduce",
    Allreduce,
    lambda tensor, average, name, op, *how: (False, name, Reduction(chosen_op(op, average), *how), tensor),
    """>>> everyone = hvd.global_process_set
>>> hvd.HorovodAllreduce.apply(torch.ones(2), None, None, hvd.Sum, 1.0, 1.0, everyone).tolist()
[2.0, 2.0]""",
)
HorovodGroupedAllreduce = _horovod_function(
    "HorovodGroupedAllreduce",
    Allreduce,
    lambda average, name, op, pre, post, process_set, *tensors: (
        *(True, name, Reduction(chosen_op(op, average), pre, post, process_set)),
        *tensors,
    ),
    """>>> everyone = hvd.global_process_set
>>> x, y = torch.ones(2), torch.zeros(2)
>>> results = hvd.HorovodGroupedAllreduce.apply(None, None, hvd.Sum, 1.0, 1.0, everyone, x, y)
>>> [tensor.tolist() for tensor in results]
[[2.0, 2.0], [0.0, 0.0]]""",
)
HorovodAllgather = _horovod_function(
    "HorovodAllgather",
    Allgather,
    lambda tensor, name, process_set: (Average, False, name, process_set, None, tensor),
    """>>> hvd.HorovodAllgather.apply(torch.tensor([rank]), None, hvd.global_process_set).tolist()
[0, 1]""",
)
HorovodGroupedAllgather = _horovod_function(
    "HorovodGroupedAllgather",
    Allgather,
    lambda name, process_set, *tensors: (Average, True, name, process_set, None, *tensors),
    """>>> x, y = torch.tensor([rank]), torch.tensor([-rank])
>>> results = hvd.HorovodGroupedAllgather.apply(None, hvd.global_process_set, x, y)
>>> [tensor.tolist() for tensor in results]
[[0, 1], [0, -1]]""",
)
HorovodBroadcast = _horovod_function(
    "HorovodBroadcast",
    Broadcast,
    lambda tensor, root, name, process_set: (root, name, process_set, None, tensor),
    """>>> hvd.HorovodBroadcast.apply(torch.tensor([rank]), 1, None, hvd.global_process_set).tolist()
[1]""",
)
HorovodAlltoall = _horovod_function(
    "HorovodAlltoall",
    Alltoall,
    lambda tensor, splits, name, process_set: (splits, name, process_set, None, tensor),
    """>>> rows = hvd.HorovodAlltoall.apply(torch.tensor([0, 1]), None, None, hvd.global_process_set)
>>> bool((rows == rank).all())
True""",
)
HorovodReducescatter = _horovod_function(
    "HorovodReducescatter",
    Reducescatter,
    lambda tensor, name, op, process_set, pre, post: (False, name, Reduction(op, pre, post, process_set), tensor),
    """>>> everyone = hvd.global_process_set
>>> hvd.HorovodReducescatter.apply(torch.ones(2), None, hvd.Sum, everyone, 1.0, 1.0).tolist()
[2.0]""",
)
HorovodGroupedReducescatter = _horovod_function(
    "HorovodGroupedReducescatter",
    Reducescatter,
    lambda name, op, process_set, pre, post, *tensors: (True, name, Reduction(op, pre, post, process_set), *tensors),
    """>>> everyone = hvd.global_process_set
>>> x, y = torch.ones(2), torch.zeros(2)
>>> results = hvd.HorovodGroupedReducescatter.apply(None, hvd.Sum, everyone, 1.0, 1.0, x, y)
>>> [tensor.tolist() for tensor in results]
[[2.0], [0.0]]""",
)
