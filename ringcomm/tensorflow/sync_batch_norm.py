"""Batch normalisation over the batches of all ranks. Named as in Horovod."""

from ringcomm._src.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "SyncBatchNormalization",
]
