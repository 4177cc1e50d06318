"""Messages from one rank to another: MPI's point-to-point calls (MPI-4.1, chapter 3), of arrays."""

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

MOST_LINES = 5  # of what was never received, in one message
_PIECE_SECONDS, _PIECES = 2e-3, (48 << 10, 32 << 20)  # that a piece takes on its way; least and most bytes


def describe(array: Any, written: bool) -> tuple[int, int, Any, bool]:
    """Address, bytes, what keeps the memory, and whether others like it need not be asked about. Of an array of a GPU
    that is read: of a copy in the host's memory. OnDevice for one that is written."""
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
    """``own_core``: the worker need not share its core with callers. ``config``: agreed, for all ranks must cut
    messages alike."""
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
    """Raises MismatchError if there are any."""
    if lines:
        raise MismatchError(
            f"rank {rank} closed the communicator with messages left: {_listed(lines)}. Every send needs a receive "
            "before close()"
        )


def tell_leftovers(lines: list[str], rank: int) -> None:
    """To stderr, by a rank that leaves alone: it may be ending, and nobody would catch an exception."""
    if lines:
        sys.stderr.write(  # a line at once: other ranks write beside it
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
    """A receive in the background. `among`: of what group, for what people read."""
    try:
        return messages.irecv(out, source, tag, among)
    except OnDevice as one:
        landing = one.landing
    return DeviceMessageRequest(messages.irecv(landing.host, source, tag, among), landing)


class PointToPointCalls(Calls):
    """The messages of :class:`ringcomm.Communicator`.

    Arrays are what the collectives take, of any dtype, and travel as their bytes: sender and receiver need not agree on
    dtype or shape. Messages of one sender are received in the order sent, by those receives that match them. Any thread
    may call, several at the same time. Arrays of GPUs travel by way of the host's memory, to which they are copied when
    they are sent, and from it when their receive is waited for: the host waits for these copies.

    On one host, messages between arrays of which one is shared (:meth:`ringcomm.Communicator.empty`) are copied once.

    Raises (besides what the calls document):
        ValueError: there is no such rank or tag.
        ringcomm.RankLeftError: the other rank has closed the communicator or ended.
        ringcomm.PeerLostError: the other rank died; with ANY_SOURCE, some rank did.
        ringcomm.ShutDownError: this rank has closed the communicator.
    """

    def send(self, x: Any, dest: int, tag: int = 0) -> None:
        """Sends ``x``, and returns once it may be written again: a long message when it has been received.

        Args:
            x: array of any shape and dtype; strided ones are copied.
            dest: rank; ``ringcomm.PROC_NULL``: to nobody.
            tag: 0 or more.
        """
        self._require_usable()
        self._messages.send(x, dest, tag)

    def recv(self, out: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        """Receives a message into ``out``, a C-contiguous array at least as long as the message.

        Args:
            out: array of any shape and dtype; its first ``status.nbytes`` bytes are written.
            source: rank; ``ringcomm.ANY_SOURCE``; ``ringcomm.PROC_NULL``: from nobody, at once.
            tag: of the message; ``ringcomm.ANY_TAG``.

        Returns:
            The message's ``source``, ``tag`` and ``nbytes``; ``count(dtype)`` gives its elements.

        Raises:
            ringcomm.MismatchError: the message is longer than ``out``. It is lost; go on.
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
        """:meth:`send` of ``x`` and :meth:`recv` into ``out`` at the same time: neither waits for the other."""
        self._require_usable()
        try:
            return self._messages.sendrecv(x, dest, sendtag, out, source, recvtag)
        except OnDevice as one:
            landing = one.landing
        return landing.arrived(self._messages.sendrecv(x, dest, sendtag, landing.host, source, recvtag))

    def isend(self, x: Any, dest: int, tag: int = 0) -> MessageRequest:
        """:meth:`send` in the background: ``x`` must not be written before ``request.wait()`` has returned, or
        ``request.test()`` given True."""
        self._require_usable()
        return self._messages.isend(x, dest, tag)

    def irecv(self, out: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> MessageRequest | DeviceMessageRequest:
        """:meth:`recv` in the background: ``request.wait()`` gives the status. ``request.cancel()`` takes it back
        unless a message has matched it. Into an array of a GPU the message is copied by ``wait()``, or by the
        ``test()`` that gives True."""
        self._require_usable()
        return receive(self._messages, out, source, tag)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        """The status of the message that :meth:`recv` would receive, once there is one. It is not received."""
        self._require_usable()
        found = self._messages.probe(source, tag, True)
        assert found is not None
        return found

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        """:meth:`probe` that does not wait: None if there is no such message yet."""
        self._require_usable()
        return self._messages.probe(source, tag, False)
