"""Measures small all-reduces over many starts of unbound ranks, on a quiet or busy machine.

    python benchmarks/starts.py --python .venv/bin/python --python .venv-openmpi/bin/python --json starts.json
    python benchmarks/starts.py --busy --starts 5

The kernel places ranks differently at each start, so one start shows little. In each start,
Communicator.allreduce and MPI_Allreduce take turns on ordinary arrays. A timing covers several
consecutive calls, and is the slowest rank's. With --unbound every second start has RINGCOMM_BIND=0.
The script prints ratios of MPI's time to ringcomm's, of medians and of 95th percentiles: the median
and the lowest over all starts.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jobs
import measure
import numpy as np
from cluster import mpi_kind

from ringcomm._src.cli.measured import now, take_turns
from ringcomm._src.cli.sizes import human_size

CALLS = 20  # calls in a timing


def worker(task: dict[str, Any]) -> None:
    from mpi4py import MPI

    import ringcomm

    world = MPI.COMM_WORLD
    comm = ringcomm.Communicator(world)
    rows = []
    for nbytes in task["sizes"]:
        mine, out = np.ones(nbytes // 4, np.float32), np.empty(nbytes // 4, np.float32)

        def timed(call: Callable[[], object]) -> Callable[[int], float]:
            def timing(_: int) -> float:
                world.Barrier()
                begin = time.perf_counter()
                for _ in range(CALLS):
                    call()
                return (time.perf_counter() - begin) / CALLS

            return timing

        contestants = {
            "mpi": timed(lambda mine=mine, out=out: world.Allreduce(mine, out)),
            "ours": timed(lambda mine=mine, out=out: comm.allreduce(mine, ringcomm.Sum, out)),
        }
        seconds = take_turns(world, contestants, task["repeat"], nbytes, uncounted=2)
        rows.append({"nbytes": nbytes, **{name: _summary(times) for name, times in seconds.items()}})
    if world.rank == 0:
        jobs.give_back(task, {"machine": measure.machine(), "rows": rows})
    comm.close()


def _summary(times: list[float]) -> dict[str, float]:
    return {"median": float(np.median(times)), "p95": float(np.percentile(times, 95))}


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Runs processes that compute all the time, on the cores that the kernel chooses."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def ratios(starts: list[dict[str, Any]], index: int, value: str) -> list[float]:
    return [start["rows"][index]["mpi"][value] / start["rows"][index]["ours"][value] for start in starts]


def show(kind: str, ranks: int, what: str, starts: list[dict[str, Any]]) -> None:
    for index, row in enumerate(starts[0]["rows"]):
        cells = [f"{kind}, {ranks} ranks, {what}, {human_size(row['nbytes']):>5}:"]
        for value in ("median", "p95"):
            found = ratios(starts, index, value)
            cells.append(f"{value} {np.median(found):6.2f} times faster than MPI, lowest of starts {min(found):5.2f};")
        print(" ".join(cells), flush=True)


def main() -> int:
    parser = jobs.make_parser(__doc__, "4,16K,256K")
    parser.add_argument("--ranks", default="2", help="numbers of ranks (default 2)")
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=100, help="timings in a start")
    parser.add_argument("--busy", action="store_true", help="beside a busy process per core")
    parser.add_argument("--unbound", action="store_true", help="every second start with RINGCOMM_BIND=0")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return 0
    task = {"sizes": options.sizes, "repeat": options.repeat}
    crowd = measure.USABLE_CORES if options.busy else 0
    with busy_processes(crowd):
        for python in jobs.pythons(options):
            kind = mpi_kind(jobs.launcher_of(python))
            for ranks in map(int, options.ranks.split(",")):
                starts: dict[str, list[dict[str, Any]]] = {bind: [] for bind in ("1", "0")[: 1 + options.unbound]}
                for index in range(options.starts * len(starts)):
                    bind = os.environ["RINGCOMM_BIND"] = list(starts)[index % len(starts)]
                    starts[bind].append(jobs.on_this_host(python, __file__, ranks, task))
                for bind, found in starts.items():
                    what = ("bound by us" if bind == "1" else "unbound") + (", beside busy processes" if crowd else "")
                    show(kind, ranks, what, found)
                    row = {"kind": kind, "ranks": ranks, "busy": crowd, "bound": bind == "1", "date": now()}
                    if options.json:
                        result = {**row, "machine": found[0]["machine"], "starts": [one["rows"] for one in found]}
                        measure.write_merged(options.json, [result], ("kind", "ranks", "busy", "bound"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
