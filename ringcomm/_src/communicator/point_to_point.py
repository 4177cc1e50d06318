"""Point-to-point messages of arrays, as in MPI (MPI 4.1, chapter 3): the communicator's sends and receives."""

from __future__ import annotations

import sys
from typing import Any

from ringcomm._src.arrays import arrays
from ringcomm._src.arrays.device.messages import DeviceMessageRequest, OnDevice, on_host
from ringcomm._src.base.errors import MismatchError
from ringcomm._src.communicator.call_base import Calls
from ringcomm._src.config.config import Config
from ringcomm._src.core import _core
from ringcomm._src.core._core import ANY_SOURCE, ANY_TAG, MessageRequest, Status
from ringcomm._src.platform.links import Link

MOST_LINES = 5  # number of messages left that one error lists
_PIECE_SECONDS, _PIECES = 2e-3, (48 << 10, 32 << 20)  # transfer time of a piece; its least and most bytes


def describe(array: Any, written: bool) -> tuple[int, int, Any, bool]:
    """Returns address, bytes, owner of the memory, and True if the core may reuse the description for such arrays.

    An array of a GPU to be read is copied to the host's memory. Raises OnDevice for one to be written.
    """
    buffer = arrays.target(array) if written else arrays.source(array)
    if written and buffer.copied:
        raise ValueError("an array to receive into must be C-contiguous; receive into a copy and assign that")
    if buffer.place is not None:
        if written:
            raise OnDevice(buffer)
        host = on_host(buffer)
        return host.ctypes.data, host.nbytes, host, False
    return buffer.address, buffer.count * _core.ITEM_SIZES[buffer.dtype], buffer, buffer.array is array


def open_messages(
    link: Link, node: _core.Node | None, spin_ns: int, own_core: bool, config: Config, account: _core.Account
) -> _core.Messages:
    """Opens the messages of a communicator.

    ``own_core``: the worker does not share its core with callers. ``config``: identical on all ranks, because all
    ranks must divide messages into pieces of the same size.
    """
    least, most = _PIECES
    piece = max(least, min(most, int(_PIECE_SECONDS / config.beta))) if config.beta > 0 else most
    on_host = list(link.topology.host) if node is not None else []
    everybody = len(on_host) == link.size or link.size == 1
    transport = None if everybody else link.message_transport()
    return _core.Messages(
        link.worker,
        link.rank,
        link.size,
        node,
        on_host,
        transport,
        link.tags,
        piece,
        spin_ns,
        own_core,
        config.stall_warn_seconds,
        account,
        describe,
    )


def refuse_leftovers(lines: list[str], rank: int) -> None:
    """Raises MismatchError if there are messages left."""
    if lines:
        raise MismatchError(
            f"rank {rank} closed the communicator with messages left: {_listed(lines)}. Every send needs a receive "
            "before close()"
        )


def tell_leftovers(lines: list[str], rank: int) -> None:
    """Writes messages left to stderr. A rank that leaves alone may be ending, so an exception would be lost."""
    if lines:
        sys.stderr.write(  # one write: other ranks write at the same time
            f"ringcomm: rank {rank} leaves its communicator with messages left: {_listed(lines)}. Receive what is "
            "sent, wait for each isend and irecv, and then close()\n"
        )
        sys.stderr.flush()


def _listed(lines: list[str]) -> str:
    more = f" and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
    return "; ".join(lines[:MOST_LINES]) + more


def receive(
    messages: _core.Messages, out: Any, source: int, tag: int, among: str = ""
) -> MessageRequest | DeviceMessageRequest:
    """Starts a receive in the background. `among`: name of the group, for error messages."""
    try:
        return messages.irecv(out, source, tag, among)
    except OnDevice as one:
        landing = one.landing
    return DeviceMessageRequest(messages.irecv(landing.host, source, tag, among), landing)


class PointToPointCalls(Calls):
    """The point-to-point messages of :class:`ringcomm.Communicator`.

    They take the arrays of the collectives, of any dtype, and send them as bytes: sender and receiver need not agree on
    dtype or shape. Messages of one sender are received in the order sent, by the receives that match them. Several
    threads may call at the same time.

    Arrays of GPUs are staged through host memory. They are copied to the host when they are sent, and from the host by
    the wait for their receive. The host waits for these copies. On one host, a message is copied once if at least one
    of its two arrays is in shared memory (:meth:`ringcomm.Communicator.empty`).

    Raises (besides the errors that the calls document):
        ValueError: the rank or tag does not exist.
        ringcomm.RankLeftError: the other rank has closed the communicator or ended.
        ringcomm.PeerLostError: the other rank died; with ANY_SOURCE, any rank died.
        ringcomm.ShutDownError: this rank has closed the communicator.
    """

    def send(self, x: Any, dest: int, tag: int = 0) -> None:
        """Sends ``x``. Returns once ``x`` may be written again; for a long message, when it has been received.

        Args:
            x: array of any shape and dtype; strided arrays are copied.
            dest: rank; ``ringcomm.PROC_NULL``: sends nothing.
            tag: 0 or more.
        """
        self._require_usable()
        self._messages.send(x, dest, tag)

    def recv(self, out: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        """Receives a message into ``out``, a C-contiguous array at least as long as the message.

        Args:
            out: array of any shape and dtype; its first ``status.nbytes`` bytes are written.
            source: rank; ``ringcomm.ANY_SOURCE``; ``ringcomm.PROC_NULL``: returns immediately, receives nothing.
            tag: tag of the message, or ``ringcomm.ANY_TAG``.

        Returns:
            The message's ``source``, ``tag`` and ``nbytes``; ``count(dtype)`` gives its number of elements.

        Raises:
            ringcomm.MismatchError: the message is longer than ``out``. It is lost; the communicator remains usable.
            ValueError: ``out`` is read-only or not contiguous.
        """
        self._require_usable()
        try:
            return self._messages.recv(out, source, tag)
        except OnDevice as one:
            landing = one.landing
        return landing.arrived(self._messages.recv(landing.host, source, tag))

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
        except OnDevice as one:
            landing = one.landing
        return landing.arrived(self._messages.sendrecv(x, dest, sendtag, landing.host, source, recvtag))

    def isend(self, x: Any, dest: int, tag: int = 0) -> MessageRequest:
        """Starts :meth:`send` in the background.

        Do not write to ``x`` before ``request.wait()`` has returned, or ``request.test()`` has returned True.
        """
        self._require_usable()
        return self._messages.isend(x, dest, tag)

    def irecv(self, out: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> MessageRequest | DeviceMessageRequest:
        """Starts :meth:`recv` in the background; ``request.wait()`` returns the status.

        ``request.cancel()`` cancels it unless a message has matched it. For an array of a GPU, the message is copied to
        the device by ``wait()``, or by the ``test()`` that returns True.
        """
        self._require_usable()
        return receive(self._messages, out, source, tag)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        """Blocks until there is a message that :meth:`recv` would receive; returns its status without receiving it."""
        self._require_usable()
        found = self._messages.probe(source, tag, True)
        assert found is not None
        return found

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        """Performs :meth:`probe` without blocking: returns None if there is no such message yet."""
        self._require_usable()
        return self._messages.probe(source, tag, False)
