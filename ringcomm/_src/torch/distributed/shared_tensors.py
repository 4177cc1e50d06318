"""Tensors of process groups in memory that a host's ranks share, so collectives copy nothing.

torch's allocator can take blocks from this rank's arena (shared_gradients.py). So tensors that FSDP
allocates anew in every step are in the arena after some steps. DistributedDataParallel allocates
its buckets once, so these are moved.
"""

from __future__ import annotations

from collections import Counter
from types import FrameType

import torch
from torch.autograd import graph

from ringcomm._src.core import _core
from ringcomm._src.torch import shared_gradients
from ringcomm._src.torch.slices import BIG

_ENGINE = graph._engine_run_backward.__code__ if hasattr(graph, "_engine_run_backward") else None


def is_from_reducer(caller: FrameType | None) -> bool:
    """Returns True if the caller is DistributedDataParallel's C++ reducer, during backward."""
    return caller is not None and caller.f_code is _ENGINE


class SharedTensors:
    """Moves tensors into this rank's arena."""

    MAX_BLOCKS = 8  # maximum number of blocks of one size; other tensors of this size may take some

    def __init__(self, node: _core.Node) -> None:
        self._node = node
        self._pool = shared_gradients.start_pool(node, "tensors of process groups are copied into shared memory")
        self._served: Counter[int] = Counter()
        self._refused: set[int] = set()  # sizes of buckets for which there was no memory

    def reserve_block(self, tensor: torch.Tensor) -> None:
        """Reserves a block for the next tensor of this size if this tensor is not in the arena."""
        if tensor.nbytes < BIG or self._pool is None or self.is_in_place(tensor):
            return
        nbytes = tensor.untyped_storage().nbytes()
        if self._served[nbytes] < self.MAX_BLOCKS:
            self._served[nbytes] += 1
            self._pool.serve(nbytes, 1)

    def move(self, bucket: torch.Tensor) -> None:
        """Moves a bucket and its views to the arena: resizing makes torch reallocate the storage."""
        if bucket.nbytes < BIG or self._pool is None or self.is_in_place(bucket):
            return
        storage = bucket.untyped_storage()
        nbytes = storage.nbytes()
        if nbytes in self._refused or not storage.resizable():
            return
        self._pool.serve(nbytes, 1)
        storage.resize_(nbytes)
        if not self.is_in_place(bucket):
            self._refused.add(nbytes)

    def is_in_place(self, tensor: torch.Tensor) -> bool:
        """Returns True if the tensor is in the arena, or on a device, where it stays."""
        return tensor.device.type != "cpu" or self._node.offset_of(tensor.data_ptr(), tensor.nbytes) is not None
