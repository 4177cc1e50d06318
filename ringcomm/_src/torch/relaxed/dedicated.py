"""Steps of any torch optimizer at dedicated servers of a ParameterServer.

The store applies the update rules of common optimizers natively. For other optimizers, the scripts
of the servers take the steps in Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ringcomm._src.core import _core
from ringcomm._src.decentralized.shards import Shards, full_range
from ringcomm._src.decentralized.store import Store
from ringcomm._src.torch.relaxed.replica import TensorReplica


class _GroupShard:
    """The tensors of one parameter group in this rank's shard, which has complete tensors only."""

    def __init__(self, shards: Shards, parameters: list[torch.Tensor]) -> None:
        own = shards.own_shard()
        assert own is not None and shards.own_index is not None
        part, at = shards.parts[shards.own_index], 0
        self.own, self.parameters = own, list[torch.Tensor]()
        for parameter in parameters:
            if part.start <= at < part.stop:
                self.parameters.append(parameter)
            at += TensorReplica.count(parameter)
        self.replica = TensorReplica(self.parameters) if self.parameters else None
        self.sum = np.empty(part.stop - part.start, np.float32 if self.replica is None else self.replica.dtype)

    def claim(self) -> int:
        return self.own.shard.claim(self.own.clocks, self.sum.ctypes.data)

    def replace(self) -> None:
        """Replaces the shard's weights by the result of the step, and wakes the ranks that wait."""
        if self.replica is not None:
            self.replica.read(0, self.sum)
        self.own.apply(_core.RuleOptions("put"), full_range(len(self.sum)), (self.sum, None, None))
        self.own.shard.release()
        self.own.clocks.wake()


def serve(optimizer: Any, store: Store) -> None:
    """Takes the optimizer's step with the gradients of the workers, until all have finished.

    The steps use the options of this rank's optimizer.
    """
    parts = [
        _GroupShard(shards, group["params"]) for shards, group in zip(store.shards, optimizer.param_groups, strict=True)
    ]
    clocks = parts[0].own.clocks
    while True:
        seen, over = clocks.ticks(), clocks.live() == 0
        claimed = [(part, count) for part in parts if (count := part.claim())]
        for part, count in claimed:
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                parameter.grad = None
            if part.replica is not None:
                part.sum /= count
                part.replica.write_gradients(part.sum)
                optimizer._base.step(optimizer)
            part.replace()
        if not claimed:
            if over and not any(part.own.shard.gathers_now() for part in parts):
                return
            store.workers.sleep(clocks, seen)
            store.workers.check()
