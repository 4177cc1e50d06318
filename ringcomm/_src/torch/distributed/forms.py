"""The two forms of arguments of torch's process group calls: lists and options, or tensors and a root.

`ProcessGroup` reads its arguments with one `Forms` object per call.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import ReduceOp

_FIELDS = {"root": "rootRank", "op": "reduceOp", "timeout": "timeout"}
_DEFAULTS = {"op": ReduceOp.SUM, "timeout": None}


def _signature(names: list[str]) -> inspect.Signature:
    """Returns a signature in which names without a default are required."""
    defaults = {**_DEFAULTS, "opts": None}
    kind, none = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    return inspect.Signature([inspect.Parameter(name, kind, default=defaults.get(name, none)) for name in names])


class Forms:
    """The two forms of one call, which takes ``*given, **named`` and reads them here. That adds no stack frame.

    Args:
        options: torch's type of options.
        lists: names of the data arguments in the form with lists.
        tensors: names of the same arguments in the form with tensors.
        fields: arguments of that form that replace the options.
    """

    def __init__(self, options: type, lists: str, tensors: str, fields: str) -> None:
        self._options, self._count = options, len(lists.split())
        self._lists = _signature([*lists.split(), "opts"])
        self._tensors = _signature([*tensors.split(), *fields.split()])
        self._renamed = dict(zip(lists.split(), tensors.split(), strict=True))

    def read(self, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Returns the lists, then the options. Raises torch's TypeError for arguments of neither form."""
        count = self._count
        if not named and len(given) > count and type(given[count]) is self._options:
            return given
        if self._are_lists(given, named):
            bound = self._lists.bind(*given, **named)
            opts = bound.arguments.pop("opts", None)
            return *bound.args, self._options() if opts is None else opts
        bound = self._tensors.bind(*given, **{self._renamed.get(name, name): value for name, value in named.items()})
        bound.apply_defaults()
        opts = self._options()
        for name, value in list(bound.arguments.items())[count:]:
            if value is not None:
                setattr(opts, _FIELDS[name], value)
        return *(self._listed(one) for one in bound.args[:count]), opts

    def _are_lists(self, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
        moved = [*given[: self._count], *named.values()]
        fields = len(given) > self._count and given[self._count] is not None
        return not (fields or named.keys() & _FIELDS.keys() or any(isinstance(one, torch.Tensor) for one in moved))

    def _listed(self, moved: Any) -> Any:
        """Returns the argument as a list. A rank that is not the root may pass an empty list."""
        return [moved] if isinstance(moved, torch.Tensor) or (self._count == 2 and moved) else moved


BROADCAST = Forms(c10d.BroadcastOptions, "tensors", "tensor", "root timeout")
ALLREDUCE = Forms(c10d.AllreduceOptions, "tensors", "tensor", "op timeout")
REDUCE = Forms(c10d.ReduceOptions, "tensors", "tensor", "root op timeout")
ALLGATHER = Forms(c10d.AllgatherOptions, "output_tensors input_tensors", "output_tensors input_tensor", "timeout")
GATHER = Forms(c10d.GatherOptions, "output_tensors input_tensors", "output_tensors input_tensor", "root timeout")
SCATTER = Forms(c10d.ScatterOptions, "output_tensors input_tensors", "output_tensor input_tensors", "root timeout")
REDUCE_SCATTER = Forms(c10d.ReduceScatterOptions, "output_tensors input_tensors", "output input", "op timeout")
BARRIER = Forms(c10d.BarrierOptions, "", "", "timeout")
