"""All-reduce of sparse COO tensors: DistributedDataParallel's gradients of sparse embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.base.ops import Average, Sum
from ringcomm._src.core import _core
from ringcomm._src.torch import sparse

Tensor = torch.Tensor
Gather = Callable[[Tensor, Callable[[Tensor], None]], Any]  # (own rows, finish(rows of all ranks)): the work


class Members(Protocol):
    """The methods of a process group that this module uses."""

    def size(self) -> int: ...

    def rank(self) -> int: ...


def allreduce(
    group: Members, tensors: list[Tensor], op: Any, factor: float, gather: Gather, weights: Sequence[Tensor] = ()
) -> Any:
    """Reduces in place; returns the work. UnsupportedError unless op is Sum or Average.

    `gather` starts the gather of the ranks' packed rows. `weights`: tensors of these shapes that
    are updated with the results.
    """
    if op not in (Sum, Average):
        raise UnsupportedError(f"all_reduce of sparse tensors supports SUM and AVG, not {op.name}")
    local = [tensor.detach() for tensor in tensors]
    tables = [sparse.table_of(tensor) for tensor in local]
    own = _core.SparseTables(tables)
    entries = [sparse.entries_of(tensor) for tensor in local]
    for number, entry in enumerate(entries):
        own.add(number, entry.indices, entry.values, entry.length)
    packed = torch.empty(own.packed_bytes(1)[0] // 8, dtype=torch.int64)
    own.pack(1, group.rank(), packed.data_ptr())

    @torch.no_grad()
    def finish(blocks: Tensor) -> None:
        sums = _core.SparseTables(tables)
        sums.add_packed("all_reduce", blocks.data_ptr(), blocks.nbytes)
        divisor = group.size() if op == Average else 1
        for tensor, total in zip(tensors, sparse.written(sums, local, factor, divisor, weights), strict=True):
            tensor.data = total  # the tensor takes the memory; copy_() would copy it

    return gather(packed, finish)
