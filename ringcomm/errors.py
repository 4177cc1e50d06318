"""The exceptions of ringcomm, and what each means for the ranks that get it."""

from ringcomm._src.base.errors import (
    HorovodInternalError,
    InternalError,
    MismatchError,
    NotInitializedError,
    PeerLostError,
    RankJoinedError,
    RankLeftError,
    RingcommError,
    ShutDownError,
    TransportError,
    UnsupportedError,
)

__all__ = [
    "HorovodInternalError",
    "InternalError",
    "MismatchError",
    "NotInitializedError",
    "PeerLostError",
    "RankJoinedError",
    "RankLeftError",
    "RingcommError",
    "ShutDownError",
    "TransportError",
    "UnsupportedError",
]

for _name in __all__:  # tracebacks name them as users import them
    globals()[_name].__module__ = __name__
