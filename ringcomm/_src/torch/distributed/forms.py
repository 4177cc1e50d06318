"""The two forms of arguments with which torch calls a process group.

In the first form the arguments are lists of tensors and an object of options. In the second they
are tensors, and fields of the options. `ProcessGroup` has one `Forms` object per kind of call.
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
    """Reads the arguments ``*given, **named`` of one call in either form.

    The method of the process group calls `read`. A decorator would add a stack frame between the
    method and its caller, and `is_from_reducer` examines the caller's frame.

    Parameters
    ----------
    options : type
        Torch's type of options.
    lists : str
        Names of the data arguments in the form with lists.
    tensors : str
        Names of the same arguments in the form with tensors.
    fields : str
        Arguments of the form with tensors that replace the options.
    """

    def __init__(self, options: type, lists: str, tensors: str, fields: str) -> None:
        self._options, self._count = options, len(lists.split())
        self._lists = _signature([*lists.split(), "opts"])
        self._tensors = _signature([*tensors.split(), *fields.split()])
        self._renamed = dict(zip(lists.split(), tensors.split(), strict=True))

    def read(self, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Returns the lists, then the options. Raises torch's TypeError if neither form fits."""
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
        return *(self._listed(argument) for argument in bound.args[:count]), opts

    def _are_lists(self, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
        moved = [*given[: self._count], *named.values()]
        fields = len(given) > self._count and given[self._count] is not None
        return not (
            fields or named.keys() & _FIELDS.keys() or any(isinstance(argument, torch.Tensor) for argument in moved)
        )

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
