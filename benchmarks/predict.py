"""Compares all-reduce on 8 hosts with predictions from messages between 4 hosts.

    python benchmarks/predict.py --json benchmarks/results/prediction_8_hosts.json --plot prediction.png

Needs root and iproute2 (cluster.py). `ringcomm tune` measures the network point-to-point on the few
hosts; the code that chooses (`ringcomm simulate`) prices the algorithms for the many, and the
predictions are written to the JSON file before the many hosts exist. Then each algorithm runs
there, cut as predicted, and also the model's choice ("auto"). contest.py does the timing.

With several racks, their hosts share uplinks, which the predictions know by their rate:

    python benchmarks/predict.py --racks 2 --uplink 100mbit --json benchmarks/results/prediction_racks.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import contest
import jobs
import measure
from cluster import Cluster, mpi_kind

from ringcomm._src.cli.bench import route_taken
from ringcomm._src.cli.measured import loss_of, mean_loss, now
from ringcomm._src.cli.simulate import Row, simulate
from ringcomm._src.cli.sizes import human_size, parse_rate
from ringcomm._src.cli.topologies import parse_topology
from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core

ALGORITHMS = "ring,butterfly_halving,butterfly_doubling,round_robin,circulant"
SIZES = "64K,256K,1M,4M,16M"


def measured_network(python: str, hosts: int, rate: str) -> dict[str, float]:
    """Returns the network parameters that `ringcomm tune` measures on this number of hosts."""
    with tempfile.TemporaryDirectory() as folder, Cluster(hosts, rate) as cluster:
        file = Path(folder) / "network.json"
        program = [python, "-m", "ringcomm", "tune", "--no-cache", "--json", str(file)]
        if cluster.run(jobs.launcher_of(python), program, timeout=120).returncode:
            raise SystemExit("ringcomm tune failed")
        return dict(json.loads(file.read_text())["network"])


def topology_of(options: argparse.Namespace) -> str:
    """Returns the racks as `ringcomm simulate --topology` takes them."""
    rack = options.hosts // options.racks
    over = rack * parse_rate(options.uplink) / parse_rate(options.rate)
    return f"fat-tree:oversubscription={over:g},rack={rack}"


def predicted(network: dict[str, float], options: argparse.Namespace) -> list[dict[str, Any]]:
    given = {name: value for name, value in network.items() if value > 0}
    topology = parse_topology(topology_of(options)) if options.racks > 1 else None
    links = _core.Network(**(NETWORK | given))
    priced = simulate("allreduce", [options.hosts], options.sizes, 1, links, topology=topology)

    def as_row(one: Row) -> dict[str, Any]:
        return {
            "nbytes": one.size,
            "algorithm": one.algorithm,
            "predicted": one.time,
            "segment": one.segment,
            "window": one.window,
            "chosen": one.chosen,
            "limit": one.limit,
        }

    wanted = options.algorithms.split(",")
    return [as_row(one) for one in priced if one.chosen or one.algorithm in wanted]


# ---- on the ranks ----------------------------------------------------------------------------------------------------


def worker(task: dict[str, Any]) -> None:
    from mpi4py import MPI

    import ringcomm
    from ringcomm._src.config import config

    world = MPI.COMM_WORLD
    comm = ringcomm.Communicator(world, dataclasses.replace(config.from_environment(), **task["network"]))
    rows: list[dict[str, Any]] = []
    for nbytes in task["sizes"]:
        case = contest.all_reduce_case(comm, world, nbytes)
        names = [row["algorithm"] for row in task["predictions"] if row["nbytes"] == nbytes]
        contestants = {name: contest.Contestant(case.ringcomm_call(name)) for name in names}
        contestants["auto"] = contest.Contestant(case.ringcomm_call(None))
        chosen = route_taken(case, contestants["auto"].call)
        calls = contest.calls_in_a_timing(nbytes, world.size, task["link_bytes"])
        seconds = contest.time_in_turns(case, contestants, calls, task["turns"])
        rows.append({"nbytes": nbytes, "chosen": chosen, "seconds": seconds})
        if world.rank == 0:
            shown = "  ".join(f"{name} {statistics.median(times) * 1e3:.2f} ms" for name, times in seconds.items())
            print(f"{human_size(nbytes):>8}  {shown}  (auto: {chosen})", flush=True)
    if world.rank == 0:
        jobs.give_back(task, {"machine": measure.machine(), "at": os.uname().nodename, "rows": rows})
    comm.close()


# ---- predictions and measurements ------------------------------------------------------------------------------------


def compared(predictions: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    runs = {(row["nbytes"], name): times for row in rows for name, times in row["seconds"].items()}
    for one in predictions:
        one["seconds"] = runs[one["nbytes"], one["algorithm"]]
        one["measured"] = statistics.median(one["seconds"])
        one["error"] = one["predicted"] / one["measured"] - 1
    return predictions


def choices(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compares the model's choice with the best measured algorithm."""
    made = []
    for row in rows:
        middles = {name: statistics.median(times) for name, times in row["seconds"].items()}
        own = middles.pop("auto")
        best = min(middles, key=lambda name: middles[name])
        loss = loss_of(own, middles.values())
        made.append({"nbytes": row["nbytes"], "chosen": row["chosen"], "best": best, "measured": own, "loss": loss})
    return made


def report(document: dict[str, Any]) -> None:
    for one in document["predictions"]:
        print(
            f"{human_size(one['nbytes']):>8}  {one['algorithm']:<20}{'*' if one['chosen'] else ' '} "
            f"predicted {one['predicted'] * 1e3:9.2f} ms  ran {one['measured'] * 1e3:9.2f} ms  {one['error']:+.1%}"
        )
    errors = [abs(one["error"]) for one in document["predictions"]]
    losses = [one["loss"] for one in document["choices"]]
    print(f"# error {statistics.fmean(errors):.1%} in the mean, {max(errors):.1%} at most")
    print(f"# the choice lost {max(losses):.1%} at most, {mean_loss(losses):.1%} in the geometric mean", flush=True)


def main() -> int:
    parser = jobs.make_parser(__doc__, SIZES)
    parser.add_argument("--measure-hosts", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--racks", type=int, default=1)
    parser.add_argument("--uplink", default="", help="rate of each rack's uplink")
    parser.add_argument("--algorithms", default=ALGORITHMS, help=f"(default {ALGORITHMS})")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--link-megabytes", type=float, default=10.0, help="that cross each link in a timing, at least")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for the runs")
    parser.set_defaults(json=measure.RESULTS / "prediction_8_hosts.json")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return 0
    (python,) = jobs.pythons(options)
    network = measured_network(python, options.measure_hosts, options.rate)
    document: dict[str, Any] = {
        "kind": mpi_kind(jobs.launcher_of(python)),
        "measured_on_hosts": options.measure_hosts,
        "hosts": options.hosts,
        "rate": options.rate,
        "racks": options.racks,
        "uplink": options.uplink,
        "network": network,
        "predicted_at": now(),
        "predictions": predicted(network, options),
    }
    measure.write(options.json, document)
    task = {"predictions": document["predictions"], "network": network, "sizes": options.sizes}
    task |= {"turns": options.turns, "link_bytes": options.link_megabytes * 1e6}
    with Cluster(options.hosts, options.rate, racks=options.racks, uplink=options.uplink) as cluster:
        result = jobs.on_cluster(cluster, python, __file__, 1, task, options.timeout)
    document |= {"run_at": now(), "machine": result["machine"], "choices": choices(result["rows"])}
    document["predictions"] = compared(document["predictions"], result["rows"])
    measure.write(options.json, document)
    report(document)
    if options.plot:
        from plots import plot_prediction

        plot_prediction(document, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
