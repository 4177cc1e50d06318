"""All-reduce of a GPU's array by way of the host, against the same work done by hand on the host's memory.

    RINGCOMM_GPU_PATH=staging mpiexec -n 2 python benchmarks/gpu_staging.py [--megabytes 64] [--json FILE]

By hand: segments of 4 MB are copied into a shared array, reduced there in place, and copied out again. On a GPU that
is what its link and the host's memory must do at least; on the tests' stand-in for the driver, whose copies are
memcpy's, it tells what our host side adds. Times are interleaved; medians.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ringcomm
from ringcomm.device.array import DeviceArray
from ringcomm.device.devices import of_this_rank

SEGMENT = 4 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--times", type=int, default=21)
    parser.add_argument("--json")
    options = parser.parse_args()
    comm = ringcomm.Communicator()
    values = np.ones(options.megabytes << 18, np.float32)
    ways = {"by hand": by_hand(comm, values), "staging": staging(comm, values)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.times + 2):
        for name, call in ways.items():
            comm.barrier()
            begun = time.perf_counter()
            call()
            seconds[name].append(comm.allreduce(np.array([time.perf_counter() - begun]), op="max")[0])
    medians = {name: statistics.median(all_of_it[2:]) for name, all_of_it in seconds.items()}
    ratio = medians["by hand"] / medians["staging"]
    if comm.rank == 0:
        for name, median in medians.items():
            print(f"{name:8} {median * 1e3:8.2f} ms")
        print(f"staging is {ratio:.2f} times as fast as by hand")
        if options.json:
            result = {"machine": platform.processor() or platform.machine(), "ranks": comm.size, "ratio": ratio}
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


def staging(comm: Any, values: Any) -> Callable[[], None]:
    source = DeviceArray(values.shape, values.dtype, of_this_rank()).set(values)
    target = DeviceArray(values.shape, values.dtype, of_this_rank())

    def call() -> None:
        comm.allreduce(source, out=target)
        target.synchronize()

    return call


if __name__ == "__main__":
    main()
