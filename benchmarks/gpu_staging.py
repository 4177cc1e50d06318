"""Compares all-reduce of a GPU's array by the staging route with the same work by hand.

    RINGCOMM_GPU_ROUTE=staging mpiexec -n 2 python benchmarks/gpu_staging.py [--megabytes 64] [--json FILE]

By hand means: segments are copied into shared arrays, reduced there in place, and copied out again.
This runs sequentially on the rank's core, or in a pipeline of three threads, because a GPU copies
by itself. On a GPU, this is the least work of its link and of host memory. On the tests' stand-in
for the driver, whose threads copy by memcpy, it shows the cost that ringcomm adds on the host. The
stand-in's memory is shared memory in small pages. The work by hand therefore uses that memory and
NumPy's, whose pages are large if the system has them. Times are interleaved medians.
"""

from __future__ import annotations

import argparse
import mmap
import queue
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine, ratio, write

import ringcomm
from ringcomm._src.arrays.device.array import DeviceArray
from ringcomm._src.arrays.device.devices import of_this_rank

SEGMENT, SLOTS = 2 << 20, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--times", type=int, default=21)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    comm = ringcomm.Communicator()
    values = np.ones(options.megabytes << 18, np.float32)
    ways = {"staging": staging(comm, values)}
    for memory, copy in {"pages alike": in_small_pages, "NumPy's pages": np.copy}.items():
        ways[f"in turns, {memory}"] = in_turns(comm, copy(values), copy(values))
        ways[f"pipeline, {memory}"] = pipeline(comm, copy(values), copy(values))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(options.times + 2):
        for name, call in ways.items():
            comm.barrier()
            begun = time.perf_counter()
            call()
            slowest = comm.allreduce(np.array([time.perf_counter() - begun]), op="max")[0]
            if i > 1:
                seconds[name].append(float(slowest))
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    speeds = {name: ratio(found, seconds["staging"]) for name, found in seconds.items() if name != "staging"}
    where = machine()
    if comm.rank == 0:
        print(f"{'staging':24} {medians['staging'] * 1e3:8.2f} ms")
        for name, speed in speeds.items():
            beside = "staging is {:.2f} [{:.2f}, {:.2f}] times as fast".format(*speed)
            print(f"{name:24} {medians[name] * 1e3:8.2f} ms: {beside}")
        if options.json:
            result = {"machine": where, "ranks": comm.size, "megabytes": options.megabytes}
            write(options.json, result | {"seconds": medians, "speed of staging beside": speeds})
    comm.close()


def in_small_pages(values: Any) -> Any:
    copy = np.frombuffer(mmap.mmap(-1, values.nbytes), values.dtype)
    copy[:] = values
    return copy


def in_turns(comm: Any, source: Any, target: Any) -> Callable[[], None]:
    each = SEGMENT // source.itemsize
    stage = comm.empty(each)

    def call() -> None:
        for first in range(0, source.size, each):
            part = slice(first, first + each)
            mine = stage[: len(source[part])]
            np.copyto(mine, source[part])
            comm.allreduce(mine, out=mine)
            np.copyto(target[part], mine)

    return call


def pipeline(comm: Any, source: Any, target: Any) -> Callable[[], None]:
    each = SEGMENT // source.itemsize
    stages = [comm.empty(each) for _ in range(SLOTS)]
    parts = [slice(first, min(first + each, source.size)) for first in range(0, source.size, each)]
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
