"""The driver fails one rank: nobody hangs, every rank learns of it as of any other failure, memory comes back.

    RINGCOMM_GPU_ROUTE=ipc mpiexec -n 2 python faults.py launch:1

The fault is rank 1's, once a first call has been made. "harmless" is printed where all went well even so, else the
kind of error that each rank met.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any

import device_array as da
import numpy as np
import pretended_hosts

import ringcomm
from ringcomm._src.core import _core


class Leaks(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_long)
        for name in ("allocations", "streams", "events", "registrations", "opened", "modules", "pinned", "contexts")
    )


def leaks(driver: Any) -> dict[str, int]:
    found = Leaks()
    driver.standin_leaks(ctypes.byref(found))
    return {name: getattr(found, name) for name, _ in Leaks._fields_}


def calls(comm: Any, *counts: int) -> None:
    """Until the fault has shown, if it does."""
    for count in counts:
        for _ in range(4):
            given = [da.from_numpy(np.ones(count, np.float32)) for _ in range(2)]  # in place: we alone allocate
            comm.allreduce(given[0], out=given[0])
            ringcomm.synchronize(ringcomm.allreduce_async_(given[1], op=ringcomm.Sum))
            found = [one.get() for one in given]
            assert all((one == comm.size).all() for one in found), found


def main() -> None:
    da.use(os.environ["RINGCOMM_CUDA_LIBRARY"])
    driver = ctypes.CDLL(os.environ["RINGCOMM_CUDA_LIBRARY"])
    pretended_hosts.pretend()
    comm = ringcomm.Communicator()
    ringcomm.init()
    with da.device(comm.rank % int(os.environ.get("STANDIN_DEVICES", "1"))), da.stream(da.new_stream()):
        calls(comm, 10, 100_000)
        if comm.rank == 1:
            driver.standin_fault(sys.argv[1].encode())
        met = "harmless"
        try:
            calls(comm, 10, 200_000)
        except (ringcomm.RingcommError, RuntimeError, MemoryError) as error:
            if not isinstance(error, (ringcomm.RingcommError, MemoryError)):
                raise  # the driver's, in a call that is not ringcomm's: the script ends, and the job with it
            met = type(error).__name__
            text = str(error)
    print(f"rank {comm.rank}: {met}", flush=True)
    if met == "harmless":
        driver.standin_fault(b"")
        ringcomm.shutdown()
        comm.close()
        driver.standin_settle()
        _core.DeviceMemory(comm.rank % int(os.environ.get("STANDIN_DEVICES", "1")), 1)  # what was put off is done now
        left = leaks(driver)
        print(f"rank {comm.rank}: {left['registrations']} registrations, {left['opened']} opened left", flush=True)
        return
    print(f"rank {comm.rank}: {text}", flush=True)
    for end in (ringcomm.shutdown, comm.close):
        try:
            end()
        except (ringcomm.RingcommError, RuntimeError) as error:
            print(f"rank {comm.rank}: closing: {error}", flush=True)
    time.sleep(1)  # a launcher ends the others as soon as one has ended
    os._exit(3)


if __name__ == "__main__":
    main()
