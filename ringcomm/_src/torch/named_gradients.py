"""Reduction of single gradients by name, for gradients that a plan's buckets do not support.

These are sparse gradients, and all gradients if the compressor is written in Python. All gradients
are also reduced by name if a rank has joined before there was a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import torch

from ringcomm._src.base.ops import Sum
from ringcomm._src.named.reductions import Reduction
from ringcomm._src.named.sparse_tables import Choice
from ringcomm._src.torch.arguments import Settings
from ringcomm._src.torch.asynchronous import operations
from ringcomm._src.torch.compression import compress_by_name
from ringcomm._src.torch.slot import Slot
from ringcomm._src.torch.sparse import SparseSum, from_dense


def _empty_sparse(parameter: torch.Tensor, sparse_dim: int) -> torch.Tensor:
    """Returns a sparse tensor of the parameter's shape without entries."""
    indices = torch.empty((sparse_dim, 0), dtype=torch.int64, device=parameter.device)
    values = torch.empty((0, *parameter.shape[sparse_dim:]), dtype=parameter.dtype, device=parameter.device)
    return torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)


class NamedGradients:
    """Reduces gradients by name. `sparse`: slots with sparse gradients on some rank, in order.

    Sparse gradients are reduced together, once all have been started or in `finish`.
    """

    def __init__(self, settings: Settings, sparse: Iterable[Slot]) -> None:
        self._settings, self._sparse = settings, list(sparse)
        self._tables = [] if settings.sparse_as_dense else self._sparse
        self._rows: dict[Slot, torch.Tensor] = {}  # gradients of `_tables` in this step
        self._sum: SparseSum | None = None
        self._choice = Choice()

    def begin(self) -> None:
        """Begins a step; drops what a failed step left."""
        self._rows, self._sum = {}, None

    def start(self, slot: Slot, gradient: torch.Tensor, prefix: str = "") -> None:
        """Starts the reduction, with `prefix` in its name. `finish` waits for the result."""
        settings = self._settings
        name = f"{settings.name}.{prefix}{slot.name}"
        if slot in self._tables:
            self._rows[slot] = gradient if gradient.is_sparse else from_dense(gradient, slot.sparse_dim or 1)
            if len(self._rows) == len(self._tables):
                self._start_tables(prefix)
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
            return from_dense(result, slot.sparse_dim or 1) if becomes_sparse else result

        slot.collect = collect

    def _start_tables(self, prefix: str) -> None:
        settings = self._settings
        rows = [
            self._rows[slot] if slot in self._rows else _empty_sparse(slot.like.detach(), slot.sparse_dim or 1)
            for slot in self._tables
        ]
        name, weights = f"{settings.name}.{prefix}sparse", [slot.parameter for slot in self._tables]
        self._sum = SparseSum(rows, name, settings.op, settings.process_set, self._choice, weights)

    def finish(self, slots: Collection[Slot], prefix: str = "") -> dict[Slot, torch.Tensor]:
        """Returns the reduced gradients. Contributes zeros for slots that were not started."""
        tables = [slot for slot in self._tables if slot in slots]
        if tables and self._sum is None:
            self._start_tables(prefix)
        others = [slot for slot in slots if slot not in tables]
        for slot in others:
            if slot.collect is None:
                self.start(slot, torch.zeros_like(slot.like).detach(), prefix)
        results = {}
        if self._sum is not None:
            sums = dict(zip(self._tables, self._sum.wait(), strict=True))
            results = {slot: sums[slot] for slot in tables}
            self.begin()
        for slot in others:
            assert slot.collect is not None
            results[slot] = slot.collect()
            slot.collect = None
        return results

    def add_rests(self, slots: Sequence[Slot], rests: Mapping[Slot, torch.Tensor | None]) -> None:
        """Reduces parts that ranks computed after a bucket was sent, and adds them to ``.grad``.

        `slots`: all slots of the plan. `rests`: this rank's parts.
        """
        name, process_set = f"{self._settings.name}.rest", self._settings.process_set
        mine = torch.tensor([item for item, slot in enumerate(slots) if slot in rests], dtype=torch.int64)
        items = sorted(set(operations.allgather_async(mine, name, process_set).wait().tolist()))
        late = [slots[item] for item in items]
        for slot in late:
            rest = rests.get(slot)
            if rest is not None:
                self.start(slot, rest, "rest.")
        for slot, reduced in self.finish(late, "rest.").items():
            slot.add(reduced)


def reduce_by_name(settings: Settings, slots: Sequence[Slot], sparse: Iterable[Slot]) -> None:
    """Reduces a step without a plan: sets ``.grad`` to the result where any rank has a gradient."""
    gradients = NamedGradients(settings, sparse)
    present = torch.tensor([slot.gradient() is not None for slot in slots], dtype=torch.int32)
    mine = f"{settings.name}.present"
    ranks_with = operations.allreduce_async_(present, name=mine, op=Sum, process_set=settings.process_set)
    for slot in slots:
        gradient = slot.gradient()
        if gradient is not None:
            gradients.start(slot, gradient)
    present_slots = [slot for slot, count in zip(slots, ranks_with.wait().tolist(), strict=True) if count]
    for slot, gradient in gradients.finish(present_slots).items():
        slot.set_gradient(gradient)
