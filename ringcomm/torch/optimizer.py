"""Optimizers that reduce gradients over the ranks, under the names that Horovod gives them."""

from ringcomm._src.torch.optimizer import DistributedOptimizer
from ringcomm._src.torch.reducing_optimizer import _DistributedOptimizer  # noqa: F401

__all__ = [
    "DistributedOptimizer",
]
