"""Implements `ringcomm bench`: times collectives of ringcomm and of MPI on the ranks of a job.

Each row of the table is measured as follows:

- Before a call, the rank that owns an input rewrites it, and each rank fills its output. After the
  call, the rank reads and checks its result. None of this is timed. Without it, buffers would stay
  in one core's cache and no bytes would move, or they would be in the cache of the core to which
  the previous contestant wrote them.
- A barrier of the same library precedes each call. After MPI's barrier, MPI's code would be in the
  caches, and ringcomm's would not.
- The contestants (algorithms, wire formats and MPI) take turns in a shuffled order within one run.
- The time of a call is measured from the moment when the first rank starts it to the moment when
  the last rank finishes it. Ranks on several hosts have no common clock; the time is then that of
  the slowest rank.
- The row shows the median.
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from ringcomm._src.arrays.device import routes
from ringcomm._src.base.installed import exists
from ringcomm._src.cli import bench_device, bench_plot, bench_report
from ringcomm._src.cli.bench_cases import PERIOD, SHARED_ARRAYS, Case
from ringcomm._src.cli.bench_options import DEFAULT_SIZES, algorithm_problem, check
from ringcomm._src.cli.bench_options import add_arguments as add_arguments  # part of each subcommand's module
from ringcomm._src.cli.bench_report import Row
from ringcomm._src.cli.measured import first_to_last, interval, loss_of, take_turns
from ringcomm._src.cli.sizes import parse_names, parse_sizes
from ringcomm._src.cli.text import refuse
from ringcomm._src.cli.wires import parse_wire
from ringcomm._src.core import _core
from ringcomm._src.observe.events import Listener
from ringcomm._src.platform.mpi_library import load


def run(options: argparse.Namespace) -> int:
    import ringcomm

    MPI = load()
    world = MPI.COMM_WORLD
    if options.file:
        runpy.run_path(options.file, run_name="ringcomm_bench")
    problems = world.allgather(check(options, world.size) or bench_device.why_not(options.device))
    if any(problems):
        return refuse("bench", next(filter(None, problems))) if world.rank == 0 else 2
    comm = ringcomm.Communicator(world)
    try:
        rows = measure_all(options, comm, world)
    finally:
        comm.close()
    if world.rank == 0:
        if options.json:
            bench_report.write_json(options, world.size, rows)
        if options.plot:
            bench_plot.plot(options, world.size, rows)
    return 1 if any(row.wrong for row in rows) else 0


def algorithm_names(options: argparse.Namespace, comm: Any) -> list[str]:
    """Returns the names of the contestants that can run here.

    Leaves out shared arrays for a barrier, on a GPU, or if no ranks share memory. Collective,
    because hosts may have different numbers of ranks.
    """
    sharing = int(comm.allreduce(np.array([comm.local_size]), op="max")[0]) > 1
    names = parse_names(options.algorithms)
    if options.algorithms == "all":
        names = [a.name for a in _core.algorithms() if a.collective == options.collective]
        if sharing and not one_clock(comm):
            names += [
                hierarchical
                for name in names
                if algorithm_problem(options.collective, hierarchical := f"two_level:{name}") is None
            ]
        names += ["auto", SHARED_ARRAYS]
    sharing = sharing and options.collective != "barrier" and options.device == "cpu"
    return [name for name in names if name != SHARED_ARRAYS or sharing]


def repetitions(nbytes: int, repeat: int) -> int:
    """Returns the number of timed calls: more for small buffers, whose calls are short and noisy."""
    return repeat * (20 if nbytes <= 64 << 10 else 4 if nbytes <= 1 << 20 else 1)


def one_clock(comm: Any) -> bool:
    """Returns True if all ranks are on one host, so that they share a clock."""
    return bool(comm.local_size == comm.size)


def measure_all(options: argparse.Namespace, comm: Any, world: Any) -> list[Row]:
    sizes = [0] if options.collective == "barrier" else options.sizes or parse_sizes(DEFAULT_SIZES)
    names = algorithm_names(options, comm)
    first = world.rank == 0
    gpu_route = "" if options.device == "cpu" else routes.first_available(routes.all_routes(comm))
    if first:
        print("\n".join(bench_report.header(options, world.size, one_clock(comm), gpu_route)), flush=True)
    rows: list[Row] = []
    contestants = len(names) + len(options.wire) + (options.against == "mpi")
    turns = sum(options.warmup + repetitions(size, options.repeat) for size in sizes)
    with progress(turns * contestants, first) as tick:
        for nbytes in sizes:
            case = Case(
                options.collective,
                comm,
                world,
                options.dtype,
                options.op,
                options.root,
                nbytes,
                options.in_place,
                device=bench_device.ordinal(options.device, comm.local_rank),
            )
            new = measure(case, names, options, tick)
            rows += new
            if first:
                bench_report.write_rows(new)
    if first and options.against == "mpi" and options.dtype in ("float16", "bfloat16"):
        print(f"# mpi: not timed, because MPI has no {options.dtype}")
    if first:
        print("\n".join(bench_report.losses(rows)), end="", flush=True)
    if first and any(row.wrong for row in rows):
        print("# SOME RESULTS ARE WRONG", flush=True)
    return rows


def measure(case: Case, names: list[str], options: argparse.Namespace, tick: Callable[[int], object]) -> list[Row]:
    """Measures all contestants at one size. Collective; returns identical rows on all ranks."""
    cases = {name: replace(case, shared=True) if name == SHARED_ARRAYS else case for name in names}
    cases |= {name: replace(case, wire=parse_wire(name)) for name in options.wire}
    calls: dict[str, Callable[[], object]] = {
        name: case.ringcomm_call(requested_algorithm(name, options)) for name, case in cases.items()
    }
    peer = case.mpi_call() if options.against == "mpi" else None
    if peer is not None:
        calls["mpi"] = peer
    shifts = cycle(range(1, PERIOD + 1))
    wrong = np.zeros(len(calls), np.int64)

    def timed(index: int, case: Case, call: Callable[[], object], _turn: int) -> tuple[float, float]:
        case.refill(next(shifts))
        case.world.Barrier() if call is peer else case.comm.barrier()
        begin = time.perf_counter()
        call()
        end = time.perf_counter()
        wrong[index] += case.wrong()
        tick(1)
        return begin, end

    contestants = {
        name: partial(timed, index, cases.get(name, case), call) for index, (name, call) in enumerate(calls.items())
    }
    repeats = repetitions(case.nbytes, options.repeat)
    of_ranks = partial(first_to_last, one_clock=one_clock(case.comm))
    seconds = take_turns(case.world, contestants, repeats, options.seed, options.warmup, of_ranks)
    total_wrong = np.empty_like(wrong)
    case.world.Allreduce(wrong, total_wrong)
    ran = {
        name: route_taken(case) if requested_algorithm(name, options) is None else name for name, case in cases.items()
    }
    rows = [
        row_of(cases.get(name, case), name, ran.get(name, name), seconds, int(n))
        for name, n in zip(calls, total_wrong, strict=True)
    ]
    return with_losses(rows, options.wire)


def requested_algorithm(name: str, options: argparse.Namespace) -> str | None:
    """Returns the algorithm to request; None: the communicator chooses."""
    return None if name in ("auto", SHARED_ARRAYS, *options.wire) else name


def row_of(case: Case, name: str, ran: str, seconds: dict[str, list[float]], wrong: int) -> Row:
    nbytes, middle = case.count * case.dtype.itemsize, statistics.median(seconds[name])
    algbw = nbytes / middle
    row = Row(nbytes, case.count, case.dtype_name, name, ran, middle, algbw, algbw * case.bus_factor, wrong)
    row.times = seconds[name]
    if "mpi" in seconds:
        row.speedup, row.speedup_low, row.speedup_high = interval(lambda of: of("mpi") / of(name), seconds, 400)
    return row


def with_losses(rows: list[Row], encoded: Iterable[str] = ()) -> list[Row]:
    """Adds to the row of "auto" its loss against ringcomm's fastest algorithm. Returns the rows."""
    ours = [row for row in rows if row.algorithm not in ("mpi", SHARED_ARRAYS, *encoded)]
    for row in ours:
        if row.algorithm == "auto" and len(ours) > 1:
            row.loss = loss_of(row.time, [rival.time for rival in ours])
    return rows


def route_taken(case: Case, call: Callable[[], object] | None = None) -> str:
    """Makes one more call and returns the route that it took, from rank 0's events.

    `call` None: the call with the automatic choice.
    """
    call = call or case.ringcomm_call(None)
    case.refill(0)
    with Listener() as listener:
        call()
    paths = [event.detail for event in listener.take() if event.category == "run"]
    return str(case.world.bcast(paths[-1] if paths else "", root=0))


@contextmanager
def progress(total: int, first: bool) -> Iterator[Callable[[int], object]]:
    """Shows a tqdm bar on rank 0 if stderr is a terminal. Yields the function to advance it."""
    if first and sys.stderr.isatty() and exists("tqdm"):
        from tqdm import tqdm

        with tqdm(total=total, unit="call", leave=False, file=sys.stderr) as bar:
            yield bar.update
    else:
        yield lambda calls: None
