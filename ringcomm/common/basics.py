"""The class of Horovod that gives a rank's identity; bindings of Horovod create one object of it."""

from ringcomm._src.named.basics import HorovodBasics

__all__ = [
    "HorovodBasics",
]
