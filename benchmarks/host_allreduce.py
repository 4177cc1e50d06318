"""Compares all-reduce on one host, of shared and private arrays, with MPI and memory's limit.

    python benchmarks/host_allreduce.py --python .venv/bin/python --python .venv-openmpi/bin/python --json host.json

Every size 2^k from 4 B to 256 MB on 2 and on 4 ranks, which takes minutes; a part of it:

    python benchmarks/host_allreduce.py --ranks 2 --sizes 256K-16M/4 --repeat 15 --plot host.png

For each MPI, pinned ranks time these in turns, in random order within one run, each with separate
arrays:

    mpi           MPI_Allreduce through mpi4py's buffer call
    ordinary      Communicator.allreduce from one ordinary array into another
    mpi in place  the same with MPI_IN_PLACE
    in place      Communicator.allreduce of ordinary arrays in place
    shared        Communicator.allreduce in place on shared arrays (Communicator.empty)
    NumPy's own   the same on arrays that NumPy made inside `with Communicator.shared_arrays()`, from 64 KB up
    loop          the loop that "shared" runs between its two synchronizations, alone: the limit

Before each call every rank rewrites its input. After the last call of a timing it reads and checks
its result. Neither is timed; without them no data would move between cores. A time is the slowest
rank's; a timing covers many small calls. Ratios have a 95 % bootstrap interval. The script lists
cells where ringcomm may take more than 1.05 of MPI's time, by the interval's upper end; with
--strict it then exits with status 1.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jobs
import measure

from ringcomm._src.cli.bench_cases import PERIOD, Case
from ringcomm._src.cli.measured import take_turns
from ringcomm._src.cli.sizes import human_size

SIZES = "4-256M"
# our contestants, and those that they are compared with
PEERS = {"ordinary": "mpi", "in place": "mpi in place", "shared": "mpi", "NumPy's own": "mpi"}
MOST = 1.05  # largest allowed ratio to MPI's time


# ---- on the ranks ----------------------------------------------------------------------------------------------------


@dataclass
class Contestant:
    call: Callable[[], object]
    case: Case  # arrays of the call
    checked: bool = True


def contestants(world: Any, comm: Any, nbytes: int) -> dict[str, Contestant]:
    templates: dict[bytes, Any] = {}  # inputs and results, shared by all contestants

    def case(in_place: bool) -> Case:
        made = Case("allreduce", comm, world, "float32", "sum", 0, nbytes, in_place)
        made.templates = templates
        return made

    def peer(case: Case) -> Contestant:
        call = case.mpi_call()
        assert call is not None
        return Contestant(call, case)

    def ours(case: Case) -> Contestant:
        return Contestant(case.ringcomm_call(None), case)

    found = {
        "mpi": peer(case(False)),
        "ordinary": ours(case(False)),
        "mpi in place": peer(case(True)),
        "in place": ours(case(True)),
        "shared": ours(in_arena(comm, case(True))),
    }
    if comm.shared_memory and nbytes >= 65536:
        found["NumPy's own"] = ours(made_by_numpy(comm, case(True)))
    if comm.shared_memory and nbytes >= 4096:
        alone = in_arena(comm, case(True))
        found["loop"] = Contestant(loop(world, comm, alone.input), alone, checked=False)
    return found


def in_arena(comm: Any, case: Case) -> Case:
    case.input = case.output = comm.empty(case.count, "float32")
    case.input.fill(0)
    return case


def made_by_numpy(comm: Any, case: Case) -> Case:
    import numpy as np

    with comm.shared_arrays():
        case.input = case.output = np.zeros(case.count, np.float32)
    return case


def loop(world: Any, comm: Any, array: Any) -> Callable[[], object]:
    """Sums this rank's slice of all ranks' arrays into all of them, without synchronisation."""
    from ringcomm._src.core import _core

    offsets = world.allgather(comm._node.offset_of(array.ctypes.data, array.nbytes))
    part = array.size // world.size // 16 * 16  # complete cache lines
    places = [comm._node.address(rank, offset) + 4 * part * world.rank for rank, offset in enumerate(offsets)]
    kind = _core.DTYPES.index("float32"), _core.OPS.index("sum")
    return lambda: _core.kernel_reduce_many(*kind, places, places, part, 1.0, 1.0, 1)


def calls_in_a_timing(nbytes: int) -> int:
    return 200 if nbytes <= 4096 else 20 if nbytes <= 65536 else 1


def worker(task: dict[str, Any]) -> None:
    from mpi4py import MPI

    import ringcomm

    world = MPI.COMM_WORLD
    measure.pin(world.rank)
    comm = ringcomm.Communicator(world)
    rows = []
    for nbytes in task["sizes"]:
        calls = calls_in_a_timing(nbytes)
        chosen = {name: partial(timing, one, name, calls) for name, one in contestants(world, comm, nbytes).items()}
        rows.append({"nbytes": nbytes, "seconds": take_turns(world, chosen, task["repeat"], nbytes, uncounted=1)})
        if world.rank == 0:
            print(line(rows[-1]), flush=True)
    if world.rank == 0:
        jobs.give_back(task, {"machine": measure.machine(), "rows": rows})
    comm.close()


def timing(contestant: Contestant, name: str, calls: int, repetition: int) -> float:
    """Returns the seconds of a call on this rank."""
    case, call, spent = contestant.case, contestant.call, 0.0
    case.refill(repetition % PERIOD)  # touches the memory that is rewritten below, and makes templates
    case.world.Barrier()
    for turn in range(calls):
        case.refill((repetition + turn) % PERIOD)
        if calls == 1:
            case.world.Barrier()
        begin = time.perf_counter()
        call()
        spent += time.perf_counter() - begin
    wrong = case.wrong()
    if wrong and contestant.checked:
        raise SystemExit(f"rank {case.rank}: {name} gave {wrong} wrong elements of {case.count}")
    return spent / calls


# ---- outside the ranks -----------------------------------------------------------------------------------------------


def line(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    cells = [f"{human_size(row['nbytes']):>8}  mpi {statistics.median(seconds['mpi']) * 1e6:10.1f} us"]
    for name in (name for name in seconds if not name.startswith("mpi")):
        own = statistics.median(seconds[name]) * 1e6
        middle, low, high = measure.ratio(seconds[PEERS.get(name, "mpi")], seconds[name])
        cells.append(f"{name} {own:10.1f} us, {middle:.2f} times faster [{low:.2f}, {high:.2f}]")
    return "  ".join(cells)


def failing(results: list[dict[str, Any]]) -> list[str]:
    """Returns the cells where the upper end of the interval of time / MPI's time is above MOST."""
    found = []
    for result in results:
        for row in result["rows"]:
            for name, peer in ((name, peer) for name, peer in PEERS.items() if name in row["seconds"]):
                middle, low, high = measure.ratio(row["seconds"][name], row["seconds"][peer])
                if high > MOST:
                    where = f"{measure.mpi_name(result['machine']['mpi'])}, {result['ranks']} ranks"
                    size = human_size(row["nbytes"])
                    found.append(f"{where}, {size}, {name}: {middle:.2f} of MPI's time [{low:.2f}, {high:.2f}]")
    return found


def main() -> int:
    parser = jobs.make_parser(__doc__, SIZES)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (default 2,4)")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a cell fails")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return 0
    results = jobs.for_each_mpi(options, __file__, {"sizes": options.sizes, "repeat": options.repeat})
    cells = failing(results)
    print("\n".join([f"# {len(cells)} cells above {MOST} of MPI's time:", *cells]))
    if options.plot:
        from plots import plot_host

        plot_host(results, options.plot)
    return 1 if cells and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
