"""Point-to-point messages of arrays, as in MPI (MPI 4.1, chapter 3)."""

from __future__ import annotations

import sys
from typing import Any

from ringcomm._src.arrays import arrays
from ringcomm._src.arrays.device.messages import DeviceMessageRequest, NeedsStaging, copy_to_host
from ringcomm._src.base.errors import MismatchError
from ringcomm._src.communicator.call_base import Calls
from ringcomm._src.config.config import Config
from ringcomm._src.core import _core
from ringcomm._src.core._core import ANY_SOURCE, ANY_TAG, MessageRequest, Status
from ringcomm._src.platform.links import Link

MAX_LINES = 5  # maximum number of leftover messages in one error
_PIECE_SECONDS, _PIECES = 2e-3, (48 << 10, 32 << 20)  # seconds to transfer a piece; limits of its size in bytes


def describe(array: Any, written: bool) -> tuple[int, int, Any, bool]:
    """Returns (address, bytes, owner of the memory, True if the description may be cached).

    `written`: a message will be received into the array. If not, a GPU array is copied to host
    memory. A GPU array that will be written raises NeedsStaging.
    """
    buffer = arrays.target(array) if written else arrays.source(array)
    if written and buffer.copied:
        raise ValueError("an array to receive into must be C-contiguous; receive into a contiguous array and copy it")
    if buffer.place is not None:
        if written:
            raise NeedsStaging(buffer)
        host = copy_to_host(buffer)
        return host.ctypes.data, host.nbytes, host, False
    return buffer.address, buffer.count * _core.ITEM_SIZES[buffer.dtype], buffer, buffer.array is array


def open_messages(
    link: Link, node: _core.Node | None, spin_ns: int, own_core: bool, config: Config, account: _core.Account
) -> _core.Messages:
    """Opens the messages of a communicator.

    ``own_core``: the worker does not share its core with callers. ``config``: identical on all
    ranks, because all ranks must divide messages into pieces of the same size.
    """
    min_piece, max_piece = _PIECES
    piece = max(min_piece, min(max_piece, int(_PIECE_SECONDS / config.beta))) if config.beta > 0 else max_piece
    ranks_on_host = list(link.topology.host) if node is not None else []
    all_on_host = len(ranks_on_host) == link.size or link.size == 1
    transport = None if all_on_host else link.message_transport()
    return _core.Messages(
        link.worker,
        link.rank,
        link.size,
        node,
        ranks_on_host,
        transport,
        link.tags,
        piece,
        spin_ns,
        own_core,
        config.stall_warn_seconds,
        account,
        describe,
    )


def require_no_leftovers(lines: list[str], rank: int) -> None:
    """Raises MismatchError if there are unreceived messages or unfinished requests."""
    if lines:
        raise MismatchError(
            f"rank {rank} closed the communicator with pending messages: {_join_lines(lines)}. Before close(), "
            "receive every message and wait for every isend and irecv"
        )


def print_leftovers(lines: list[str], rank: int) -> None:
    """Writes leftover messages to stderr: in a rank that is ending, an exception would be lost."""
    if lines:
        sys.stderr.write(  # one write, because other ranks may write too
            f"ringcomm: rank {rank} left its communicator with pending messages: {_join_lines(lines)}. Before close(), "
            "receive every message and wait for every isend and irecv\n"
        )
        sys.stderr.flush()


def _join_lines(lines: list[str]) -> str:
    suffix = f" and {len(lines) - MAX_LINES} more" if len(lines) > MAX_LINES else ""
    return "; ".join(lines[:MAX_LINES]) + suffix


def receive(
    messages: _core.Messages, out: Any, source: int, tag: int, group: str = ""
) -> MessageRequest | DeviceMessageRequest:
    """Starts a receive in the background. `group`: name of the group, for error messages."""
    try:
        return messages.irecv(out, source, tag, group)
    except NeedsStaging as error:
        staging = error.staging
    return DeviceMessageRequest(messages.irecv(staging.host, source, tag, group), staging)


class PointToPointCalls(Calls):
    """The point-to-point messages of :class:`ringcomm.Communicator`.

    They accept the same kinds of arrays as the collectives, with any dtype, and send them as bytes:
    sender and receiver need not agree on dtype or shape. Matching receives get the messages of one
    sender in the order sent. Several threads may call at the same time.

    GPU arrays are staged through host memory: copied to the host by the send, and from the host by
    the wait for the receive. The host waits for these copies. On one host, a message is copied only
    once if one of its two arrays is in shared memory (:meth:`ringcomm.Communicator.empty`).

    Raises
    ------
    ValueError
        The rank or tag does not exist.
    ringcomm.RankLeftError
        The other rank has closed the communicator, or its script has ended.
    ringcomm.PeerLostError
        The process of the other rank died without notice; with ANY_SOURCE, that of any rank.
    ringcomm.ShutDownError
        This rank has closed the communicator.
    """

    def send(self, x: Any, dest: int, tag: int = 0) -> None:
        """Sends ``x``. Returns once ``x`` may be written again.

        A long message has then been received.

        Parameters
        ----------
        x
            Array of any shape and dtype; strided arrays are copied.
        dest : int
            Rank of the receiver; ``ringcomm.PROC_NULL``: sends nothing.
        tag : int
            0 or more; default 0.
        """
        self._require_usable()
        self._messages.send(x, dest, tag)

    def recv(self, out: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        """Receives a message into ``out``, a C-contiguous array at least as long as the message.

        Parameters
        ----------
        out
            Array of any shape and dtype; its first ``status.nbytes`` bytes are written.
        source : int
            Rank of the sender; ``ringcomm.ANY_SOURCE``: any; ``ringcomm.PROC_NULL``: none, returns
            immediately.
        tag : int
            Tag of the message, or ``ringcomm.ANY_TAG``.

        Returns
        -------
        Status
            The message's ``source``, ``tag`` and ``nbytes``; ``count(dtype)`` gives its number of
            elements.

        Raises
        ------
        ringcomm.MismatchError
            The message is longer than ``out``. It is lost; the communicator remains usable.
        ValueError
            ``out`` is read-only or not contiguous.
        """
        self._require_usable()
        try:
            return self._messages.recv(out, source, tag)
        except NeedsStaging as error:
            staging = error.staging
        return staging.copy_to_device(self._messages.recv(staging.host, source, tag))

    def sendrecv(
        self,
        x: Any,
        dest: int,
        sendtag: int = 0,
        out: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Status:
        """Performs :meth:`send` of ``x`` and :meth:`recv` into ``out`` at the same time."""
        self._require_usable()
        try:
            return self._messages.sendrecv(x, dest, sendtag, out, source, recvtag)
        except NeedsStaging as error:
            staging = error.staging
        return staging.copy_to_device(self._messages.sendrecv(x, dest, sendtag, staging.host, source, recvtag))

    def isend(self, x: Any, dest: int, tag: int = 0) -> MessageRequest:
        """Starts :meth:`send` in the background.

        Do not write to ``x`` before ``request.wait()`` has returned, or ``request.test()`` has
        returned True.
        """
        self._require_usable()
        return self._messages.isend(x, dest, tag)

    def irecv(self, out: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> MessageRequest | DeviceMessageRequest:
        """Starts :meth:`recv` in the background; ``request.wait()`` returns the status.

        ``request.cancel()`` cancels it unless a message has matched it. For an array of a GPU, the
        message is copied to the device by ``wait()``, or by the ``test()`` that returns True.
        """
        self._require_usable()
        return receive(self._messages, out, source, tag)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        """Blocks until a message matches; returns its status without receiving it."""
        self._require_usable()
        status = self._messages.probe(source, tag, True)
        assert status is not None
        return status

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        """Probes as :meth:`probe` does, without blocking: returns None if no message matches yet."""
        self._require_usable()
        return self._messages.probe(source, tag, False)
