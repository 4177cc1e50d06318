"""Times all-reduce over links, for the workers of network.py and predict.py.

A timing covers consecutive calls. Their bytes far exceed the free capacity of a link's token
bucket. Each rank rewrites its input before each call, which is not timed. There is no barrier
between the calls, because buckets would fill meanwhile. The last call's result is checked
completely. Contestants take turns in shuffled order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ringcomm._src.cli.bench_cases import PERIOD, Case
from ringcomm._src.cli.measured import slowest, take_turns
from ringcomm._src.core import _core

SMALL = 64 << 10  # bytes; smaller buffers are latency-bound, and are timed for about
SMALL_SECONDS, LEAST, MOST = 0.3, 20, 1000  # SMALL_SECONDS, with at least LEAST and at most MOST calls
LONG = 8 << 20  # bytes; for larger buffers the time to connect is negligible, so they need no first turn


@dataclass
class Contestant:
    call: Callable[[], object]
    in_place: bool = False  # reduces case.output


def bound(nbytes: int, hosts: int, bits_per_second: float) -> float:
    """Returns the minimum seconds of all-reduce: a link carries 2 (h-1)/h of the buffer."""
    return 2 * (hosts - 1) / hosts * nbytes * 8 / bits_per_second


def calls_in_a_timing(nbytes: int, hosts: int, link_bytes: float) -> int:
    """Returns the number of calls for which `link_bytes` cross each link."""
    return max(1, math.ceil(link_bytes / bound(nbytes, hosts, 8)))


def all_reduce_case(comm: Any, world: Any, nbytes: int) -> Case:
    return Case("allreduce", comm, world, "float32", "sum", 0, nbytes, False)


def time_in_turns(case: Case, contestants: Mapping[str, Contestant], calls: int, turns: int) -> dict[str, list[float]]:
    """Returns the slowest rank's seconds per call, one value for each turn. Collective."""
    counts = dict.fromkeys(contestants, calls)
    if case.nbytes <= LONG:  # this turn makes connections, and is not counted
        trial = {
            name: [_timing(case, one, name, 10 if case.nbytes < SMALL else 2)] for name, one in contestants.items()
        }
        if case.nbytes < SMALL:
            tried = slowest(case.world, trial)
            counts = {name: min(max(LEAST, int(SMALL_SECONDS / t)), MOST, calls) for name, (t,) in tried.items()}
    timings = {name: partial(_timing, case, one, name, counts[name]) for name, one in contestants.items()}
    return take_turns(case.world, timings, turns, case.nbytes)


def _timing(case: Case, contestant: Contestant, name: str, calls: int, _turn: int = 0) -> float:
    spent = 0.0
    call = contestant.call
    case.world.Barrier()
    for turn in range(calls):
        case.refill(turn % PERIOD)
        if contestant.in_place:
            np.copyto(case.output, case.input)
        begin = time.perf_counter()
        call()
        spent += time.perf_counter() - begin
    if wrong := case.wrong():
        raise SystemExit(f"rank {case.rank}: {name} gave {wrong} wrong elements of {case.count}")
    return spent / calls


# ---- the choices of the model ----------------------------------------------------------------------------------------


def options(comm: Any, nbytes: int) -> Any:
    """Returns all options of the model, each with its best cut."""
    return _core.Menu("allreduce", comm.size, comm._link.topology.host_of, comm.config.network()).options(
        "", nbytes, memory=True
    )


def cut(comm: Any, path: str, nbytes: int) -> dict[str, int]:
    """Returns a piece's bytes and the number in flight; empty if the model does not cut."""
    for option in options(comm, nbytes):
        if option.name == path:
            return {"segment": min(option.segment, nbytes) or nbytes, "window": option.window}
    return {}
