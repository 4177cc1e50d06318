"""Batch normalisation over the batches of all ranks, under Horovod's module name."""

from ringcomm._src.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "SyncBatchNormalization",
]
