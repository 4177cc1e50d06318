"""Loaders of batches, in Horovod's form (``horovod.data``)."""

from ringcomm.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
