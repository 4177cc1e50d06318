"""The exceptions that ringcomm raises, and which of them a job survives."""

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
    """Base of everything that ringcomm raises on its own account.

    ``ranks`` lists whom it is about (ranks of the communicator or process set), and may be empty.
    """

    takes_ranks = True  # tells the core to pass them

    def __init__(self, message: str = "", ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class HorovodInternalError(RingcommError):
    """An operation failed at run time: the name that scripts written for Horovod catch."""


class NotInitializedError(HorovodInternalError, ValueError):
    """``init`` has not been called, or ``shutdown`` since.

    In Horovod ``size()`` and its like raise ValueError then, and operations HorovodInternalError; this is both.
    """


class MismatchError(HorovodInternalError):
    """Ranks disagree on dtype, shape, op, root, name or splits. On every rank, before data moves; the job lives."""


class RankLeftError(HorovodInternalError):
    """A rank that an operation needs has called ``shutdown`` or ended its script. The job lives."""


class RankJoinedError(HorovodInternalError):
    """An operation needs data of a rank that has joined: it was to be a broadcast's root. The job lives."""


class ShutDownError(HorovodInternalError):
    """This rank has shut down, or closed the communicator."""


class PeerLostError(HorovodInternalError):
    """A rank died or MPI failed after data began to move. Fatal: later calls raise it too."""


class TransportError(PeerLostError):
    """MPI reported an error. Fatal."""


class InternalError(RingcommError):
    """A bug in ringcomm."""


class UnsupportedError(NotImplementedError, ValueError, TypeError):
    """There is no such operation for this op or dtype, on any rank: a dtype without arithmetic, an Adasum of integers,
    a reducescatter by Adasum.

    Horovod refuses with RuntimeError (NotImplementedError), ValueError or TypeError, by the place that notices; this
    is all of them.
    """


# In the order of ErrorKind in csrc/base/error.hpp. Bad arguments are ValueError, as in Horovod.
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


# Names of errors that a rank raises because another rank has failed before.
CONSEQUENCES = ("PeerLostError", "RankLeftError", "ShutDownError")
