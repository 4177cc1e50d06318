"""Cases of tests/gpu/test_api.py for collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import device_array as da
import ml_dtypes
import numpy as np
from api_arrays import KINDS, ByDLPack, ByInterface, Described, Here, assign_late, case, check, late, ours, raises

import ringcomm
from ringcomm._src.arrays.device import devices


@case
def calls_of_every_kind_of_array(here: Here) -> None:
    total = sum(range(here.size))
    for name, make in KINDS.items():
        x, out = make(np.full(700, here.rank, np.float32)), make(np.zeros(700, np.float32))
        assert here.comm.allreduce(x, out=out) is out, name
        check(out, np.full(700, total))
        check(here.comm.iallreduce(x).wait(), np.full(700, total))
        result = here.comm.allreduce(x, out=x)
        assert result is x
        check(x, np.full(700, total))
        check(here.comm.broadcast(make(np.full(3, here.rank))), np.zeros(3))


@case
def halves_and_pairs(here: Here) -> None:
    for make in (late, ours):
        for dtype in ("float16", ml_dtypes.bfloat16, "complex64", "int8"):
            check(here.comm.allreduce(make(np.arange(5).astype(dtype))), (np.arange(5) * here.size).astype(dtype))
        check(here.comm.allreduce(make(np.array([True, False]))), np.array([True, False]))
        pairs = np.array([(here.rank, here.rank), (-here.rank, here.rank)], [("value", "f4"), ("index", "i4")])
        last = here.size - 1
        check(here.comm.allreduce(make(pairs), ringcomm.MINLOC), np.array([(0, 0), (-last, last)], pairs.dtype))
        check(here.comm.broadcast(make(np.array(["2020-01-02"], "M8[D]"))), np.array(["2020-01-02"], "M8[D]"))


@case
def streams_of_input_and_output_may_differ(here: Here) -> None:
    one, other = da.new_stream(), da.new_stream()
    with da.stream(one):
        x = ByInterface(late(np.full(300, 1, np.int32)))
    held = x.__cuda_array_interface__ | {"stream": one}
    with da.stream(other):
        y = late(np.zeros(300, np.int32))

        class Fixed(Described):
            __cuda_array_interface__ = held

        here.comm.allreduce(Fixed(x), out=y)
        check(y, np.full(300, here.size))


@case
def gathers_and_scatters(here: Here) -> None:
    comm, rank, size = here.comm, here.rank, here.size
    mine = np.full((2, 3), rank, np.int32)
    everybody = np.repeat(np.arange(size, dtype=np.int32), 2)[:, None] * np.ones((1, 3), np.int32)
    for root in range(size):
        got = comm.gather(late(mine), root)
        assert (got is None) == (rank != root)
        if got is not None:
            check(got, everybody)
        check(comm.scatter(late(everybody if rank == root else everybody * 0), root), mine)
        out = late(np.zeros((2, 3), np.int32))
        assert comm.scatter(late(everybody) if rank == root else None, root, out=out) is out
        check(out, mine)
        counts = [1 + r for r in range(size)]
        rows = np.repeat(np.arange(size, dtype=np.int32), counts)
        got = comm.gatherv(late(np.full(1 + rank, rank, np.int32)), None, root)
        if got is not None:
            check(got, rows)
        check(comm.scatterv(late(rows), counts, root), np.full(1 + rank, rank))
    check(comm.allgather(late(np.full(1 + rank, rank, np.int32))), rows)
    check(comm.alltoall(late(np.repeat(np.int32(rank), size))), np.arange(size))
    got, received = comm.alltoall(late(np.full(size, rank, np.int32)), splits=[1] * size)
    check(got, np.arange(size))
    assert received.tolist() == [1] * size
    check(comm.alltoallv(late(np.full(size, rank, np.int32)), [1] * size), np.arange(size))
    check(comm.reduce_scatter(late(rows), counts), np.full(1 + rank, rank * size))
    check(comm.reducescatter(late(np.arange(size, dtype=np.int32))), np.array([rank * size]))
    check(comm.scan(late(np.ones(5, np.int32))), np.full(5, rank + 1))
    before = comm.exscan(late(np.ones(5, np.int32)))
    assert (before is None) == (rank == 0)
    if before is not None:
        check(before, np.full(5, rank))
    got = comm.reduce(late(np.ones(5, np.int32)), root=size - 1)
    assert (got is None) == (rank != size - 1)
    for refused in (comm.reduce, comm.broadcast):  # as for host arrays, on every rank, and the next call works
        raises(ValueError, "is not a rank", lambda call=refused: call(late(np.ones(5, np.int32)), root=size))
    check(comm.allreduce(late(np.ones(5, np.int32))), np.full(5, size))


@case
def neighbours(here: Here) -> None:
    graph = here.comm.neighbours([[(r + 1) % here.size, r] if here.size > 1 else [r] for r in range(here.size)])
    got = graph.allgather(late(np.full(4, here.rank, np.int16)))
    check(got, np.repeat(np.array(graph.receives_from, np.int16), 4))
    given = np.array(graph.sends_to, np.int16) * 10 + here.rank
    got = graph.ialltoall(late(given), 1).wait()
    check(got, np.array([here.rank * 10 + other for other in graph.receives_from]))


@case
def prepared_calls_take_what_is_there_then(here: Here) -> None:
    x, out = late(np.zeros(80, np.float64)), late(np.zeros(80, np.float64))
    prepared = here.comm.allreduce_init(x, out=out)
    for turn in range(3):
        values = np.full(80, turn + here.rank, np.float64)
        assign_late(x, values)
        assert prepared.start().wait() is out
        check(out, np.full(80, turn * here.size + sum(range(here.size))))


CUTS: dict[str, Callable[[Any], Any]] = {
    "int8": lambda x: x.T,
    "int16": lambda x: x[:, ::2, 1:],
    "float32": lambda x: x[::-1, 1:, ::-3],
    "complex128": lambda x: x[2, :, 3],
}


@case
def strided_arrays(here: Here) -> None:
    """Copies strided inputs, and writes results with their array's strides, as for host arrays."""
    comm, size = here.comm, here.size
    for dtype, cut in CUTS.items():
        host = (np.arange(120) % 30).reshape(4, 5, 6).astype(dtype)
        for wrap in (lambda x: x, ByInterface, ByDLPack):
            x, out, expected = late(host), late(host), host.copy()
            mine, target = wrap(cut(x)), wrap(cut(out))
            check(comm.allreduce(mine), cut(host) * size)
            assert comm.iallreduce(mine, out=target).wait() is target
            cut(expected)[...] = cut(host) * size
            check(out, expected)
            assert comm.allreduce(target, out=target) is target
            cut(expected)[...] = cut(host) * (size * size)
            check(out, expected)
    pairs = np.array([(i, -i) for i in range(9)], [("value", "f4"), ("index", "i4")])
    check(comm.broadcast(late(pairs)[::-2]), pairs[::-2])
    check(comm.broadcast(late(np.arange(9).astype("M8[D]"))[::4]), np.arange(0, 9, 4).astype("M8[D]"))
    row = late(np.arange(5.0))
    many = da.DeviceArray(np.broadcast_to(row._view, (3, 5)), row._memory)
    check(comm.allgather(many), np.tile(np.arange(5.0), (3 * size, 1)))
    raises(ValueError, "overlap in memory", lambda: comm.allreduce(late(np.ones((3, 5))), out=many))
    turned = late(np.arange(12.0).reshape(3, 4)).T
    raises(ValueError, "give a contiguous array", lambda: comm.allreduce_init(turned))
    came = late(np.zeros((4, 3)))
    comm.sendrecv(turned, here.rank, out=came, source=here.rank)
    check(came, np.arange(12.0).reshape(3, 4).T)


@case
def arrays_without_elements(here: Here) -> None:
    for make in (late, ours):
        check(here.comm.allreduce(make(np.zeros((0, 3), np.float32))), np.zeros((0, 3)))
        check(here.comm.allgather(make(np.zeros((0, 3), np.float32))), np.zeros((0, 3)))
    mine = here.comm.local_rank % devices.count()
    assert here.comm.allreduce(here.comm.empty(0, device="cuda")).device == mine
    for count in (0, 2) if devices.count() > 1 else ():
        other = here.comm.empty(count, device=1 - mine)
        raises(ValueError, "this rank has used GPU", lambda: here.comm.allreduce(other))  # noqa: B023


@case
def objects_travel_as_ever(here: Here) -> None:
    from ringcomm._src.named.objects import broadcast_object

    ringcomm.init()
    assert broadcast_object({"rank": here.rank}, 0) == {"rank": 0}
    x = ringcomm.empty(6, "int32", device="cuda").set(np.full(6, here.rank))
    check(ringcomm.allreduce(x, op=ringcomm.Sum, name="x"), np.full(6, sum(range(here.size))))
    mixed = ringcomm.grouped_allreduce([late(np.ones(5)), np.ones(5), x], op=ringcomm.Sum, name="mixed")
    for one, many in zip(mixed, (here.size, here.size, sum(range(here.size))), strict=True):
        check(one, np.full(np.shape(one.get() if hasattr(one, "get") else one), many))
    ringcomm.shutdown()
