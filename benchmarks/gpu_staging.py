"""All-reduce of a GPU's array by way of the host, against the same work done by hand on the host's memory.

    RINGCOMM_GPU_PATH=staging mpiexec -n 2 python benchmarks/gpu_staging.py [--megabytes 64] [--json FILE]

By hand: segments are copied into shared arrays, reduced there in place, and copied out again: one after the other on
the rank's own core, or in a pipeline of three threads, as a GPU copies by itself. On a GPU that is what its link and
the host's memory must do at least; on the tests' stand-in for the driver, whose copies are memcpy's by threads, it
tells what our host side adds. Times are interleaved; medians.
"""

from __future__ import annotations

import argparse
import json
import platform
import queue
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ringcomm
from ringcomm.device.array import DeviceArray
from ringcomm.device.devices import of_this_rank

SEGMENT, SLOTS = 2 << 20, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--times", type=int, default=21)
    parser.add_argument("--json")
    options = parser.parse_args()
    comm = ringcomm.Communicator()
    values = np.ones(options.megabytes << 18, np.float32)
    ways = {"by hand": by_hand(comm, values), "pipeline": pipeline(comm, values), "staging": staging(comm, values)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.times + 2):
        for name, call in ways.items():
            comm.barrier()
            begun = time.perf_counter()
            call()
            seconds[name].append(comm.allreduce(np.array([time.perf_counter() - begun]), op="max")[0])
    medians = {name: statistics.median(all_of_it[2:]) for name, all_of_it in seconds.items()}
    ratios = {name: medians[name] / medians["staging"] for name in ("by hand", "pipeline")}
    if comm.rank == 0:
        for name, median in medians.items():
            print(f"{name:8} {median * 1e3:8.2f} ms")
        print(f"staging is {ratios['by hand']:.2f} times as fast as by hand, {ratios['pipeline']:.2f} as the pipeline")
        if options.json:
            result = {"machine": platform.processor() or platform.machine(), "ranks": comm.size, "ratios": ratios}
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(result | {"megabytes": options.megabytes, "seconds": medians}, file, indent=1)
    comm.close()


def by_hand(comm: Any, values: Any) -> Callable[[], None]:
    source, target = values.copy(), np.empty_like(values)
    each = SEGMENT // values.itemsize
    stage = comm.empty(each)

    def call() -> None:
        for first in range(0, values.size, each):
            part = slice(first, first + each)
            mine = stage[: len(source[part])]
            np.copyto(mine, source[part])
            comm.allreduce(mine, out=mine)
            np.copyto(target[part], mine)

    return call


def pipeline(comm: Any, values: Any) -> Callable[[], None]:
    source, target = values.copy(), np.empty_like(values)
    each = SEGMENT // values.itemsize
    stages = [comm.empty(each) for _ in range(SLOTS)]
    parts = [slice(first, min(first + each, values.size)) for first in range(0, values.size, each)]
    slots = [stages[i % SLOTS][: part.stop - part.start] for i, part in enumerate(parts)]
    arrived, reduced, free = queue.SimpleQueue[int](), queue.SimpleQueue[int](), threading.Semaphore(SLOTS)
    begin, ended = threading.Semaphore(0), threading.Semaphore(0)

    def fetch() -> None:
        while begin.acquire():
            for i, part in enumerate(parts):
                free.acquire()
                np.copyto(slots[i], source[part])
                arrived.put(i)

    def send_back() -> None:
        while True:
            i = reduced.get()
            np.copyto(target[parts[i]], slots[i])
            free.release()
            if i == len(parts) - 1:
                ended.release()

    for work in (fetch, send_back):
        threading.Thread(target=work, daemon=True).start()

    def call() -> None:
        begin.release()
        for _ in parts:
            i = arrived.get()
            comm.allreduce(slots[i], out=slots[i])
            reduced.put(i)
        ended.acquire()

    return call


def staging(comm: Any, values: Any) -> Callable[[], None]:
    source = DeviceArray(values.shape, values.dtype, of_this_rank()).set(values)
    target = DeviceArray(values.shape, values.dtype, of_this_rank())

    def call() -> None:
        comm.allreduce(source, out=target)
        target.synchronize()

    return call


if __name__ == "__main__":
    main()
