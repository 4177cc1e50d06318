"""Who and where a rank is, as the class that bindings of Horovod make one object of."""

from ringcomm._src.named.basics import HorovodBasics

__all__ = [
    "HorovodBasics",
]
