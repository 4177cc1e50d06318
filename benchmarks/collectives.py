"""Compares the other collectives on one host with MPI's, timed as by `ringcomm bench`.

    python benchmarks/collectives.py --python .venv/bin/python --python .venv-openmpi/bin/python --json collectives.json

It times broadcast, reduce, allgather, reducescatter, alltoall and barrier of ordinary float32 NumPy
arrays, on pinned ranks. A size is that of the complete buffer (allgather, reducescatter, alltoall:
of all ranks' parts together). Inputs are rewritten before each call and results checked after it,
which is not timed. Ranks are started several times, because the addresses of a start's arrays
change large copies by 10 %; medians are over the calls of all starts.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from typing import Any

import jobs
import measure

from ringcomm._src.cli import bench

COLLECTIVES = "broadcast,reduce,allgather,reducescatter,alltoall,barrier"
SIZES = "4,256,4K,64K,1M,16M,64M"


def worker(task: dict[str, Any]) -> None:
    from mpi4py import MPI

    import ringcomm

    world = MPI.COMM_WORLD
    measure.pin(world.rank)
    comm = ringcomm.Communicator(world)
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    rows: dict[str, list[dict[str, Any]]] = {}
    for collective in task["collectives"]:
        smallest = 0 if collective in ("broadcast", "reduce", "barrier") else 4 * world.size  # one element per rank
        options = parser.parse_args([collective, "--repeat", str(task["repeat"])])
        options.sizes = [max(size, smallest) for size in task["sizes"]]
        measured = bench.measure_all(options, comm, world)
        if any(row.wrong for row in measured):
            raise SystemExit(f"{collective} gave wrong results")
        rows[collective] = [dataclasses.asdict(row) for row in measured]
    if world.rank == 0:
        jobs.give_back(task, {"machine": measure.machine(), "rows": rows})
    comm.close()


def join(starts: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns one result, whose rows cover the calls of all starts."""
    for collective, rows in starts[0]["rows"].items():
        for size in dict.fromkeys(row["size"] for row in rows):
            seconds: dict[str, list[float]] = {}
            for row in (row for start in starts for row in start["rows"][collective] if row["size"] == size):
                seconds.setdefault(row["algorithm"], []).extend(row["times"])
            for row in (row for row in rows if row["size"] == size):
                name = row["algorithm"]
                row["times"], middle = seconds[name], statistics.median(seconds[name])
                row["algbw"], row["busbw"] = (row[width] * row["time"] / middle for width in ("algbw", "busbw"))
                row["time"] = middle
                row["speedup"], row["speedup_low"], row["speedup_high"] = measure.ratio(seconds["mpi"], seconds[name])
    return starts[0]


def main() -> int:
    parser = jobs.make_parser(__doc__, SIZES)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (default 2,4)")
    parser.add_argument("--collectives", default=COLLECTIVES, help=f"(default {COLLECTIVES})")
    parser.add_argument("--repeat", type=int, default=15, help="timed calls of large buffers; small ones get more")
    parser.add_argument("--starts", type=int, default=3, help="of the ranks (default 3)")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return 0
    task = {"collectives": options.collectives.split(","), "sizes": options.sizes, "repeat": options.repeat}
    results = jobs.for_each_mpi(options, __file__, task, options.starts, join)
    if options.plot:
        from plots import plot_collectives

        plot_collectives(results, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
