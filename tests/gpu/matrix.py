"""Compares every operation on arrays of the stand-in's GPU with host arrays: a rank's program.

    mpiexec -n 3 python matrix.py --seeds 100 --path ipc

Arrays are written, and results read, on a stream other than the default one. Operations that no
event orders therefore run too early, depending on the seed. Values are small integers, whose sums
and products are exact in any order.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import device_array as da
import ml_dtypes
import numpy as np
import pretended_hosts

import ringcomm
from ringcomm._src.arrays.device import devices
from ringcomm._src.core import _core

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NUMBERS = [BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in _core.DTYPES if not name.startswith("(")]
PAIRS = [
    np.dtype([("value", value), ("index", index)], align=True)
    for value, index in itertools.product(["i2", "i4", "i8", "f4", "f8"], ["i4", "i8"])
]
SIZES = (0, 1, 5, 1000, 33_333)
OPS = ("sum", "average", "min", "max", "product", "band", "lxor")


def values(rng: np.random.Generator, count: int, dtype: np.dtype, small: bool) -> Any:
    made = np.zeros(count, dtype)
    drawn = rng.integers(1, 3 if small else 7, count)
    if dtype.names:
        made["value"], made["index"] = drawn, rng.integers(0, 9, count)
    else:
        made[:] = drawn.astype(dtype)
    return made


class Calls:
    """The same calls for host arrays and for GPU arrays."""

    def __init__(self, comm: Any, rng: np.random.Generator, dtype: np.dtype) -> None:
        self.comm, self.rng, self.dtype = comm, rng, dtype
        self.op = str(rng.choice(names_of_ops(dtype)))
        self.root = int(rng.integers(comm.size))
        self.count = int(rng.choice(SIZES))
        self.in_place = bool(rng.integers(2))
        self.background = bool(rng.integers(2))

    def all(self) -> Iterator[tuple[str, Callable[[Callable[[Any], Any]], Any]]]:
        """Yields a name, and a function that makes the call with arrays moved by `move`."""
        # Draws that differ between ranks are last.
        mine = np.random.default_rng(self.rng.integers(2**31) + self.comm.rank)
        x = values(mine, self.count, self.dtype, self.op == "product")
        even = values(mine, self.count // self.comm.size * self.comm.size, self.dtype, self.op == "product")
        rows = values(mine, self.count + self.comm.rank, self.dtype, False)

        def placed(call: Callable[..., Any], array: Any, **how: Any) -> Callable[[Any], Any]:
            """Returns a function that makes the call in place, or with a separate result."""

            def run(move: Any) -> Any:
                given = move(array)
                return call(given, out=given if self.in_place else None, **how)

            return run

        def background(given: Any, **how: Any) -> Any:
            return self.comm.iallreduce(given, **how).wait()

        scans = self.op != "average"
        yield "allreduce", placed(background if self.background else self.comm.allreduce, x, op=self.op)
        yield "broadcast", placed(self.comm.broadcast, x, root=self.root)
        yield "reduce", placed(self.comm.reduce, x, root=self.root, op=self.op)
        yield "reducescatter", lambda move: self.comm.reducescatter(move(x), op=self.op)
        yield "allgather", lambda move: self.comm.allgather(move(rows))
        yield "alltoall", placed(self.comm.alltoall, even)
        yield "scan", placed(self.comm.scan, x, op=self.op) if scans else lambda move: None
        yield "exscan", placed(self.comm.exscan, x, op=self.op) if scans else lambda move: None
        yield "named allreduce", lambda move: self.named(move, [x])
        yield "grouped allreduce", lambda move: self.named(move, [x, even, x[:7]])

    def named(self, move: Any, given: list[Any]) -> Any:
        if self.dtype.names or self.op not in ("sum", "average", "min", "max", "product"):
            return None
        handles = ringcomm.grouped_allreduce_async([move(x) for x in given], op=ringcomm._src.base.ops.as_op(self.op))
        return (
            [ringcomm.synchronize(handle) for handle in handles]
            if isinstance(handles, list)
            else ringcomm.synchronize(handles)
        )


def names_of_ops(dtype: np.dtype) -> list[str]:
    if dtype.names:
        return ["minloc", "maxloc"]
    index = _core.DTYPES.index(dtype.name)
    return [op for op in OPS if _core.reduces(index, ringcomm._src.base.ops.as_op(op))]


def on_host(result: Any) -> Any:
    if isinstance(result, list):
        return [on_host(one) for one in result]
    return result.get() if hasattr(result, "get") else result


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    if a is None or b is None:
        return a is b
    if a.dtype.names:  # the bytes between the fields may differ
        return all(same(np.ascontiguousarray(a[field]), np.ascontiguousarray(b[field])) for field in a.dtype.names)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def check(comm: Any, seed: int, dtypes: list[np.dtype], wrong: list[str]) -> int:
    """Makes all calls of a seed; returns their number."""
    made = 0
    for dtype in dtypes:
        calls = Calls(comm, np.random.default_rng([seed, NUMBERS.index(dtype) if dtype in NUMBERS else 99]), dtype)
        for name, run in calls.all():
            expected = run(np.copy)
            with da.stream(_streams[seed % len(_streams)]):
                found = on_host(run(da.from_numpy))
            made += 1
            if not same(found, expected):
                wrong.append(f"{name} of {dtype}, {calls.op}, {calls.count}, seed {seed}: {found} not {expected}")
    return made


_streams: list[int] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--dtypes", type=int, default=0, help="of each seed; 0: all")
    options = parser.parse_args()
    pretended_hosts.pretend()
    da.use(os.environ["RINGCOMM_CUDA_LIBRARY"])
    driver = ctypes.CDLL(os.environ["RINGCOMM_CUDA_LIBRARY"])
    comm = ringcomm.Communicator()
    ringcomm.init()
    device = ringcomm.local_rank() % devices.count()
    everything, wrong, made = NUMBERS + PAIRS, [], 0
    with da.device(device):
        _streams.extend([da.new_stream(), 0, da.new_stream()])  # 0 is the default stream
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            if hasattr(driver, "standin_seed"):
                driver.standin_seed(ctypes.c_uint64(seed))
            some = options.dtypes or len(everything)
            made += check(comm, seed, [everything[(seed * some + i) % len(everything)] for i in range(some)], wrong)
    if hasattr(driver, "standin_check"):
        driver.standin_check()
    print(f"rank {comm.rank}: {made} calls, {len(wrong)} wrong {wrong[:2]}", flush=True)
    ringcomm.shutdown()
    comm.close()
    assert not wrong


if __name__ == "__main__":
    main()
