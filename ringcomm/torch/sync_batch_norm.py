"""Batch normalisation over the batches of all ranks. Named as in Horovod."""

from ringcomm._src.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "SyncBatchNorm",
]
