"""Measures the parameter store without shared memory: its speed, and its idle cost.

    RINGCOMM_SHARED_MEMORY=off mpiexec -n 2 python benchmarks/store_service.py answers --json results/store_service.json
    python benchmarks/cluster.py --hosts 4 --rate 200mbit -- python benchmarks/store_service.py steps --rate 200e6

"answers": a rank requests 4 KB of the other rank's shard. That rank's main thread meanwhile sleeps,
or runs a Python loop that holds the GIL. The script also measures the share of a core that a server
uses while the store is open without requests (`idle`), and without a store (`none`). "steps": a
step of the store (gradient pushed, weights pulled) with servers on all ranks, on one, on two,
compared with an all-reduce of the same bytes. Contestants take turns; times (and shares) are the
slowest rank's.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import RESULTS, machine, ratio, read, write

import ringcomm
from ringcomm import updates

SECONDS = 2.0  # duration of the requests


def cpu_share(seconds: float) -> float:
    """Returns the share of a core that this process uses while its main thread sleeps."""

    def used() -> float:
        now = resource.getrusage(resource.RUSAGE_SELF)
        return now.ru_utime + now.ru_stime

    begun, before = time.perf_counter(), used()
    time.sleep(seconds)
    return (used() - before) / (time.perf_counter() - begun)


def slowest(seconds: float) -> float:
    return float(ringcomm.allreduce(np.array([seconds]), op=ringcomm.Max, name="slowest")[0])


def answers() -> dict[str, Any]:
    rank = ringcomm.rank()
    found: dict[str, Any] = {"none": slowest(cpu_share(3.0))}
    ringcomm.barrier()
    w, gradient = np.zeros(1024, np.float32), np.ones(1024, np.float32)
    # A server's stripe holds all weights, so that each push is one request.
    with ringcomm.ParameterStore({"w": w}, updates.SGD(0.1), servers=[1]) as store:
        for owner in ("sleeps", "loops"):
            ringcomm.barrier()
            end = time.perf_counter() + SECONDS
            if rank == 0:
                found[owner] = []
                while (begun := time.perf_counter()) < end - 0.3:  # the other rank may be slightly late
                    store.push_pull({"w": gradient})
                    found[owner].append(time.perf_counter() - begun)
            elif owner == "sleeps":
                time.sleep(SECONDS)
            else:
                while time.perf_counter() < end:
                    pass
        ringcomm.barrier()
        time.sleep(0.2)
        found["idle"] = slowest(cpu_share(5.0))
        ringcomm.barrier()
    return found


def steps(nbytes: int, turns: int) -> dict[str, list[float]]:
    count = nbytes // 4
    gradient, shared = np.full(count, 1e-3, np.float32), ringcomm.empty(count)
    shared[:] = 0
    works: dict[str, Callable[[], Any]] = {
        "all-reduce": lambda: ringcomm.allreduce_(shared, op=ringcomm.Average, name="bench")
    }
    kinds = {"Async()": ringcomm.Async(), "Sync()": ringcomm.Sync()}
    stores = []
    for servers in ("all", 1, 2):
        for name, kind in kinds.items() if servers == "all" else [("Async()", kinds["Async()"])]:
            w = np.zeros(count, np.float32)
            store = ringcomm.ParameterStore({"w": w}, updates.SGD(0.1), kind, servers)
            stores.append(store)
            works[f"{servers} {name}"] = lambda store=store: store.push_pull({"w": gradient})
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns + 1):
        for name, work in works.items():
            gradient[:] = 1e-3 * turn
            ringcomm.barrier()
            begun = time.perf_counter()
            work()
            took = slowest(time.perf_counter() - begun)
            if turn:
                found[name].append(took)
    for store in stores:
        store.finish()
    return found


def say_answers(found: dict[str, Any]) -> None:
    for owner in ("sleeps", "loops"):
        times = np.array(found[owner]) * 1e3
        print(f"owner {owner}: median {np.median(times):.3f} ms, 90 % {np.percentile(times, 90):.3f} ms")
    print(f"share of a core, nobody asking: {found['idle']:.4f}; without a store {found['none']:.4f}")


def say_steps(found: dict[str, list[float]], nbytes: int, rate: float | None) -> None:
    ranks = ringcomm.size()
    for name, times in found.items():
        beside = "{:.2f} [{:.2f}, {:.2f}]".format(*ratio(times, found["all-reduce"]))
        line = f"{name:14} {np.median(times) * 1e3:8.1f} ms, this/all-reduce {beside}"
        if rate and name[0].isdigit():  # its link carries the other ranks' data, and what it pulls from other servers
            servers = int(name[0])
            bound = (ranks - 1 + servers - 1) / servers * nbytes * 8 / rate
            line += f", {np.median(times) / bound:.2f} of what a server's link needs"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["answers", "steps"])
    parser.add_argument("--size", type=int, default=16 << 20, help="bytes, of steps")
    parser.add_argument("--turns", type=int, default=7, help="of steps")
    parser.add_argument("--rate", type=float, help="of each host's link, in bits a second")
    parser.add_argument("--json", type=Path, default=RESULTS / "store_service.json")
    options = parser.parse_args()
    ringcomm.init()
    if options.what == "answers":
        found: dict[str, Any] = answers()
    else:
        found = steps(options.size, options.turns)
    if ringcomm.rank() == 0:
        if options.what == "answers":
            say_answers(found)
        else:
            say_steps(found, options.size, options.rate)
        document = read(options.json) if options.json.exists() else {}
        about = {"machine": machine(), "ranks": ringcomm.size(), "size": options.size, "rate": options.rate}
        write(options.json, document | {options.what: about | {"seconds": found}})
    ringcomm.shutdown()


if __name__ == "__main__":
    main()
