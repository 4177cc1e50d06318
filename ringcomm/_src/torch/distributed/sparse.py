"""All-reduce of sparse COO tensors: DistributedDataParallel's gradients of sparse embeddings."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.base.ops import Average, Sum

Tensor = torch.Tensor


class Gathers(Protocol):
    """The methods of a process group that this module uses."""

    def size(self) -> int: ...

    def allgather(self, *given: Any, **named: Any) -> Any: ...


def allreduce(group: Gathers, tensors: list[Tensor], op: Any) -> None:
    """Reduces in place by gathering all entries. UnsupportedError unless op is Sum or Average."""
    if op not in (Sum, Average):
        raise UnsupportedError(f"all_reduce of sparse tensors supports SUM and AVG, not {op.name}")
    for tensor in tensors:
        local = tensor.detach().coalesce()
        counts = [torch.empty(1, dtype=torch.int64) for _ in range(group.size())]
        group.allgather([counts], [torch.tensor([local._nnz()])]).wait()
        entries = [int(count) for count in counts]
        parts = []
        for dense in (local.indices().t(), local.values()):
            gathered = [dense.new_empty((n, *dense.shape[1:])) for n in entries]
            group.allgather([gathered], [dense.contiguous()]).wait()
            parts.append(torch.cat(gathered))
        values = parts[1] / group.size() if op == Average else parts[1]
        total = torch.sparse_coo_tensor(parts[0].t(), values.to(tensor.dtype), tensor.shape, check_invariants=False)
        with torch.no_grad():
            tensor.copy_(total.coalesce())
