"""Tensors of process groups in memory that the ranks of a host share, so that collectives work on them in place.

torch's allocator, which programs use, can be served from this rank's arena (shared_gradients.py).
Tensors that FSDP allocates in every step are therefore in the arena after some steps.
DistributedDataParallel allocates its buckets once; these are moved.
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
    """Returns True for a call from DistributedDataParallel's core: only that is called by backward itself."""
    return caller is not None and caller.f_code is _ENGINE


class SharedTensors:
    """Moves tensors into this rank's arena."""

    MOST = 8  # most blocks of one size: other tensors of a program may take some of them

    def __init__(self, node: _core.Node) -> None:
        self._node = node
        self._pool = shared_gradients.start(node, "tensors of process groups are copied into shared memory")
        self._served: Counter[int] = Counter()
        self._refused: set[int] = set()  # sizes of buckets for which there was no memory

    def met(self, tensor: torch.Tensor) -> None:
        """Called for each tensor of a call. If it is elsewhere, provides a block for the next one of its size."""
        if tensor.nbytes < BIG or self._pool is None or self.lies_here(tensor):
            return
        nbytes = tensor.untyped_storage().nbytes()
        if self._served[nbytes] < self.MOST:
            self._served[nbytes] += 1
            self._pool.serve(nbytes, 1)

    def move(self, bucket: torch.Tensor) -> None:
        """Moves a bucket of gradients with all its views: resizing a storage allocates it anew."""
        if bucket.nbytes < BIG or self._pool is None or self.lies_here(bucket):
            return
        storage = bucket.untyped_storage()
        nbytes = storage.nbytes()
        if nbytes in self._refused or not storage.resizable():
            return
        self._pool.serve(nbytes, 1)
        storage.resize_(nbytes)
        if not self.lies_here(bucket):
            self._refused.add(nbytes)

    def lies_here(self, tensor: torch.Tensor) -> bool:
        """Returns True if the tensor is in the arena, or on a device, where there is nothing to do."""
        return tensor.device.type != "cpu" or self._node.offset_of(tensor.data_ptr(), tensor.nbytes) is not None
