"""Compares a round of gossip with an all-reduce of the same bytes, and with a link's time.

    mpiexec -n 4 python benchmarks/gossip.py
    python benchmarks/cluster.py --hosts 4 --rate 200mbit -- python benchmarks/gossip.py --rate 200e6

Float32 weights of one rank; a round sends them to one rank (one_peer_exponential) or two (ring).
Contestants take turns; times are the slowest rank's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine, ratio, write

import ringcomm
from ringcomm._src.decentralized.gossip import neighbours_of, rows_of
from ringcomm._src.decentralized.mixing import Mix
from ringcomm._src.decentralized.topology import topology


def mixer(name: str, count: int) -> Callable[[np.ndarray[Any, Any]], Any]:
    graph = topology(name)
    neighbours = neighbours_of(f"bench.{name}.{count}", graph, ringcomm.global_process_set, 4 * count)
    mix = Mix(rows_of(graph, ringcomm.global_process_set), neighbours, count, np.float32)

    def work(x: np.ndarray[Any, Any]) -> None:
        mix.begin(lambda room: np.copyto(room, x))
        mix.complete()

    return work


def slowest(seconds: float) -> float:
    return float(ringcomm.allreduce(np.array([seconds]), op=ringcomm.Max, name="slowest")[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=16 << 20, help="bytes")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rate", type=float, help="of each host's link, in bits a second")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ringcomm.init()
    count = options.size // 4
    x, shared = np.ones(count, np.float32), ringcomm.empty(count)
    shared[:] = 0
    works = {
        "one_peer_exponential": lambda: peer(x),
        "ring": lambda: ring(x),
        "all-reduce": lambda: ringcomm.allreduce_(shared, op=ringcomm.Average, name="bench"),
    }
    peer, ring = mixer("one_peer_exponential", count), mixer("ring", count)
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(options.turns + 1):
        for name, work in works.items():
            ringcomm.barrier()
            begun = time.perf_counter()
            work()
            took = slowest(time.perf_counter() - begun)
            if turn:
                found[name].append(took)
    if ringcomm.rank() == 0:
        link = options.size * 8 / options.rate if options.rate else None
        for name, times in found.items():
            beside = "{:.2f} [{:.2f}, {:.2f}]".format(*ratio(found["all-reduce"], times))
            bound = f", {link / np.median(times):.2f} of a link's speed for one copy" if link else ""
            print(f"{name:22} {np.median(times) * 1e3:8.1f} ms, all-reduce/this {beside}{bound}", flush=True)
        if options.json:
            document = {"machine": machine(), "size": options.size, "ranks": ringcomm.size(), "rate": options.rate}
            write(options.json, document | {"hosts": ringcomm.size() // ringcomm.local_size(), "seconds": found})
    ringcomm.shutdown()


if __name__ == "__main__":
    main()
