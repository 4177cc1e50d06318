"""Makes the driver fail on one rank: no rank hangs, every rank gets an error, memory is freed.

    RINGCOMM_GPU_ROUTE=ipc mpiexec -n 2 python faults.py launch:1

The fault occurs on rank 1, after a first call. Each rank prints "harmless" if all calls succeed,
otherwise the kind of error.
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
    """Makes calls until the fault has occurred, or to the end."""
    for count in counts:
        for _ in range(4):
            # in place, so that only this script allocates
            given = [da.from_numpy(np.ones(count, np.float32)) for _ in range(2)]
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
                raise  # a driver error outside ringcomm ends the script, and the job with it
            met = type(error).__name__
            text = str(error)
    print(f"rank {comm.rank}: {met}", flush=True)
    if met == "harmless":
        driver.standin_fault(b"")
        ringcomm.shutdown()
        comm.close()
        driver.standin_settle()
        _core.DeviceMemory(comm.rank % int(os.environ.get("STANDIN_DEVICES", "1")), 1)  # executes deferred releases
        left = leaks(driver)
        print(f"rank {comm.rank}: {left['registrations']} registrations, {left['opened']} opened left", flush=True)
        return
    print(f"rank {comm.rank}: {text}", flush=True)
    for end in (ringcomm.shutdown, comm.close):
        try:
            end()
        except (ringcomm.RingcommError, RuntimeError) as error:
            print(f"rank {comm.rank}: closing: {error}", flush=True)
    time.sleep(1)  # a launcher ends all ranks as soon as one ends
    os._exit(3)


if __name__ == "__main__":
    main()
