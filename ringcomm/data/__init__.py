"""Data loaders with the interface of ``horovod.data``."""

from ringcomm.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
