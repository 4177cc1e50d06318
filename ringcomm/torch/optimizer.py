"""Optimizers that average gradients. Named as in Horovod."""

from ringcomm._src.torch.optimizer import DistributedOptimizer, _DistributedOptimizer  # noqa: F401

__all__ = [
    "DistributedOptimizer",
]
