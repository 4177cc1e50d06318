"""Measures how time and memory grow with ranks, names, process sets and hosts.

    python benchmarks/growth.py --json benchmarks/results/growth.json

For each of these, the rest stays as it is, and a power law n^e is fitted to the medians:

    ranks    1 to 9 on the cores of this host
    names    10 to 10,000 gradients of 4 B, submitted by name and waited for, on 2 ranks
    sets     1 to 100 process sets of five ranks, on 9 ranks
    hosts    2 to 16 of one rank each: namespaces of this host, with links of 10 Gbit/s (as root)

"limit" is the exponent of the work that cannot be avoided: if ranks share cores, each of them must
run in every call, so time grows with their number. How the kernel switches between ranks adds to
that; "MPI" is the same call of mpi4py in the same job. The fit for ranks leaves out the points
where each rank has a core. Memory is what a rank does not share (Private_* of smaps_rollup).
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jobs
import measure
import numpy as np
from cluster import Cluster

from ringcomm._src.cli.measured import now

Points = dict[str, dict[int, float]]  # by n

KINDS = {
    "ranks": (1, 2, 3, 4, 5, 6, 7, 8, 9),
    "names": (10, 100, 1000, 10_000),
    "sets": (1, 3, 10, 30, 100),
    "hosts": (2, 4, 8, 16),
}
# Exponents of the work that cannot be avoided; 0: independent of n.
RANKS = {
    "4 KB all-reduce (s)": 1.0,
    "MPI, 4 KB all-reduce (s)": 1.0,
    "1 MB all-reduce (s)": 1.0,
    "MPI, 1 MB all-reduce (s)": 1.0,
    "named gradient (s)": 1.0,
    "memory of a rank (B)": 0.0,
}
LIMITS = {
    **{(kind, what): limit for kind in ("ranks", "hosts") for what, limit in RANKS.items()},
    ("names", "a step's gradients (s)"): 1.0,
    ("names", "memory of the names (B)"): 1.0,
    ("sets", "one more set (s)"): 0.0,
    ("sets", "gradient in the last set (s)"): 0.0,
    ("sets", "memory of the sets (B)"): 1.0,
}


# ---- on the ranks ----------------------------------------------------------------------------------------------------
def private_memory() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_"))


def seconds_of(call: Callable[[], object], calls: int, turns: int) -> float:
    """Returns the median over turns of a call's time."""
    call()
    found = []
    for _ in range(turns):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - begin) / calls)
    return statistics.median(found)


def by_ranks(turns: int, number: int) -> dict[str, float]:
    from mpi4py import MPI

    import ringcomm

    comm, world, one = ringcomm.communicator(), MPI.COMM_WORLD, np.ones(1, np.float32)
    found = {"memory of a rank (B)": float(private_memory())}
    for size, elements, calls in (("4 KB", 1024, 50), ("1 MB", 1 << 18, 10)):
        x = np.ones(elements, np.float32)
        found[f"{size} all-reduce (s)"] = seconds_of(lambda x=x: comm.allreduce(x, out=x), calls, turns)
        found[f"MPI, {size} all-reduce (s)"] = seconds_of(lambda x=x: world.Allreduce(MPI.IN_PLACE, x), calls, turns)
    found["named gradient (s)"] = seconds_of(lambda: ringcomm.allreduce(one, name="gradient"), 30, turns)
    return {what: found[what] for what in RANKS}


def by_names(turns: int, number: int) -> dict[str, float]:
    import ringcomm

    arrays = [np.ones(1, np.float32) for _ in range(number)]
    before = private_memory()

    def step() -> None:
        handles = [
            ringcomm.allreduce_async_(array, name=f"gradient {index}", op=ringcomm.Sum)
            for index, array in enumerate(arrays)
        ]
        for handle in handles:
            ringcomm.synchronize(handle)

    step()
    return {"a step's gradients (s)": seconds_of(step, 1, turns), "memory of the names (B)": private_memory() - before}


def by_sets(turns: int, number: int) -> dict[str, float]:
    import ringcomm

    before, took, one = private_memory(), [], np.ones(1, np.float32)
    for ranks in list(itertools.combinations(range(9), 5))[number - 1 :: -1]:  # rank 0 is in the last
        begin = time.perf_counter()
        last = ringcomm.add_process_set(ranks)
        took.append(time.perf_counter() - begin)
        if last.included():
            ringcomm.allreduce(one, name="first", process_set=last)
    memory = private_memory() - before
    seconds = math.inf
    if last.included():
        seconds = seconds_of(lambda: ringcomm.allreduce(one, name="gradient", process_set=last), 30, turns)
    ringcomm.barrier()
    added = statistics.median(took[-10:])
    return {"one more set (s)": added, "gradient in the last set (s)": seconds, "memory of the sets (B)": memory}


WORK = {"ranks": by_ranks, "hosts": by_ranks, "names": by_names, "sets": by_sets}


def worker(task: jobs.Task) -> None:
    import ringcomm

    ringcomm.init(process_sets="dynamic")
    found = WORK[task["kind"]](task["turns"], task["number"])
    if ringcomm.rank() == 0:
        jobs.give_back(task, found | {"mpi": measure.machine()["mpi"]})
    ringcomm.shutdown()


# ---- the driver ------------------------------------------------------------------------------------------------------
def measured(kind: str, number: int, python: str, turns: int) -> dict[str, Any]:
    task = {"kind": kind, "number": number, "turns": turns}
    if kind == "hosts":
        with Cluster(number, "10gbit", "2mb") as cluster:
            return dict(jobs.on_cluster(cluster, python, __file__, 1, task, 300))
    return dict(jobs.on_this_host(python, __file__, {"ranks": number, "sets": 9}.get(kind, 2), task, 300))


def exponent(points: dict[int, float], least: int) -> float:
    """Returns e of the power law n^e that fits best where n is `least` or more."""
    chosen = {n: value for n, value in points.items() if n >= least}
    return float(np.polyfit(np.log(list(chosen)), np.log(list(chosen.values())), 1)[0])


def report(kind: str, points: Points) -> dict[str, float]:
    least = len(os.sched_getaffinity(0)) + 1 if kind == "ranks" else 1
    fitted = {what: exponent(values, least) for what, values in points.items()}
    for what, values in points.items():
        shown = "  ".join(f"{n}: {value:.3g}" for n, value in values.items())
        print(f"{kind:6} {what:30} exponent {fitted[what]:5.2f}, limit {LIMITS[kind, what]:g}   {shown}", flush=True)
    return fitted


def main(arguments: Sequence[str] | None = None) -> None:
    parser = jobs.make_parser(__doc__, "4")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args(arguments)
    if options.worker:
        return worker(options.worker)
    for python in jobs.pythons(options):
        for kind in options.kinds:
            rows = {number: measured(kind, number, python, options.turns) for number in KINDS[kind]}
            mpi = {row.pop("mpi") for row in rows.values()}.pop()
            points = {what: {n: row[what] for n, row in rows.items()} for what in next(iter(rows.values()))}
            result = {"kind": kind, "date": now(), "machine": measure.machine() | {"mpi": mpi}, "points": points}
            result["exponents"] = report(kind, points)
            result["limits"] = {what: LIMITS[kind, what] for what in points}
            if options.json:
                measure.write_merged(options.json, [result | {"mpi": measure.mpi_name(mpi)}], ("kind", "mpi"))
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
