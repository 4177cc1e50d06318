"""Horovod's class that returns rank, size and so on. Bindings of Horovod create one object of it."""

from ringcomm._src.named.basics import HorovodBasics

__all__ = [
    "HorovodBasics",
]
