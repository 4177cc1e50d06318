"""Cases of tests/gpu/test_api.py for messages and new arrays."""

from __future__ import annotations

import device_array as da
import numpy as np
from api_arrays import KINDS, Here, case, check, late, raises

import ringcomm
from ringcomm._src.arrays.device import devices


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
            check(y, expected)  # no operation in flight writes to it later
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
    raises(ValueError, "must be C-contiguous", lambda: here.comm.recv(turned, 0))


@case
def new_arrays_lie_on_this_ranks_gpu(here: Here) -> None:
    x = here.comm.empty((2, 3), "int16", device="cuda")
    assert isinstance(x, ringcomm.DeviceArray) and x.device == here.comm.local_rank % devices.count()
    assert (x.shape, x.dtype, x.nbytes) == ((2, 3), np.int16, 12)
    many = devices.count()
    last = many - 1
    assert here.comm.empty(3, device=f"cuda:{last}").device == here.comm.empty(3, device=last).device == last
    assert isinstance(here.comm.empty(3), np.ndarray) and isinstance(here.comm.empty(3, device="cpu"), np.ndarray)
    missing = f"there is no GPU {many} here: the CUDA driver reports {many}"
    raises(ValueError, missing, lambda: here.comm.empty(3, device=f"cuda:{many}"))
    raises(ValueError, "not 'disk'", lambda: here.comm.empty(3, device="disk"))
    x.set(np.full((2, 3), here.rank))
    check(here.comm.allreduce(x, ringcomm.Max), np.full((2, 3), here.size - 1))


@case
def two_memories_in_one_call_are_refused(here: Here) -> None:
    x, y = np.ones(4, np.float32), late(np.zeros(4, np.float32))
    here.comm.allreduce(x, out=x.copy())  # the next call resembles a cached call
    raises(ValueError, "is on the host and its output on GPU", lambda: here.comm.allreduce(x, out=y))
    raises(ValueError, "and its output on the host", lambda: here.comm.allreduce(y, out=x))
    if devices.count() > 1:
        mine, other = here.comm.empty(4, device="cuda"), here.comm.empty(4, device=1 - here.comm.local_rank % 2)
        raises(ValueError, "both must be in the same memory", lambda: here.comm.allreduce(mine, out=other))
    check(here.comm.allreduce(x), np.full(4, here.size, np.float32))
