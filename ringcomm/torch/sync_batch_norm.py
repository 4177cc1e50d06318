"""Batch normalisation over the batches of all ranks, under the name that Horovod gives it."""

from ringcomm._src.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "SyncBatchNorm",
]
