"""mpi4py's collectives as calls of a ringcomm.Communicator.

Each collective is described once. Its blocking, non-blocking and persistent forms are made from
that description.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi_requests import Prequest, Request
from specs import Elements, Parts, elements

import ringcomm


@dataclass
class Plan:
    """A call of ringcomm by name, and the copies from and to a buffer with displacements around it."""

    call: str
    arguments: dict[str, Any] = field(default_factory=dict)
    before: list[Callable[[], None]] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)

    def pack(self) -> None:
        for step in self.before:
            step()

    def unpack(self) -> None:
        for step in self.after:
            step()


def in_place(spec: Any) -> bool:
    """Returns True for IN_PLACE. mpi4py treats None in place of a buffer as IN_PLACE."""
    return spec is None or (isinstance(spec, type(MPI.IN_PLACE)) and spec == MPI.IN_PLACE)


def op_of(op: Any, array: Any) -> Any:
    """Returns a user op for long double, which ringcomm's reductions do not support."""
    if array.dtype.char not in "gG":
        return op
    return ringcomm.Op.create(op.Reduce_local)


class Plans:
    """The descriptions, by the lower-case part of mpi4py's names."""

    def __init__(self, comm: ringcomm.Communicator) -> None:
        self.comm = comm

    def _all_counts(self, mine: int) -> list[int]:
        return [int(count) for count in self.comm.allgather(np.array([mine]))]

    def barrier(self) -> Plan:
        return Plan("barrier")

    def bcast(self, buf: Any, root: int = 0) -> Plan:
        x = elements(buf).given
        return Plan("broadcast", {"x": x, "root": root, "out": x})

    # ---- one part per rank -------------------------------------------------------------------------------------------
    def _own_part(self, whole: Any) -> Any:
        count = whole.size // self.comm.size
        return whole[self.comm.rank * count : (self.comm.rank + 1) * count]

    def gather(self, sendbuf: Any, recvbuf: Any = None, root: int = 0) -> Plan:
        out = elements(recvbuf).flat if self.comm.rank == root else None
        x = self._own_part(out) if out is not None and in_place(sendbuf) else elements(sendbuf).given
        return Plan("gather", {"x": x, "root": root, "out": out})

    def scatter(self, sendbuf: Any, recvbuf: Any = None, root: int = 0) -> Plan:
        x = elements(sendbuf).flat if self.comm.rank == root else None
        out = self._own_part(x) if x is not None and in_place(recvbuf) else elements(recvbuf).given
        return Plan("scatter", {"x": x, "root": root, "out": out})

    def allgather(self, sendbuf: Any, recvbuf: Any) -> Plan:
        out = elements(recvbuf).flat
        x = self._own_part(out) if in_place(sendbuf) else elements(sendbuf).given
        return Plan("allgather", {"x": x, "out": out})

    def alltoall(self, sendbuf: Any, recvbuf: Any) -> Plan:
        out = elements(self._times_ranks(recvbuf)).flat
        return Plan(
            "alltoall", {"x": out if in_place(sendbuf) else elements(self._times_ranks(sendbuf)).flat, "out": out}
        )

    def _times_ranks(self, spec: Any) -> Any:
        """Returns the specification of all parts: an explicit count is that of one rank's part."""
        if isinstance(spec, list | tuple) and len(spec) > 1 and isinstance(spec[1], int):
            return [spec[0], spec[1] * self.comm.size, *spec[2:]]
        return spec

    # ---- parts of different lengths ----------------------------------------------------------------------------------
    def gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Plan:
        """Only the root knows the counts; ringcomm needs them on every rank, or on no rank."""
        if self.comm.rank != root:
            return Plan("gatherv", {"x": elements(sendbuf).given, "root": root})
        parts = Parts(recvbuf, self.comm.size)
        x = self._own_of(parts) if in_place(sendbuf) else elements(sendbuf).given
        return Plan("gatherv", {"x": x, "root": root, "out": parts.packed}, [], [parts.unpack])

    def scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Plan:
        """Only the root knows the counts; ringcomm needs the same counts on every rank."""
        size, here = self.comm.size, self.comm.rank == root
        parts = Parts(sendbuf, size) if here else None
        given = np.array(parts.counts if parts else [0] * size)
        counts = [int(count) for count in self.comm.broadcast(given, root)]
        out = self._own_of(parts) if parts and in_place(recvbuf) else elements(recvbuf).given
        x = parts.packed if parts else None
        return Plan("scatterv", {"x": x, "counts": counts, "root": root, "out": out}, [parts.pack] if parts else [])

    def _own_of(self, parts: Parts) -> Any:
        rank = self.comm.rank
        return parts.flat[parts.starts[rank] : parts.starts[rank] + parts.counts[rank]]

    def allgatherv(self, sendbuf: Any, recvbuf: Any) -> Plan:
        parts = Parts(recvbuf, self.comm.size)
        x = self._own_of(parts) if in_place(sendbuf) else elements(sendbuf).given
        return Plan("allgatherv", {"x": x, "counts": parts.counts, "out": parts.packed}, [], [parts.unpack])

    def alltoallv(self, sendbuf: Any, recvbuf: Any) -> Plan:
        return self._exchange(sendbuf, recvbuf, Parts)

    def alltoallw(self, sendbuf: Any, recvbuf: Any) -> Plan:
        return self._exchange(sendbuf, recvbuf, Parts.in_bytes)

    def _exchange(self, sendbuf: Any, recvbuf: Any, read: Callable[[Any, int], Parts]) -> Plan:
        received = read(recvbuf, self.comm.size)
        sent = received if in_place(sendbuf) else read(sendbuf, self.comm.size)
        arguments = {"sendcounts": sent.counts, "recvcounts": received.counts, "out": received.packed}
        return Plan("alltoallv", {"x": sent.packed, **arguments}, [sent.pack], [received.unpack])

    # ---- reductions --------------------------------------------------------------------------------------------------
    def _reduction(self, call: str, sendbuf: Any, recvbuf: Any, op: Any, **more: Any) -> Plan:
        out = elements(recvbuf)
        x = out if in_place(sendbuf) else elements(sendbuf)
        return Plan(call, {"x": x.given, "op": op_of(op, x.flat), "out": out.given, **more})

    def reduce(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, root: int = 0) -> Plan:
        if self.comm.rank == root:
            return self._reduction("reduce", sendbuf, recvbuf, op, root=root)
        x = elements(sendbuf)
        return Plan("reduce", {"x": x.given, "op": op_of(op, x.flat), "root": root})

    def allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> Plan:
        return self._reduction("allreduce", sendbuf, recvbuf, op)

    def scan(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> Plan:
        return self._reduction("scan", sendbuf, recvbuf, op)

    def exscan(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> Plan:
        return self._reduction("exscan", sendbuf, recvbuf, op)

    def reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> Plan:
        out = elements(recvbuf)
        count = out.flat.size // self.comm.size if in_place(sendbuf) else out.flat.size
        return self._reduce_scatter(sendbuf, out, [count] * self.comm.size, op)

    def reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: Any = MPI.SUM) -> Plan:
        out = elements(recvbuf)
        return self._reduce_scatter(sendbuf, out, recvcounts or self._all_counts(out.flat.size), op)

    def _reduce_scatter(self, sendbuf: Any, out: Elements, counts: list[int], op: Any) -> Plan:
        """Writes the result to a separate array first if it is in place.

        MPI's result begins where the input does. ringcomm's result replaces this rank's part of the
        input, and ringcomm refuses any other overlap.
        """
        x, part = out if in_place(sendbuf) else elements(sendbuf), out.flat[: counts[self.comm.rank]]
        result = part.copy() if np.shares_memory(x.flat, part) else part
        arguments = {"x": x.given, "counts": counts, "op": op_of(op, x.flat), "out": result}
        return Plan("reduce_scatter", arguments, [], [functools.partial(np.copyto, part, result)])


class Collectives:
    """The upper-case methods: X, Ix and X_init for every plan x."""

    comm: ringcomm.Communicator

    def _block(self, plan: Plan) -> None:
        plan.pack()
        getattr(self.comm, plan.call)(**plan.arguments)
        plan.unpack()

    def _submit(self, plan: Plan) -> Request:
        plan.pack()
        return Request(getattr(self.comm, f"i{plan.call}")(**plan.arguments), plan.unpack)

    def _prepare(self, plan: Plan) -> Prequest:
        prepared = getattr(self.comm, f"{plan.call}_init")(**plan.arguments)

        def begin() -> Any:
            plan.pack()
            return prepared.start()

        return Prequest(begin, plan.unpack)


def _method(name: str, end: Callable[[Any, Plan], Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return end(self, getattr(Plans(self.comm), name)(*args, **kwargs))

    return method


for _name in [name for name in vars(Plans) if not name.startswith("_")]:
    setattr(Collectives, _name.capitalize(), _method(_name, Collectives._block))
    setattr(Collectives, f"I{_name}", _method(_name, Collectives._submit))
    setattr(Collectives, f"{_name.capitalize()}_init", _method(_name, Collectives._prepare))
