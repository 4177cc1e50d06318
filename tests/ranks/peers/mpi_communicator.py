"""A communicator with mpi4py's names that calls ringcomm.

It replaces MPI.COMM_WORLD and MPI.COMM_SELF in the suites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collectives import Collectives
from mpi4py import MPI
from mpi_requests import Prequest, Request, Several, fill
from specs import elements

import ringcomm

_RANKS = {MPI.PROC_NULL: ringcomm.PROC_NULL, MPI.ANY_SOURCE: ringcomm.ANY_SOURCE}


def rank_of(rank: int) -> int:
    return _RANKS.get(rank, rank)


def tag_of(tag: int) -> int:
    return ringcomm.ANY_TAG if tag == MPI.ANY_TAG else tag


class Communicator(Collectives):
    """Messages, in addition to the collectives. Synchronous and ready sends are plain sends.

    Buffered sends send a copy in the background. ringcomm has no persistent messages, so each start
    begins a new message.
    """

    def __init__(self, comm: ringcomm.Communicator) -> None:
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self._buffered: list[Any] = []

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Dup(self) -> Communicator:
        copy = self.comm.split(0, self.rank)
        assert copy is not None
        return Communicator(copy)

    def Free(self) -> None:
        self._finish_buffered()
        self.comm.close()

    def _finish_buffered(self) -> None:
        while self._buffered:
            self._buffered.pop().wait()

    # ---- blocking ----------------------------------------------------------------------------------------------------
    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self.comm.send(elements(buf).given, rank_of(dest), tag)

    Ssend = Rsend = Send

    def Bsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._buffered.append(self.comm.isend(elements(buf).flat.copy(), rank_of(dest), tag))

    def Recv(self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: Any = None) -> None:
        fill(status, self.comm.recv(elements(buf).given, rank_of(source), tag_of(tag)))

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: Any = None,
    ) -> None:
        x, out = elements(sendbuf).given, elements(recvbuf).given
        fill(status, self.comm.sendrecv(x, rank_of(dest), sendtag, out, rank_of(source), tag_of(recvtag)))

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: Any = None,
    ) -> None:
        x = elements(buf).given
        fill(status, self.comm.sendrecv(x, rank_of(dest), sendtag, x, rank_of(source), tag_of(recvtag)))

    def Probe(self, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: Any = None) -> bool:
        fill(status, self.comm.probe(rank_of(source), tag_of(tag)))
        return True

    def Iprobe(self, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: Any = None) -> bool:
        found = self.comm.iprobe(rank_of(source), tag_of(tag))
        fill(status, found)
        return found is not None

    # ---- in the background -------------------------------------------------------------------------------------------
    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return Request(self._sends(buf, dest, tag)())

    Issend = Irsend = Isend

    def Ibsend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return Request(self.comm.isend(elements(buf).flat.copy(), rank_of(dest), tag))

    def Irecv(self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG) -> Request:
        return Request(self._receives(buf, source, tag)())

    def Isendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
    ) -> Request:
        received = self._receives(recvbuf, source, recvtag)()
        return Request(Several(self._sends(sendbuf, dest, sendtag)(), received))

    def Isendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = MPI.ANY_SOURCE, recvtag: int = MPI.ANY_TAG
    ) -> Request:
        """Copies the data to send first, because ringcomm has this call in its blocking form only."""
        return self.Isendrecv(elements(buf).flat.copy(), dest, sendtag, buf, source, recvtag)

    def _sends(self, buf: Any, dest: int, tag: int) -> Callable[[], Any]:
        x = elements(buf).given
        return lambda: self.comm.isend(x, rank_of(dest), tag)

    def _receives(self, buf: Any, source: int, tag: int) -> Callable[[], Any]:
        out = elements(buf).given
        return lambda: self.comm.irecv(out, rank_of(source), tag_of(tag))

    # ---- persistent --------------------------------------------------------------------------------------------------
    def Send_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        return Prequest(self._sends(buf, dest, tag))

    Ssend_init = Rsend_init = Bsend_init = Send_init

    def Recv_init(self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG) -> Prequest:
        return Prequest(self._receives(buf, source, tag))
