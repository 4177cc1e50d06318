"""Compares ping-pong between ranks of one host with mpi4py's Send and Recv: latency and bandwidth.

    python benchmarks/point_to_point.py --python .venv/bin/python --python .venv-openmpi/bin/python --json p2p.json

For each MPI, pinned ranks time in turns, in random order within one run, the first two on the same
arrays:

    mpi       MPI_Send and MPI_Recv through mpi4py's buffer calls
    ordinary  Communicator.send and recv of ordinary arrays
    shared    the same with shared arrays (Communicator.empty)

With four ranks, the pairs 0 and 2, and 1 and 3, run at the same time; on two cores each pair shares
one.

A time is half a round trip, the slowest rank's; a timing covers many small messages. Ratios have a
95 % bootstrap interval. The script lists cells where ringcomm may take more than MPI's time, by the
interval's upper end; with --strict it then exits with status 1.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jobs
import measure

from ringcomm._src.cli import measured
from ringcomm._src.cli.sizes import human_size

SIZES = "0,4,1K,4K,16K,64K,256K,1M,4M,16M"
OURS = ("ordinary", "shared")


# ---- on the ranks ----------------------------------------------------------------------------------------------------
def contestants(world: Any, comm: Any, nbytes: int) -> dict[str, Callable[[], None]]:
    import numpy as np

    half = world.size // 2
    peer, begins = (world.rank + half) % world.size, world.rank < half

    def made(send: Callable[..., object], receive: Callable[..., object], x: Any, y: Any) -> Any:
        x[:], y[:] = world.rank + 1, 0

        def round_trip() -> None:
            if begins:
                send(x, peer, 1)
                receive(y, peer, 1)
            else:
                receive(y, peer, 1)
                send(x, peer, 1)

        round_trip()
        assert (y == peer + 1).all()
        return round_trip

    # MPI and ringcomm use the same arrays, because their position in caches matters more than the
    # copying code.
    ordinary = np.empty(nbytes, "uint8"), np.empty(nbytes, "uint8")
    shared = comm.empty(nbytes, "uint8"), comm.empty(nbytes, "uint8")
    return {
        "mpi": made(world.Send, world.Recv, *ordinary),
        "ordinary": made(comm.send, comm.recv, *ordinary),
        "shared": made(comm.send, comm.recv, *shared),
    }


def calls_in_a_timing(nbytes: int) -> int:
    return 1000 if nbytes <= 4096 else 100 if nbytes <= 65536 else 10 if nbytes <= 1 << 20 else 3


def timing(world: Any, round_trip: Callable[[], None], calls: int, _turn: int) -> float:
    """Returns the seconds of half a round trip."""
    world.Barrier()
    round_trip()
    begin = time.perf_counter()
    for _ in range(calls):
        round_trip()
    return (time.perf_counter() - begin) / calls / 2


def worker(task: dict[str, Any]) -> None:
    from mpi4py import MPI

    import ringcomm

    world = MPI.COMM_WORLD
    measure.pin(world.rank)
    comm = ringcomm.Communicator(world)
    rows = []
    for nbytes in task["sizes"]:
        calls = calls_in_a_timing(nbytes)
        chosen = {name: partial(timing, world, one, calls) for name, one in contestants(world, comm, nbytes).items()}
        rows.append({"nbytes": nbytes, "seconds": measured.take_turns(world, chosen, task["repeat"], nbytes)})
        if world.rank == 0:
            print(line(rows[-1]), flush=True)
    if world.rank == 0:
        jobs.give_back(task, {"machine": measure.machine(), "rows": rows})
    comm.close()


# ---- outside the ranks -----------------------------------------------------------------------------------------------
def line(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    cells = [f"{human_size(row['nbytes']):>8}  mpi {statistics.median(seconds['mpi']) * 1e6:10.2f} us"]
    for name in OURS:
        own = statistics.median(seconds[name])
        middle, low, high = measure.ratio(seconds["mpi"], seconds[name])
        speed = row["nbytes"] / own / 1e9
        cells.append(
            f"{name} {own * 1e6:10.2f} us ({speed:.2f} GB/s), {middle:.2f} times faster [{low:.2f}, {high:.2f}]"
        )
    return "  ".join(cells)


def failing(results: list[dict[str, Any]]) -> list[str]:
    """Returns the cells where the upper end of the interval of time / MPI's time is above 1."""
    found = []
    for result in results:
        for row in result["rows"]:
            for name in OURS:
                middle, low, high = measure.ratio(row["seconds"][name], row["seconds"]["mpi"])
                if high > 1:
                    mpi = measure.mpi_name(result["machine"]["mpi"])
                    where = f"{mpi}, {result['ranks']} ranks, {human_size(row['nbytes'])}, {name}"
                    found.append(f"{where}: {middle:.2f} of MPI's time [{low:.2f}, {high:.2f}]")
    return found


def main() -> int:
    parser = jobs.make_parser(__doc__, SIZES)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, even (default 2,4)")
    parser.add_argument("--repeat", type=int, default=25)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a cell fails")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return 0
    cells = failing(jobs.for_each_mpi(options, __file__, {"sizes": options.sizes, "repeat": options.repeat}))
    print("\n".join([f"# {len(cells)} cells above MPI's time:", *cells]))
    return 1 if cells and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
