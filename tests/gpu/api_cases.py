"""What tests/gpu/test_api.py runs on ranks: the Python API on arrays of a stand-in GPU.

A case gets a :class:`Here` and raises if something is wrong. Arrays are made on streams whose operations are held back
for random times: a call that does not wait for what its streams hold takes wrong values.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import device_array as da
import ml_dtypes
import numpy as np

import ringcomm

CASES: list[Callable[[Here], None]] = []
LIBRARY = os.environ.get("RINGCOMM_CUDA_LIBRARY", "")


class Described:
    """An array that says by one interface alone where it lies."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def get(self) -> Any:
        return self.array.get()


class ByInterface(Described):
    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


class ByDLPack(Described):
    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def ours(values: np.ndarray) -> Any:
    return ringcomm.DeviceArray(values.shape, values.dtype, da._here.device).set(values)


def late(values: np.ndarray) -> Any:
    """On the current stream, behind work on it: until then it holds 0xFF."""
    made = da.empty(values.shape, values.dtype)
    da.fill_bytes(made, 0xFF)
    assign_late(made, values)
    return made


def assign_late(array: Any, values: np.ndarray) -> None:
    """Behind work on the current stream; the host does not wait for it."""
    given = da.from_numpy(values)
    da.synchronize()
    for _ in range(3):
        da.fill_bytes(array, 0xFF)
    if given.nbytes:
        copy = ctypes.c_uint64(array.address), ctypes.c_uint64(given.address), ctypes.c_size_t(given.nbytes)
        da._driver("cuMemcpyAsync", *copy, ctypes.c_void_p(da.current_stream()))


KINDS = {"cupy": late, "interface": lambda v: ByInterface(late(v)), "dlpack": lambda v: ByDLPack(late(v)), "ours": ours}


@dataclass
class Here:
    comm: Any
    library: Any  # the stand-in

    @property
    def rank(self) -> int:
        return int(self.comm.rank)

    @property
    def size(self) -> int:
        return int(self.comm.size)


def case(function: Callable[[Here], None]) -> Callable[[Here], None]:
    CASES.append(function)
    return function


def raises(error: type[BaseException], text: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except error as raised:
        assert text in str(raised), raised
    else:
        raise AssertionError(f"no {error.__name__} with {text!r}")


def check(got: Any, expected: Any) -> None:
    host = got.get() if hasattr(got, "get") else got
    assert host.shape == np.shape(expected) and (host == expected).all(), (host, expected)


# ---- messages --------------------------------------------------------------------------------------------------------
@case
def messages_of_every_kind_of_array(here: Here) -> None:
    right, left = (here.rank + 1) % here.size, (here.rank - 1) % here.size
    for make in KINDS.values():
        x = make(np.arange(500, dtype=np.float32) + here.rank)
        y = make(np.zeros(600, np.float32))
        request = here.comm.isend(x, right, 3)
        status = here.comm.recv(y, left, 3)
        request.wait()
        assert (status.source, status.tag, status.nbytes) == (left, 3, 2000)
        check(y, np.concatenate([np.arange(500, dtype=np.float32) + left, np.zeros(100, np.float32)]))
        assert here.comm.sendrecv(x, right, 0, y, left, 0).nbytes == 2000
        check(y, np.concatenate([np.arange(500, dtype=np.float32) + left, np.zeros(100, np.float32)]))


@case
def a_receive_comes_behind_what_was_begun_on_the_array(here: Here) -> None:
    one, other = da.new_stream(), da.new_stream()
    for wait_elsewhere in (False, True):
        with da.stream(one):
            y = late(np.zeros(64, np.int32))
            receive = here.comm.irecv(y, (here.rank - 1) % here.size)
        send = here.comm.isend(np.arange(64, dtype=np.int32) + here.rank, (here.rank + 1) % here.size)
        with da.stream(other if wait_elsewhere else one):
            while not receive.test():
                pass
            expected = np.arange(64) + (here.rank - 1) % here.size
            check(y, expected)
            assert receive.wait().nbytes == 256 and receive.test()
        with da.stream(one):
            check(y, expected)  # and nothing that was under way comes after it
        send.wait()


@case
def messages_between_host_and_device_and_to_nobody(here: Here) -> None:
    comm, right, left = here.comm, (here.rank + 1) % here.size, (here.rank - 1) % here.size
    x, y = late(np.full(9, here.rank, np.int64)), np.zeros(9, np.int64)
    send = comm.isend(x, right)
    comm.recv(y, left)
    send.wait()
    check(y, np.full(9, left))
    kept = late(np.full(9, 5, np.int64))
    assert comm.recv(kept, ringcomm.PROC_NULL).nbytes == 0
    comm.send(kept, ringcomm.PROC_NULL)
    check(kept, np.full(9, 5))
    receive = comm.irecv(kept, left, 77)
    assert receive.cancel() and receive.wait().cancelled
    check(kept, np.full(9, 5))


@case
def a_message_that_is_too_long_is_refused(here: Here) -> None:
    short = late(np.zeros(2, np.int64))
    send = here.comm.isend(late(np.zeros(9, np.int64)), (here.rank + 1) % here.size)
    receive = here.comm.irecv(short, (here.rank - 1) % here.size)
    raises(ringcomm.MismatchError, "", receive.wait)
    assert receive.test()
    raises(ringcomm.MismatchError, "", receive.wait)
    send.wait()
    check(short, np.zeros(2))
    turned = late(np.zeros((4, 6), np.int64)).T
    raises(ringcomm.UnsupportedError, "not C-contiguous", lambda: here.comm.recv(turned, 0))


# ---- arrays ----------------------------------------------------------------------------------------------------------
@case
def new_arrays_lie_on_this_ranks_gpu(here: Here) -> None:
    x = here.comm.empty((2, 3), "int16", device="cuda")
    assert isinstance(x, ringcomm.DeviceArray) and x.device == here.comm.local_rank % 2
    assert (x.shape, x.dtype, x.nbytes) == ((2, 3), np.int16, 12)
    assert here.comm.empty(3, device="cuda:1").device == here.comm.empty(3, device=1).device == 1
    assert isinstance(here.comm.empty(3), np.ndarray) and isinstance(here.comm.empty(3, device="cpu"), np.ndarray)
    raises(ValueError, "there is no GPU 2 here: CUDA's driver shows 2", lambda: here.comm.empty(3, device="cuda:2"))
    raises(ValueError, "not 'disk'", lambda: here.comm.empty(3, device="disk"))
    x.set(np.full((2, 3), here.rank))
    check(here.comm.allreduce(x, ringcomm.Max), np.full((2, 3), here.size - 1))


@case
def two_memories_in_one_call_are_refused(here: Here) -> None:
    x, y = np.ones(4, np.float32), late(np.zeros(4, np.float32))
    here.comm.allreduce(x, out=x.copy())  # what follows is like a call that is remembered
    raises(ValueError, "lies on the host and its output on GPU", lambda: here.comm.allreduce(x, out=y))
    raises(ValueError, "and its output on the host", lambda: here.comm.allreduce(y, out=x))
    other = here.comm.empty(4, device=1 - here.comm.local_rank % 2)
    raises(
        ValueError, "give both in one memory", lambda: here.comm.allreduce(here.comm.empty(4, device="cuda"), out=other)
    )
    check(here.comm.allreduce(x), np.full(4, here.size, np.float32))


# ---- collectives -----------------------------------------------------------------------------------------------------
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


@case
def arrays_without_elements(here: Here) -> None:
    for make in (late, ours):
        check(here.comm.allreduce(make(np.zeros((0, 3), np.float32))), np.zeros((0, 3)))
        check(here.comm.allgather(make(np.zeros((0, 3), np.float32))), np.zeros((0, 3)))
    empty = here.comm.empty(0, device=1)
    assert here.comm.allreduce(empty).device == 1


@case
def objects_travel_as_ever(here: Here) -> None:
    from ringcomm.objects import broadcast_object

    ringcomm.init()
    assert broadcast_object({"rank": here.rank}, 0) == {"rank": 0}
    x = ringcomm.empty(6, "int32", device="cuda").set(np.full(6, here.rank))
    check(ringcomm.allreduce(x, op=ringcomm.Sum, name="x"), np.full(6, sum(range(here.size))))
    mixed = ringcomm.grouped_allreduce([late(np.ones(5)), np.ones(5), x], op=ringcomm.Sum, name="mixed")
    for one, many in zip(mixed, (here.size, here.size, sum(range(here.size))), strict=True):
        check(one, np.full(np.shape(one.get() if hasattr(one, "get") else one), many))
    ringcomm.shutdown()


# ---- refusals --------------------------------------------------------------------------------------------------------
@case
def what_works_on_the_hosts_memory_alone_says_so(here: Here) -> None:
    comm, x = here.comm, late(np.ones(here.size * 2, np.float32))
    op = ringcomm.Op.create(lambda a, b: np.add(a, b, out=b))
    fix = "Pass a copy in the host's memory"
    for call in (comm.allreduce, comm.reduce, comm.reducescatter, comm.scan, comm.iallreduce, comm.allreduce_init):
        raises(ringcomm.UnsupportedError, fix, lambda call=call: call(x, op=op))
    host = np.ones(here.size * 2, np.float32)
    raises(ringcomm.UnsupportedError, "lies on GPU", lambda: comm.allreduce(host, op=op, out=x))
    check(comm.allreduce(host, op=op), host * here.size)
    ringcomm.init()
    raises(ringcomm.UnsupportedError, "give a NumPy array", lambda: ringcomm.PeriodicAverager([x], every=1))
    raises(ringcomm.UnsupportedError, "give a NumPy array", lambda: ringcomm.ParameterStore({"x": x}))
    weights = {"x": np.zeros(4)}
    with ringcomm.ParameterStore(weights, ringcomm.updates.SGD(1.0)) as store:
        store.push_pull({"x": late(np.ones(4))})
    check(weights["x"], np.full(4, -here.size))
    ringcomm.shutdown()


@case
def a_stream_that_is_captured_is_refused(here: Here) -> None:
    x = late(np.ones(3))
    here.library.standin_capture(ctypes.c_void_p(da.current_stream()), 1)
    try:
        raises(ringcomm.UnsupportedError, "outside of the capture", lambda: here.comm.allreduce(x))
    finally:
        here.library.standin_capture(ctypes.c_void_p(da.current_stream()), 0)


@case
def arrays_that_must_not_be_written_are_not(here: Here) -> None:
    x = late(np.ones(3))

    class ReadOnly(Described):
        @property
        def __cuda_array_interface__(self) -> Any:
            described = x.__cuda_array_interface__
            return described | {"data": (described["data"][0], True)}

    immutable = type("Array", (ByInterface,), {"__module__": "jaxlib.xla_extension"})(x)
    for array in (ReadOnly(x), immutable):
        raises(ValueError, "read-only", lambda array=array: here.comm.allreduce(array, out=array))
        raises(ValueError, "read-only", lambda array=array: here.comm.irecv(array))
        check(here.comm.allreduce(array), np.full(3, here.size))


# ---- seen ------------------------------------------------------------------------------------------------------------
@case
def copies_are_events_of_the_timeline(here: Here) -> None:
    from ringcomm.events import Listener

    x, out = late(np.ones(3 << 20, np.float32)), late(np.zeros(3 << 20, np.float32))
    with Listener() as listener:
        here.comm.allreduce(x, out=out, name="traced")
    events = [event for event in listener.take() if event.name == "traced"]
    for category in ("from device", "to device"):
        copies = sorted((event for event in events if event.category == category), key=lambda event: event.begin_ns)
        assert len(copies) > (here.size > 1) and sum(event.bytes for event in copies) == 12 << 20, (category, copies)
        assert all(before.end_ns <= after.begin_ns for before, after in itertools.pairwise(copies))
        assert len({event.lane for event in copies}) == 1
    assert any(event.category == "run" for event in events)
    check(out, np.full(3 << 20, here.size, np.float32))


def run(seeds: int) -> None:
    """All cases on this rank, on a stream of its own, under each seed."""
    import mpi_case

    da.use(LIBRARY)
    comm = ringcomm.Communicator()
    here = Here(comm, ctypes.CDLL(LIBRARY))
    only = os.environ.get("API_CASES", "")
    for seed in range(seeds):
        here.library.standin_seed(ctypes.c_uint64(seed + 1))
        for one in CASES:
            if only not in one.__name__:
                continue
            with da.device(comm.local_rank % 2), da.stream(_stream(comm.local_rank % 2)):
                try:
                    one(here)
                except BaseException:
                    mpi_case.say(f"rank {comm.rank}, seed {seed}: {one.__name__} failed")
                    raise
                here.library.standin_settle()
    here.library.standin_check()
    comm.close()


def _stream(device: int) -> int:
    with da.device(device):
        return da.new_stream()
