"""Tests the stand-in for NCCL: its collectives in stream order between processes, and its refusals."""

import os
import textwrap
from pathlib import Path

import pytest
from standin.processes import folder, start

PROGRAM = """
    import os, struct
    nccl = ctypes.CDLL({folder!r} + "/libnccl.so.2")
    class Id(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 128)]
    rank, size, unique = int(os.environ["PMI_RANK"]), {size}, Id.from_buffer_copy(bytes.fromhex({unique!r}))
    comm, stream = ctypes.c_void_p(), driver.stream()
    def call(name, *arguments, fails=0):
        arguments = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        code = getattr(nccl, name)(*arguments)
        assert code == fails, (rank, name, code, nccl.ncclGetLastError)
    nccl.ncclGetLastError.restype = ctypes.c_char_p
    SUM, PROD, MAX, MIN, AVG = range(5)
    I32, F16, F32, F64, BF16 = 2, 6, 7, 8, 9
    def device(data):
        address = driver.alloc(len(data))
        driver.poke(address, data)
        return address
    def init(fails=0):
        call("ncclCommInitRank", ctypes.byref(comm), size, unique, rank, fails=fails)
    def read(address, form, count):
        driver.cuStreamSynchronize(stream)
        return struct.unpack(f"{{count}}{{form}}", driver.peek(address, count * struct.calcsize(form)))
"""


def rooms() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("standin_nccl_*")}


def ranks(size: int, body: str, devices: list[int] | None = None, **environment: object) -> list[tuple[int, str, str]]:
    unique = os.urandom(128).hex()
    program = textwrap.dedent(PROGRAM).format(folder=str(folder()), size=size, unique=unique) + textwrap.dedent(body)
    devices = devices or list(range(size))
    processes = [
        start(program, device, **{"STANDIN_DEVICES": size, "PMI_RANK": rank} | environment)
        for rank, device in enumerate(devices)
    ]
    try:
        outputs = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(name.endswith(unique[:32]) for name in rooms())
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def good(results: list[tuple[int, str, str]]) -> None:
    assert all(code == 0 for code, _, _ in results), "\n".join(err for _, _, err in results)


EVERYTHING = """
    init()
    everyone = range(size)
    for seed in range(8):
        driver.library.standin_seed(ctypes.c_uint64(seed * 100 + rank))
        driver.library.standin_delay(ctypes.c_long(1000 * (seed % 2)))
        stream, n = driver.stream(), 1000 + 150000 * (seed == 0)
        x, y, z = driver.alloc(4 * n), driver.alloc(4 * n), driver.alloc(4 * n * size)
        driver.poke(y, struct.pack("f", -1) * n)
        driver.poke(z, struct.pack("f", -1) * n * size)
        source = driver.pinned(4 * n)
        ctypes.memmove(source, struct.pack("f", rank + 1 + seed) * n, 4 * n)
        driver.cuMemcpyHtoDAsync_v2(x, source, 4 * n, stream)  # what follows must come after it
        values = [r + 1 + seed for r in everyone]
        call("ncclAllReduce", x, y, n, F32, SUM, comm, stream)
        assert set(read(y, "f", n)) == {sum(values)}
        call("ncclAllGather", x, z, n, F32, comm, stream)
        assert list(read(z, "f", n * size)[::n]) == values
        call("ncclReduceScatter", z, y, n, F32, MAX, comm, stream)
        assert set(read(y, "f", n)) == {values[rank]}
        for root in everyone:
            call("ncclBroadcast", x, y, n, F32, root, comm, stream)
            assert set(read(y, "f", n)) == {values[root]}
            call("ncclReduce", x, y, n, F32, MIN, root, comm, stream)
            assert set(read(y, "f", n)) == {values[0] if root == rank else values[root]}
        call("ncclGroupStart")
        call("ncclSend", x, n, F32, (rank + 1) % size, comm, stream)
        call("ncclRecv", y, n, F32, (rank - 1) % size, comm, stream)
        call("ncclGroupEnd")
        assert set(read(y, "f", n)) == {values[rank - 1]}
        call("ncclAllReduce", x, x, n, F32, AVG, comm, stream)
        assert abs(read(x, "f", 1)[0] - sum(values) / size) < 1e-4
    call("ncclCommDestroy", comm)
"""


@pytest.mark.parametrize("size", [1, 2, 3])
def test_collectives(size):
    good(ranks(size, EVERYTHING))


def test_types_and_operators():
    body = """
    init()
    def reduced(type_, op, data):
        x = device(data)
        call("ncclAllReduce", x, x, len(data) // width, type_, op, comm, stream)
        driver.cuStreamSynchronize(stream)
        return driver.peek(x, len(data))
    own = [1.5, -2.0, 65504.0, 2.0**-24, 0.1]
    for width, type_, form in ((2, F16, "e"), (4, F32, "f"), (8, F64, "d")):
        sums = reduced(type_, SUM, struct.pack(f"5{form}", *[v * rank for v in own]))  # rank 0 adds nothing
        assert sums == struct.pack(f"5{form}", *own), (form, sums)
        assert reduced(type_, MAX, struct.pack(f"5{form}", *own)) == struct.pack(f"5{form}", *own)
        product = reduced(type_, PROD, struct.pack(form, 3.0))
        assert product == struct.pack(form, 9.0)
    width = 2
    assert reduced(BF16, SUM, b"\\x80\\x3f" * 3) == b"\\x00\\x40" * 3  # 1 + 1
    width = 4
    assert reduced(I32, MIN, struct.pack("i", -5 * rank)) == struct.pack("i", -5)
    op = ctypes.c_int()
    factor = ctypes.c_float(0.5 + rank)
    call("ncclRedOpCreatePreMulSum", ctypes.byref(op), ctypes.byref(factor), F32, 1, comm)
    x = device(struct.pack("f", 2.0))
    call("ncclAllReduce", x, x, 1, F32, op, comm, stream)
    call("ncclRedOpDestroy", op, comm)  # what is queued has its factor
    assert read(x, "f", 1) == (4.0,)
    call("ncclAllReduce", x, x, 1, F32, op, comm, stream, fails=4)
    host = ctypes.create_string_buffer(8)
    call("ncclAllReduce", ctypes.addressof(host), x, 1, F32, SUM, comm, stream, fails=4)
    call("ncclCommDestroy", comm)
    """
    good(ranks(2, body))


def test_order_is_the_streams_alone():
    """Checks that without an event an all-reduce may read old data: under some seeds it does."""
    body = """
    init()
    old = 0
    for seed in range(20):
        for wait in (True, False):
            driver.library.standin_seed(ctypes.c_uint64(seed))  # alike on both ranks
            driver.library.standin_delay(ctypes.c_long(20000))
            a, b, event = driver.stream(), driver.stream(), driver.event()
            x, y = device(b"\\0" * 4000), device(b"\\0" * 4000)
            driver.cuMemsetD8Async(x, 1, 4000, a)
            driver.cuEventRecord(event, a)
            if wait:
                driver.cuStreamWaitEvent(b, event, 0)
            call("ncclAllReduce", x, y, 1000, I32, SUM, comm, b)
            driver.cuStreamSynchronize(b)
            seen = driver.peek(y, 1)[0]
            assert seen == 2 or not wait
            old += seen != 2
            driver.library.standin_settle()
    assert old > 3, old
    """
    good(ranks(2, body))


def test_operations_of_a_communicator_are_in_order_over_streams():
    body = """
    init()
    for seed in range(20):
        driver.library.standin_seed(ctypes.c_uint64(seed * 7 + rank))
        driver.library.standin_delay(ctypes.c_long(60_000_000))
        streams = [driver.stream() for _ in range(3)]
        buffers = [device(struct.pack("i", 10**k) * 1000) for k in range(3)]
        for buffer, stream in zip(buffers, streams):
            call("ncclAllReduce", buffer, buffer, 1000, I32, SUM, comm, stream)
        for k in (2, 0, 1):
            driver.cuStreamSynchronize(streams[k])
            assert driver.peek(buffers[k], 4) == struct.pack("i", 2 * 10**k)
    """
    good(ranks(2, body))


def test_two_ranks_on_one_device_are_refused():
    body = """
    init(fails=5)
    assert b"Duplicate GPU detected" in nccl.ncclGetLastError(None), nccl.ncclGetLastError(None)
    """
    good(ranks(2, body, devices=[0, 0]))


def test_abort_frees_who_waits():
    body = """
    init()
    x = device(b"0" * 4)
    if rank == 0:  # the other never comes
        call("ncclAllReduce", x, x, 1, F32, SUM, comm, stream)
        call("ncclCommAbort", comm)
        driver.cuStreamSynchronize(stream)
    """
    good(ranks(2, body))


@pytest.mark.parametrize("cause", ["fault", "death"])
def test_a_dead_peer_is_reported(cause):
    body = """
    init()
    x, error = device(b"0" * 4), ctypes.c_int(0)
    if rank == 1 and "STANDIN_FAULT" not in os.environ:
        os._exit(0)
    call("ncclAllReduce", x, x, 1, F32, SUM, comm, stream)
    while error.value == 0:
        call("ncclCommGetAsyncError", comm, ctypes.byref(error))
    assert error.value == 6
    assert driver.code("cuStreamQuery", stream) == NOT_READY
    call("ncclAllReduce", x, x, 1, F32, SUM, comm, stream, fails=6)
    call("ncclCommAbort", comm)
    driver.cuStreamSynchronize(stream)
    """
    good(ranks(2, body, **({"STANDIN_FAULT": "nccl_peer:1"} if cause == "fault" else {})))
