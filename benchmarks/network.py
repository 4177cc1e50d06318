"""Compares all-reduce on shaped links with MPI_Allreduce, Gloo and the bound 2 (h-1)/h S / rate.

    python benchmarks/network.py --python .venv/bin/python --python .venv-openmpi/bin/python --json network.json

Needs root and iproute2 (cluster.py), and torch in both environments for Gloo. A setup is hosts x
ranks on each, a colon and the links' rate, and after another colon the dtype that ringcomm also
sends float32 as:

    python benchmarks/network.py --setups 4x2:200mbit:bfloat16 --sizes 1M-64M --json network.json --plot network.png

New results replace those of the same setups in the JSON file. ringcomm measures the network at its
start, as in any program; the model's choice is written next to each time. A single cell with a
named schedule:

    python benchmarks/network.py --setups 4x1:200mbit --sizes 16M --algorithms ring --peers mpi --at-least 0.88

The choice compared with the best of all algorithms:

    python benchmarks/network.py --setups 4x1:200mbit --sizes 4-1M/4 --algorithms all --peers "" --link-megabytes 4

contest.py does the timing. TCP's goodput itself is about 0.956 of the line rate.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import time
from typing import Any

import contest
import jobs
import measure
from cluster import Cluster, mpi_kind

from ringcomm._src.base.sizes import BITS
from ringcomm._src.cli.bench import route_taken
from ringcomm._src.cli.measured import now
from ringcomm._src.cli.sizes import human_size

SETUPS = "4x1:200mbit,8x1:100mbit,4x2:200mbit:bfloat16"
SIZES = "4,64,1K,4K,16K,64K,256K,1M,4M,16M,64M"
INTERFACE = "eth0"  # on every host of the cluster


def bits_per_second(rate: str) -> float:
    """ "200mbit" -> 2e8"""
    for unit, factor in BITS.items():
        if rate.endswith(unit):
            return float(rate.removesuffix(unit)) * factor
    raise argparse.ArgumentTypeError(f"write the rate as 200mbit, not {rate!r}")


def parse_setups(text: str) -> list[dict[str, Any]]:
    setups = []
    for part in text.split(","):
        shape, rate, *wire = part.split(":")
        hosts, ranks = map(int, shape.split("x"))
        bits_per_second(rate)
        setups.append({"hosts": hosts, "ranks_per_host": ranks, "rate": rate, "wire": wire[0] if wire else ""})
    return setups


# ---- on the ranks ----------------------------------------------------------------------------------------------------


def worker(task: dict[str, Any]) -> None:
    os.environ["XDG_CACHE_HOME"] = task["folder"]  # ignores measurements of another cluster's links
    from mpi4py import MPI

    import ringcomm

    world = MPI.COMM_WORLD
    comm = ringcomm.Communicator(world)
    if task["algorithms"] == ["all"]:
        task["algorithms"] = ["auto", *(option.name for option in contest.options(comm, max(task["sizes"])))]
    others = {name: {"algorithm": name} for name in task["algorithms"] if name != "auto"}
    if task["unchecked"]:
        others["unchecked"] = {"check": False}
    made = {name: ringcomm.Communicator(world, dataclasses.replace(comm.config, **it)) for name, it in others.items()}
    if "gloo" in task["peers"]:
        from peers import start_gloo

        start_gloo(world, task["address"], INTERFACE)
    rows = [measured_row(task, comm, made, world, nbytes) for nbytes in task["sizes"]]
    hosts = world.gather(os.uname().nodename)
    if world.rank == 0:
        network = {name: getattr(comm.config, name) for name in ("alpha", "beta", "gap", "hidden", "gamma", "copy")}
        jobs.give_back(task, {"machine": measure.machine(), "at": hosts, "network": network, "rows": rows})
    for one in (*made.values(), comm):
        one.close()


def measured_row(task: dict[str, Any], comm: Any, made: dict[str, Any], world: Any, nbytes: int) -> dict[str, Any]:
    begun = time.perf_counter()
    case = contest.all_reduce_case(comm, world, nbytes)
    contestants = contestants_of(task, comm, made, case)
    chosen = {}
    for name, contestant in contestants.items():
        if name.startswith("ringcomm"):
            path = route_taken(case, contestant.call)
            chosen[name] = {"path": path, **contest.cut(comm, path, nbytes)}
    calls = contest.calls_in_a_timing(nbytes, task["hosts"], task["link_bytes"])
    seconds = contest.time_in_turns(case, contestants, calls, task["turns"])
    row = {
        "nbytes": nbytes,
        "bound": contest.bound(nbytes, task["hosts"], bits_per_second(task["rate"])),
        "chosen": chosen,
        "seconds": seconds,
    }
    if world.rank == 0:
        print(line(row) + f"  [{time.perf_counter() - begun:.0f} s]", flush=True)
    return row


def contestants_of(task: dict[str, Any], comm: Any, made: dict[str, Any], case: Any) -> dict[str, contest.Contestant]:
    x, y, wire = case.input, case.output, task["wire"]
    found = {"ringcomm": contest.Contestant(case.ringcomm_call(None))} if "auto" in task["algorithms"] else {}
    for name, other in made.items():
        found[f"ringcomm {name}"] = contest.Contestant(lambda other=other: other.allreduce(x, out=y))
    if wire:
        found[f"ringcomm {wire}"] = contest.Contestant(lambda: comm.allreduce(x, out=y, wire=wire))
    if "mpi" in task["peers"]:
        found["mpi"] = contest.Contestant(case.mpi_call())
    if "gloo" in task["peers"]:
        import torch

        tensor = torch.from_numpy(case.output)
        found["gloo"] = contest.Contestant(lambda: torch.distributed.all_reduce(tensor), in_place=True)
    return found


def line(row: dict[str, Any]) -> str:
    cells = [f"{human_size(row['nbytes']):>8}"]
    for name, times in row["seconds"].items():
        middle = statistics.median(times)
        cells.append(f"{name} {middle * 1e3:9.3f} ms {row['bound'] / middle:.3f}")
    for name, chosen in row["chosen"].items():
        pieces = f" in {human_size(chosen['segment'])} x {chosen['window']}" if "segment" in chosen else ""
        cells.append(f"({name}: {chosen['path']}{pieces})")
    return "  ".join(cells)


# ---- the cluster -----------------------------------------------------------------------------------------------------


def measured(python: str, setup: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    seconds_per_byte = contest.bound(1, setup["hosts"], bits_per_second(setup["rate"]))
    task = {
        **setup,
        "sizes": [size for size in options.sizes if size * seconds_per_byte <= options.longest],
        "turns": options.turns,
        "link_bytes": options.link_megabytes * 1e6,
        "algorithms": options.algorithms.split(","),
        "unchecked": options.unchecked,
        "peers": [peer for peer in options.peers.split(",") if peer],
    }
    kind = mpi_kind(jobs.launcher_of(python))
    hosts = f"{setup['hosts']} hosts x {setup['ranks_per_host']}"
    print(f"# {kind}, {hosts}, {setup['rate']}; times, shares of the bound", flush=True)
    begun = time.perf_counter()
    with Cluster(setup["hosts"], setup["rate"]) as cluster:
        task["address"] = cluster.addresses[0]
        result = jobs.on_cluster(cluster, python, __file__, setup["ranks_per_host"], task, options.timeout)
    took = time.perf_counter() - begun
    print(f"# took {took:.0f} s", flush=True)
    return {"kind": kind, "setup": setup, "date": now(), "took": took, "turns": options.turns, **result}


def main() -> int:
    parser = jobs.make_parser(__doc__, SIZES)
    parser.add_argument("--setups", type=parse_setups, default=parse_setups(SETUPS), help=f"(default {SETUPS})")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--link-megabytes", type=float, default=25.0, help="that cross each link in a timing, at least")
    parser.add_argument("--longest", type=float, default=5.0, help="leaves out sizes that need more seconds at least")
    parser.add_argument("--algorithms", default="auto", help="of ours; auto: what the model chooses; all: every one")
    parser.add_argument("--peers", default="mpi,gloo")
    parser.add_argument("--unchecked", action="store_true", help="also ours where ranks do not compare their calls")
    parser.add_argument("--at-least", type=float, default=0.0, help="exit with 1 if ours stays below this share")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for each setup")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return 0
    results = []
    for setup in options.setups:
        for python in jobs.pythons(options):
            results.append(measured(python, setup, options))
            if options.json:
                measure.write_merged(options.json, results[-1:], ("kind", "setup"))
    if options.plot:
        from plots import plot_network

        plot_network(results, options.plot)
    rows = [row for result in results for row in result["rows"]]
    shares = [
        row["bound"] / statistics.median(times)
        for row in rows
        for name, times in row["seconds"].items()
        if name.startswith("ringcomm")
    ]
    return 0 if min(shares) >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
