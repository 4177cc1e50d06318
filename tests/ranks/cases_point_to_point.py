"""Programs of one rank for the tests of messages, as threads and under MPI."""

from __future__ import annotations

from typing import Any

import numpy as np

import ringcomm
from ringcomm import ANY_SOURCE, ANY_TAG, PROC_NULL

SIZES = (0, 1, 27, 28, 54, 2048, 8192, 8193, 50_000, 700_000)  # 8-byte elements; sizes around the limits between routes
DTYPES = ("float32", "complex128", "int8", "bool", "datetime64[s]", [("a", "<i4"), ("b", "<f8", 2)])


def numbers(count: int, rank: int, dtype: Any = "int64") -> np.ndarray[Any, Any]:
    nbytes = count * np.dtype(dtype).itemsize
    return np.tile(np.arange(251, dtype=np.uint8) + np.uint8(rank), nbytes // 251 + 1)[:nbytes].view(dtype)


def around(comm: Any) -> tuple[int, int]:
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def ring_of_every_size(comm: Any) -> None:
    right, left = around(comm)
    for count in SIZES:
        for shared_source in (False, True):
            for shared_target in (False, True):
                x, y = (
                    comm.empty(count, "int64") if s else np.empty(count, "int64")
                    for s in (shared_source, shared_target)
                )
                x[:], y[:] = numbers(count, comm.rank), 0
                status = comm.sendrecv(x, right, 3, y, left, 3)
                assert (status.source, status.tag, status.nbytes) == (left, 3, 8 * count)
                assert status.count("int64") == count
                assert np.array_equal(y, numbers(count, left))


def every_dtype(comm: Any) -> None:
    right, left = around(comm)
    for dtype in DTYPES:
        x, y = numbers(100, comm.rank, dtype), numbers(100, comm.size, dtype)
        request = comm.isend(x, right, 1)
        comm.recv(y, left, 1)
        request.wait()
        assert y.tobytes() == numbers(100, left, dtype).tobytes()


def order_of_one_sender(comm: Any) -> None:
    """The receiver takes two tags in reverse; messages of each tag keep their order."""
    right, left = around(comm)
    counts = [1, 9000, 3, 20_000, 5, 60_000, 2]
    requests = [comm.isend(numbers(n, i), right, i % 2) for i, n in enumerate(counts)]
    for tag in (1, 0):
        for i, n in enumerate(counts):
            if i % 2 == tag:
                out = np.empty(n, "int64")
                assert comm.recv(out, left, tag).count("int64") == n
                assert np.array_equal(out, numbers(n, i))
    for request in requests:
        request.wait()


def gathered_from_any_source(comm: Any) -> None:
    if comm.rank > 0:
        comm.send(np.full(comm.rank * 3000, comm.rank), 0, comm.rank)
        return
    seen = set()
    for _ in range(1, comm.size):
        status = comm.probe(ANY_SOURCE, ANY_TAG)
        out = np.empty(status.count("int64"), "int64")
        assert comm.recv(out, status.source, status.tag) == status
        assert status.tag == status.source and (out == status.source).all()
        seen.add(status.source)
    assert seen == set(range(1, comm.size)) and comm.iprobe() is None


def to_oneself_and_to_nobody(comm: Any) -> None:
    out = np.zeros(4)
    comm.send(np.ones(4), comm.rank, 5)
    assert comm.recv(out, ANY_SOURCE, 5).source == comm.rank and out.all()
    request = comm.irecv(out, comm.rank, 6)
    assert not request.test()
    comm.send(np.zeros(2), comm.rank, 6)
    assert request.wait().nbytes == 16 and out[:2].sum() == 0
    comm.send(out, PROC_NULL)
    assert comm.recv(out, PROC_NULL) == comm.iprobe(PROC_NULL)
    assert comm.recv(out, PROC_NULL).source == PROC_NULL


def too_long(comm: Any) -> None:
    right, left = around(comm)
    for count in (2, 5000, 90_000):
        request = comm.isend(numbers(count, 0), right, 8)
        try:
            comm.recv(np.empty(count - 1, "int64"), left, 8)
        except ringcomm.MismatchError as error:
            assert error.ranks == (left,) and "truncated" in str(error) and str(8 * count) in str(error)
        else:
            raise AssertionError("nothing was raised")
        request.wait()
    comm.sendrecv(np.arange(3), right, 0, np.empty(3, "int64"), left, 0)  # the next call succeeds


def taken_back(comm: Any) -> None:
    request = comm.irecv(np.empty(1), around(comm)[1], 77)
    assert request.cancel() and request.test() and request.wait().cancelled and not request.cancel()


def scalars_lists_and_strided_arrays(comm: Any) -> None:
    right, left = around(comm)
    x = np.arange(24.0).reshape(4, 6)
    for sent, expected in ((3.5, [3.5]), ([1, 2], [1, 2]), (np.float32(7), [7]), (x[:, ::2], x[:, ::2].ravel())):
        request, before = comm.isend(sent, right, 2), np.asarray(expected)
        here = np.zeros(before.shape, np.asarray(sent).dtype)
        assert comm.recv(here, left, 2).count(here.dtype) == before.size
        assert np.array_equal(here, before)
        request.wait()
    zero_dimensional = np.zeros(())
    comm.sendrecv(5.0, right, 0, zero_dimensional, left, 0)
    assert zero_dimensional == 5


def messages_while_a_collective_is_under_way(comm: Any) -> None:
    """A waiting rank makes progress on messages and collectives, also without a worker."""
    if comm.size == 1:
        return
    last, x, y = comm.size - 1, numbers(40_000, comm.rank), np.empty(40_000, "int64")
    handle = comm.iallreduce(np.ones(1000))
    if comm.rank == 0:
        comm.recv(y, last, 1)
    assert handle.wait()[0] in (1, comm.size)  # the average, by default
    if comm.rank == last:
        comm.send(x, 0, 1)
    request = comm.irecv(y, last, 2) if comm.rank == 0 else None
    if comm.rank == last:
        comm.send(x, 0, 2)
    comm.iallreduce(np.ones(1000)).wait()
    if request is not None:
        request.wait()
        assert np.array_equal(y, numbers(40_000, last))


def a_blocking_collective_while_messages_are_under_way(comm: Any) -> None:
    """A rank that waits in an ordered call makes progress on messages and non-blocking calls.

    Other ranks need these before they make the ordered call. This works without a worker thread
    too.
    """
    if comm.size == 1:
        return
    right, left = around(comm)
    for count in (1, 40_000, 700_000):
        x, y, z = numbers(count, comm.rank), np.empty(count, "int64"), np.empty(count, "int64")
        if comm.rank == 0:
            requests = [comm.isend(x, right, 1), comm.irecv(y, left, 2)]
            comm.barrier()
            for request in requests:
                request.wait()
        else:
            request = comm.irecv(z, left, 1) if comm.rank == 1 else None
            if comm.rank == comm.size - 1:
                comm.send(x, 0, 2)
            if request is not None:
                request.wait()
                assert np.array_equal(z, numbers(count, 0))
            comm.barrier()
        if comm.rank == 0:
            assert np.array_equal(y, numbers(count, left))
        handle = comm.iallreduce(np.full(count, comm.rank), op="sum")
        total = comm.allreduce(np.ones(3), op="sum") if comm.rank == 0 else None
        assert (handle.wait() == comm.size * (comm.size - 1) // 2).all()
        total = comm.allreduce(np.ones(3), op="sum") if total is None else total
        assert (total == comm.size).all()


CASES = (
    ring_of_every_size,
    every_dtype,
    order_of_one_sender,
    gathered_from_any_source,
    to_oneself_and_to_nobody,
    too_long,
    taken_back,
    scalars_lists_and_strided_arrays,
    messages_while_a_collective_is_under_way,
    a_blocking_collective_while_messages_are_under_way,
)


def huge(comm: Any) -> None:
    right, left = around(comm)
    x, y = np.full(9_000_000, float(comm.rank)), np.empty(9_000_000)
    assert comm.sendrecv(x, right, 1, y, left, 1).nbytes == 72_000_000
    assert (y == left).all()


def all_cases(shared_memory: str = "auto", mpi_threads: bool = True) -> None:
    """Runs all cases on a rank under MPI."""
    config = ringcomm.Config(shared_memory=shared_memory, mpi_threads=mpi_threads)
    with ringcomm.Communicator(config=config) as comm:
        for case in CASES:
            case(comm)
            comm.barrier()


def interrupted(shared_memory: str, mpi_threads: bool) -> None:
    """Ctrl-C ends each wait for a message, and the communicator still works. Under MPI."""
    import os
    import signal
    import threading

    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    with ringcomm.Communicator(config=ringcomm.Config(shared_memory=shared_memory, mpi_threads=mpi_threads)) as comm:
        right, left = around(comm)
        big = np.empty(200_000)
        requests = [comm.irecv(big, left, 9)]
        waits = [
            lambda: comm.recv(big, left, 8),
            lambda: comm.recv(big, ANY_SOURCE, 8),
            lambda: comm.probe(left, 8),
            lambda: comm.send(big, right, 7),
            lambda: requests[0].wait(),
        ]
        for i, wait in enumerate(waits):
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            try:
                wait()
            except KeyboardInterrupt:
                timer.join()
            else:
                raise AssertionError(f"wait {i} was not interrupted")
        comm.barrier()
        sent = comm.isend(numbers(200_000, comm.rank, "float64"), right, 9)
        requests[0].wait(60)
        sent.wait(60)
        assert big.tobytes() == numbers(200_000, left, "float64").tobytes()
        comm.barrier()
    signal.signal(signal.SIGINT, kept)


def leftovers(shared_memory: str) -> None:
    """A short and a long message that no rank receives. MPI still works afterwards. Runs under MPI."""
    comm = ringcomm.Communicator(config=ringcomm.Config(shared_memory=shared_memory))
    if comm.rank == 0:
        requests = [comm.isend(np.zeros(n), 1, 40 + n % 7) for n in (5, 100_000)]
    try:
        comm.close()
    except ringcomm.MismatchError as error:
        assert (comm.rank == 1 and "rank 0 with tag 45 (40 bytes)" in str(error) and "800000 bytes" in str(error)) or (
            comm.rank == 0 and "send(dest=1, tag=45) of 800000 bytes has not completed" in str(error)
        ), error
    else:
        assert comm.rank == 0 and requests[1].test()
    with ringcomm.Communicator() as other:
        other.barrier()


def a_peer_dies() -> None:
    """Rank 1 is killed while rank 0 waits for it. Runs under MPI."""
    import os
    import signal
    import time

    comm = ringcomm.Communicator()
    if comm.rank == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.recv(np.empty(1), ANY_SOURCE, 4)
    except ringcomm.PeerLostError as error:
        print("named", error.ranks, flush=True)
        os._exit(3)


def counted() -> None:
    """Counts of ordered calls, messages and named operations. Runs under MPI."""
    with ringcomm.Communicator(config=ringcomm.Config(shared_memory="off", segment_bytes=1 << 30)) as comm:
        right, left = around(comm)
        x, whole = np.ones(2520), 8 * 2520
        comm.allreduce(x, algorithm="ring")
        comm.sendrecv(x, right, 1, np.empty_like(x), left, 1)
        comm.barrier()
        stats = comm.stats()
        ring = stats.of("allreduce", "ring")
        assert ring.bytes_sent == ring.bytes_received == 2 * whole * (comm.size - 1) // comm.size, str(stats)
        assert ring.messages_sent == ring.messages_received == 2 * (comm.size - 1), str(stats)
        assert stats.of("send", "network").calls == stats.of("recv", "network").calls == 1, str(stats)
        assert stats.of("send").bytes_sent == stats.of("recv").bytes_received > whole, str(stats)
        sums = comm.allreduce(np.array([stats.total.bytes_sent - stats.total.bytes_received], np.int64))
        assert sums[0] == 0, str(stats)
    ringcomm.init()
    before = ringcomm.stats()
    named_and_counted()
    moved = ringcomm.stats() - before
    assert moved.of("allreduce", "shared").calls == 6 and moved.of("agreement").messages_sent > 0, str(moved)


def named_and_counted() -> None:
    """Six named operations, in groups of any size."""
    ringcomm.init()
    handles = [ringcomm.allreduce_async(np.ones(1000), name=f"counted.{i}") for i in range(6)]
    for handle in handles:
        ringcomm.synchronize(handle)
