"""Removes each wait for an event from ringcomm's code in turn: some seed must fail then.

    RINGCOMM_GPU_ROUTE=ipc mpiexec -n 2 python mutations.py

A wait is the n-th call of one driver function in a call of ringcomm; the stand-in returns success
for it and does nothing. This script is one rank of a job, and every rank leaves out the same wait.
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
import pretended_hosts

import ringcomm

SEEDS = range(6), range(6, 60)
COUNT = 3_000_000  # float32 elements: three segments when staged through the host


def scenarios(comm: Any, held: list[Any]) -> dict[str, Callable[[], bool]]:
    """Returns functions that each make a call and return whether its result is right on this rank.

    They keep the result in `held`, because peers may still write to it when a wait is missing. No
    two runs have the same values, so that old values are never right.
    """
    runs = itertools.count(1)
    ramp, ones = np.arange(1000, dtype=np.float32), np.ones(COUNT, np.float32)

    def allreduce(x: Any, in_place: bool) -> bool:
        x = x + next(runs)
        given = da.from_numpy(x * (comm.rank + 1))
        result = comm.allreduce(given, out=given if in_place else None)
        held.append(result)
        found = result.get()
        da.fill_bytes(given, 7)  # peers may still read it
        return bool((found == x * (comm.size * (comm.size + 1) // 2)).all())

    def broadcast() -> bool:
        small = ramp + 3 * next(runs)
        given = da.from_numpy(small + comm.rank)
        result = comm.broadcast(given, root=1)
        held.append(result)
        da.fill_bytes(given, 7)  # peers may still read it
        return bool((result.get() == small + 1).all())

    def allgather() -> bool:
        small = ramp + 3 * next(runs)
        given = da.from_numpy(small + comm.rank)
        result = comm.allgather(given)
        held.append(result)
        da.fill_bytes(given, 7)
        return bool((result.get().reshape(comm.size, -1) == small + np.arange(comm.size)[:, None]).all())

    def in_a_row() -> bool:
        """Makes three calls; the third may write to memory that peers still read for the first."""
        given = [ramp + 3 * next(runs) for _ in range(3)]
        results = [comm.allreduce(da.from_numpy(x)) for x in given]
        held.extend(results)
        return all((found.get() == x * comm.size).all() for found, x in zip(results, given, strict=True))

    def over_old_values() -> bool:
        """Writes to memory that an earlier operation still reads."""
        small = ramp + 3 * next(runs)
        out, given = da.from_numpy(small), da.from_numpy(small + comm.rank)
        kept = da.empty(small.shape, np.float32)
        da.copy(kept, out)
        comm.broadcast(given, root=1, out=out)
        da.fill_bytes(given, 7)
        return bool((kept.get() == small).all() and (out.get() == small + 1).all())

    # On other routes a wait of one call can replace a missing wait of the next.
    rows = {"allreduces in a row": in_a_row} if os.environ["RINGCOMM_GPU_ROUTE"] == "ipc" else {}
    return {
        "allreduce": lambda: allreduce(ramp, False),
        "allreduce in place": lambda: allreduce(ramp, True),
        "broadcast": broadcast,
        "allgather": allgather,
        "broadcast over old values": over_old_values,
        "allreduce of three segments": lambda: allreduce(ones, True),
        **rows,
    }


class Bench:
    def __init__(self, driver: Any, comm: Any) -> None:
        self.driver, self.comm = driver, comm
        self.held: list[Any] = []

    def everywhere(self, mine: int, op: str) -> int:
        """Reduces a value over all ranks while no operation is in flight on any rank."""
        self.driver.standin_settle()
        found = int(self.comm.allreduce(np.array([mine]), op=op)[0])
        self.held.clear()
        return found

    def right(self, run: Callable[[], bool], seed: int, leave_out: str = "") -> bool:
        """Returns whether the result is right on every rank."""
        self.driver.standin_seed(ctypes.c_uint64(seed))
        self.driver.standin_ignore(leave_out.encode())
        mine = run()
        self.driver.standin_ignore(b"")
        return bool(self.everywhere(mine, "min"))

    def waits(self, run: Callable[[], bool], name: str) -> int:
        """Returns how often the function is called, on the rank that calls it most often."""
        self.driver.standin_reset_calls()
        run()
        return self.everywhere(self.driver.standin_calls(name.encode()), "max")


def main() -> None:
    da.use(os.environ["RINGCOMM_CUDA_LIBRARY"])
    driver = ctypes.CDLL(os.environ["RINGCOMM_CUDA_LIBRARY"])
    pretended_hosts.pretend()
    comm = ringcomm.Communicator()
    bench, noticed = Bench(driver, comm), dict[str, bool]()
    with da.device(comm.rank % int(os.environ.get("STANDIN_DEVICES", "1"))), da.stream(da.new_stream()):
        runs, waits = scenarios(comm, bench.held), dict[str, list[str]]()
        for name, run in runs.items():
            run()
            assert all(bench.right(run, seed) for seed in range(8)), f"{name} is wrong as it is"
            numbers = range(1, bench.waits(run, "cuStreamWaitEvent") + 1)
            looks = ["cuEventQuery:*"] if bench.waits(run, "cuEventQuery") else []
            waits[name] = [f"cuStreamWaitEvent:{number}" for number in numbers] + looks
        for seeds in SEEDS:  # more seeds for waits that no call has shown to be needed
            for name, run in runs.items():
                for left_out in [one for one in waits[name] if seeds is SEEDS[0] or not noticed[one]]:
                    shown = any(not bench.right(run, seed, left_out) for seed in seeds)
                    noticed[left_out] = noticed.get(left_out, False) or shown
                    if comm.rank == 0:
                        print(f"{name}: {left_out}: {'noticed' if shown else 'not noticed'}", flush=True)
    comm.close()
    # The n-th wait of a call is the same wait in every run.
    unnoticed = [left_out for left_out, shown in noticed.items() if not shown]
    sys.exit(f"noticed by no call: {unnoticed}" if unnoticed else 0)


if __name__ == "__main__":
    main()
