"""Each wait for an event taken out of our code, one after the other: some seed must show that it was needed.

    RINGCOMM_GPU_PATH=ipc mpiexec -n 2 python mutations.py

A wait is the n-th call of one function of the driver in a call of ours; the stand-in says success to it and does
nothing. One rank of a job, whose every rank leaves out the same.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

import device_array as da
import numpy as np
import ringcomm

WAITS = ("cuStreamWaitEvent", "cuEventQuery")
SEEDS = 12
COUNT = 3_000_000  # of float32: three segments on their way through the host


def scenarios(comm: Any) -> dict[str, Callable[[], bool]]:
    """Each tells whether its result is right on this rank."""
    small, large = np.arange(1000, dtype=np.float32), np.ones(COUNT, np.float32)

    def allreduce(x: Any, in_place: bool) -> bool:
        given = da.from_numpy(x * (comm.rank + 1))
        result = comm.allreduce(given, out=given if in_place else None)
        right = result.get() == x * (comm.size * (comm.size + 1) // 2)
        return bool(right.all())

    def broadcast() -> bool:
        given = da.from_numpy(small + comm.rank)
        return bool((comm.broadcast(given, root=1, out=given).get() == small + 1).all())

    def allgather() -> bool:
        found = comm.allgather(da.from_numpy(small + comm.rank)).get().reshape(comm.size, -1)
        return bool((found == small + np.arange(comm.size)[:, None]).all())

    def over_old_values() -> bool:
        """What is written to is still being read by what came before."""
        out, given = da.from_numpy(small), da.from_numpy(small + comm.rank)
        kept = da.empty(small.shape, np.float32)
        da.copy(kept, out)
        comm.broadcast(given, root=1, out=out)
        return bool((kept.get() == small).all() and (out.get() == small + 1).all())

    return {
        "allreduce": lambda: allreduce(small, False),
        "allreduce in place": lambda: allreduce(small, True),
        "broadcast": broadcast,
        "allgather": allgather,
        "broadcast over old values": over_old_values,
        "allreduce of three segments": lambda: allreduce(large, True),
    }


class Bench:
    def __init__(self, driver: Any, comm: Any) -> None:
        self.driver, self.comm = driver, comm

    def right(self, run: Callable[[], bool], seed: int, leave_out: str = "") -> bool:
        """On every rank."""
        self.driver.standin_seed(ctypes.c_uint64(seed))
        self.driver.standin_ignore(leave_out.encode())
        mine = run()
        self.driver.standin_ignore(b"")
        self.driver.standin_settle()
        return bool(self.comm.allreduce(np.array([mine]), op="min")[0])

    def waits(self, run: Callable[[], bool], name: str) -> int:
        """How often the function is called, on the rank that calls it most often."""
        self.driver.standin_reset_calls()
        run()
        mine = self.driver.standin_calls(name.encode())
        self.driver.standin_settle()
        return int(self.comm.allreduce(np.array([mine]), op="max")[0])


def main() -> None:
    da.use(os.environ["RINGCOMM_CUDA_LIBRARY"])
    driver = ctypes.CDLL(os.environ["RINGCOMM_CUDA_LIBRARY"])
    comm = ringcomm.Communicator()
    bench, unnoticed = Bench(driver, comm), []
    with da.device(comm.rank % int(os.environ.get("STANDIN_DEVICES", "1"))), da.stream(da.new_stream()):
        for name, run in scenarios(comm).items():
            run()
            assert all(bench.right(run, seed) for seed in range(SEEDS)), f"{name} is wrong as it is"
            for function in WAITS:
                # Of a query, the last that says no is the one that counts: each of them is left out by number.
                for number in range(1, min(bench.waits(run, function), 8) + 1):
                    noticed = any(not bench.right(run, seed, f"{function}:{number}") for seed in range(SEEDS))
                    if not noticed:
                        unnoticed.append(f"{name}: {function} {number}")
                    if comm.rank == 0:
                        print(f"{name}: {function} {number}: {'noticed' if noticed else 'NOT NOTICED'}", flush=True)
    comm.close()
    sys.exit(1 if unnoticed else 0)


if __name__ == "__main__":
    main()
