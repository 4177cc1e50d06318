"""Reduction of single gradients by name, for gradients that a plan's buckets do not support.

These are sparse gradients, and all gradients if the compressor is written in Python. All gradients
are also reduced by name if a rank has joined before there was a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet

import torch

from ringcomm._src.base.ops import Sum
from ringcomm._src.named.reductions import Reduction
from ringcomm._src.torch.arguments import Settings
from ringcomm._src.torch.asynchronous import operations, sparse_allreduce_async
from ringcomm._src.torch.compression import compress_by_name
from ringcomm._src.torch.slot import Slot


def _empty_sparse(parameter: torch.Tensor, sparse_dim: int) -> torch.Tensor:
    """Returns a sparse tensor of the parameter's shape without entries."""
    indices = torch.empty((sparse_dim, 0), dtype=torch.int64, device=parameter.device)
    values = torch.empty((0, *parameter.shape[sparse_dim:]), dtype=parameter.dtype, device=parameter.device)
    return torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)


class NamedGradients:
    """Reduces single gradients. `sparse`: slots with sparse gradients on some rank."""

    def __init__(self, settings: Settings, sparse: AbstractSet[Slot]) -> None:
        self._settings, self._sparse = settings, sparse

    def _is_sent_sparse(self, slot: Slot) -> bool:
        return slot in self._sparse and not self._settings.sparse_as_dense

    def start(self, slot: Slot, gradient: torch.Tensor, prefix: str = "") -> None:
        """Starts the reduction, with `prefix` in its name. `slot.collect` waits for the result."""
        settings = self._settings
        name = f"{settings.name}.{prefix}{slot.name}"
        if self._is_sent_sparse(slot):
            if not gradient.is_sparse:
                gradient = gradient.to_sparse(slot.sparse_dim or 1)
            slot.collect = sparse_allreduce_async(gradient, name, settings.op, settings.process_set)
            return
        becomes_sparse = slot in self._sparse or gradient.is_sparse
        wire, compressor = settings.by_name()
        tensor, context = compress_by_name(
            compressor, gradient.to_dense() if gradient.is_sparse else gradient, prefix + slot.name
        )
        how = Reduction(settings.op, *settings.scales(), settings.process_set, settings.algorithm, wire)
        handle = how.submit(operations.allreduce_request(how, tensor, True), name)

        def collect() -> torch.Tensor:
            result = compressor.decompress(handle.wait(), context)
            return result.to_sparse(slot.sparse_dim or 1) if becomes_sparse else result

        slot.collect = collect

    def finish(self, slots: Collection[Slot], prefix: str = "") -> dict[Slot, torch.Tensor]:
        """Returns the reduced gradients. Contributes zeros for slots that were not started."""
        for slot in slots:
            if slot.collect is None:
                self.start(slot, self._zeros(slot), prefix)
        results = {}
        for slot in slots:
            assert slot.collect is not None
            results[slot] = slot.collect()
            slot.collect = None
        return results

    def _zeros(self, slot: Slot) -> torch.Tensor:
        if self._is_sent_sparse(slot):
            return _empty_sparse(slot.like.detach(), slot.sparse_dim or 1)
        return torch.zeros_like(slot.like).detach()


def reduce_by_name(settings: Settings, slots: Sequence[Slot], sparse: Iterable[Slot]) -> None:
    """Reduces a step without a plan: sets ``.grad`` to the result where any rank has a gradient."""
    gradients = NamedGradients(settings, set(sparse))
    present = torch.tensor([slot.gradient() is not None for slot in slots], dtype=torch.int32)
    mine = f"{settings.name}.present"
    ranks_with = operations.allreduce_async_(present, name=mine, op=Sum, process_set=settings.process_set)
    for slot in slots:
        gradient = slot.gradient()
        if gradient is not None:
            gradients.start(slot, gradient)
    present_slots = [slot for slot, count in zip(slots, ranks_with.wait().tolist(), strict=True) if count]
    for slot, gradient in gradients.finish(present_slots).items():
        slot.parameter.grad = gradient
