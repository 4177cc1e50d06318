"""The exceptions that ringcomm raises, and which of them a job survives.

The core raises them by number: the list at the end maps its error kinds to these classes.
"""

from __future__ import annotations

from ringcomm._src.core import _core

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


class RingcommError(RuntimeError):
    """Base class of ringcomm's exceptions.

    ``ranks`` lists the ranks of the communicator or process set that caused the error. The list may
    be empty.
    """

    takes_ranks = True  # the core passes `ranks` to classes that have this attribute

    def __init__(self, message: str = "", ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class HorovodInternalError(RingcommError):
    """An operation failed at run time. Scripts written for Horovod catch this name."""


class NotInitializedError(HorovodInternalError, ValueError):
    """``init`` has not been called, or ``shutdown`` has been called since.

    In this state Horovod's queries, for example ``size()``, raise ValueError, and its operations
    raise HorovodInternalError. This class is both.
    """


class MismatchError(HorovodInternalError):
    """Ranks disagree on dtype, shape, op, root, name or splits.

    Raised on every rank, before data moves. The job continues.
    """


class RankLeftError(HorovodInternalError):
    """A rank that an operation needs has left.

    It has called ``shutdown`` or ``close``, or its script has ended. Only operations that need this
    rank fail. The job continues.
    """


class RankJoinedError(HorovodInternalError):
    """An operation needs data of a rank that has joined (a broadcast's root). The job continues."""


class ShutDownError(HorovodInternalError):
    """This rank has called ``shutdown``, or closed the communicator."""


class PeerLostError(HorovodInternalError):
    """A rank died without notice, an earlier call of a rank failed, or MPI failed.

    The error is fatal: later calls raise it too.
    """


class TransportError(PeerLostError):
    """MPI reported an error. The error is fatal: later calls raise it too."""


class InternalError(RingcommError):
    """A bug in ringcomm."""


class UnsupportedError(NotImplementedError, ValueError, TypeError):
    """Ringcomm does not support the operation for this op, dtype or array.

    Examples are a dtype without arithmetic, an Adasum of integers and a reducescatter with Adasum.
    Horovod raises RuntimeError (NotImplementedError), ValueError or TypeError, depending on the
    check that fails. This class is all three.
    """


# The order is that of ErrorKind in csrc/base/error.hpp. Bad arguments raise ValueError, as in
# Horovod.
_core.set_error_types(
    (
        InternalError,
        ValueError,
        MismatchError,
        RankLeftError,
        RankJoinedError,
        ShutDownError,
        PeerLostError,
        TransportError,
        KeyboardInterrupt,
    )
)


# Names of errors that a rank raises because another rank failed first.
CONSEQUENCES = ("PeerLostError", "RankLeftError", "ShutDownError")
