"""Steps of any torch optimizer at dedicated servers of a ParameterServer.

The store applies common rules natively. For other optimizers, the servers' scripts take the steps
in Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ringcomm._src.core import _core
from ringcomm._src.decentralized.shards import Shards, whole
from ringcomm._src.decentralized.store import Store
from ringcomm._src.torch.relaxed.replica import TensorReplica


class _Part:
    """The tensors of one parameter group that are in this rank's shard, each of them completely."""

    def __init__(self, shards: Shards, parameters: list[torch.Tensor]) -> None:
        own = shards.own()
        assert own is not None and shards.mine is not None
        part, at = shards.parts[shards.mine], 0
        self.own, self.parameters = own, list[torch.Tensor]()
        for one in parameters:
            if part.start <= at < part.stop:
                self.parameters.append(one)
            at += TensorReplica.count(one)
        self.replica = TensorReplica(self.parameters) if self.parameters else None
        self.sum = np.empty(part.stop - part.start, np.float32 if self.replica is None else self.replica.dtype)

    def claim(self) -> int:
        return self.own.shard.claim(self.own.clocks, self.sum.ctypes.data)

    def replace(self) -> None:
        """Replaces the shard's weights by the result of the step, and wakes the ranks that wait."""
        if self.replica is not None:
            self.replica.read(0, self.sum)
        self.own.apply(_core.RuleOptions("put"), whole(len(self.sum)), (self.sum, None, None))
        self.own.shard.release()
        self.own.clocks.wake()


def serve(optimizer: Any, store: Store) -> None:
    """Takes the optimizer's step with the gradients of the workers, until all have finished.

    The options of the optimizer are this rank's.
    """
    parts = [_Part(shards, group["params"]) for shards, group in zip(store.shards, optimizer.param_groups, strict=True)]
    clocks = parts[0].own.clocks
    while True:
        seen, over = clocks.ticks(), clocks.live() == 0
        claimed = [(part, many) for part in parts if (many := part.claim())]
        for part, many in claimed:
            for one in (one for group in optimizer.param_groups for one in group["params"]):
                one.grad = None
            if part.replica is not None:
                part.sum /= many
                part.replica.write_gradients(part.sum)
                optimizer._base.step(optimizer)
            part.replace()
        if not claimed:
            if over and not any(part.own.shard.gathers_now() for part in parts):
                return
            store.workers.sleep(clocks, seen)
            store.workers.check()
