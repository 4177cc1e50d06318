"""Tensors of process groups in memory that the ranks of a host share: there they are worked on where they lie.

Programs make them by torch's allocator, which can be served from this rank's arena (shared_gradients.py). So the
tensors that FSDP makes anew in every step come to lie there after some steps. DistributedDataParallel makes its
buckets once; these are moved.
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
    """Whether a call comes from DistributedDataParallel's core: it is the only one that backward itself makes."""
    return caller is not None and caller.f_code is _ENGINE


class SharedTensors:
    """In this rank's arena."""

    MOST = 8  # blocks of one size: a program may have other tensors of it, which take them as well

    def __init__(self, node: _core.Node) -> None:
        self._node = node
        self._pool = shared_gradients.start(node, "tensors of process groups are copied into shared memory")
        self._served: Counter[int] = Counter()
        self._refused: set[int] = set()  # sizes of buckets for which there is no memory

    def met(self, tensor: torch.Tensor) -> None:
        """A tensor in a call. If it lies elsewhere, the next one of its size need not."""
        if tensor.nbytes < BIG or self._pool is None or self.lies_here(tensor):
            return
        nbytes = tensor.untyped_storage().nbytes()
        if self._served[nbytes] < self.MOST:
            self._served[nbytes] += 1
            self._pool.serve(nbytes, 1)

    def move(self, bucket: torch.Tensor) -> None:
        """A bucket of gradients, with all of its views: to resize a storage is to allocate it anew."""
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
        """Or on a device, where nothing is to be done."""
        return tensor.device.type != "cpu" or self._node.offset_of(tensor.data_ptr(), tensor.nbytes) is not None
