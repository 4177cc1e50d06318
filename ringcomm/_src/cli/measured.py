"""What all that measures shares: contestants that take turns, ratios with their uncertainty, the machine, JSON."""

from __future__ import annotations

import json
import math
import os
import platform
import random
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ringcomm._src.base.installed import cpu_name


def slowest(world: Any, times: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Of every timing, the slowest rank's. Collective: all ranks timed the same things."""
    return _largest(world, times)[0]


def first_to_last(
    world: Any, times: Mapping[str, Sequence[tuple[float, float]]], one_clock: bool
) -> dict[str, list[float]]:
    """Of every timing, which is a begin and an end: the time from the first rank's begin to the last one's end, as
    Hunold and Carpen-Amarie ("Reproducible MPI Benchmarking Is Still Not As Easy As You Think", 2016) define it. Where
    ranks have no clock in common, the slowest rank's own. Collective."""
    if not one_clock:
        return slowest(world, {name: [end - begin for begin, end in pairs] for name, pairs in times.items()})
    minus_begin = {name: [-begin for begin, _ in pairs] for name, pairs in times.items()}
    ends = {name: [end for _, end in pairs] for name, pairs in times.items()}
    first, last = _largest(world, minus_begin, ends)
    return {name: [a + b for a, b in zip(first[name], last[name], strict=True)] for name in times}


def _largest(world: Any, *numbers: Mapping[str, Sequence[float]]) -> list[dict[str, list[float]]]:
    """Of all ranks' numbers."""
    from mpi4py import MPI

    own = np.array([list(each.values()) for each in numbers])
    every = np.empty_like(own)
    world.Allreduce(own, every, MPI.MAX)
    return [dict(zip(each, rows.tolist(), strict=True)) for each, rows in zip(numbers, every, strict=True)]


def take_turns(
    world: Any,
    contestants: Mapping[str, Callable[[int], Any]],
    turns: int,
    seed: int,
    uncounted: int = 0,
    of_ranks: Callable[[Any, Mapping[str, Sequence[Any]]], dict[str, list[float]]] = slowest,
) -> dict[str, list[float]]:
    """Seconds by contestant, of each turn. In a turn each is called once, with the turn's number, and says what it took
    on this rank; their order is shuffled, alike on all ranks. Collective.

    Args:
        world: an mpi4py communicator.
        uncounted: turns before the first one that counts; their numbers are negative.
        of_ranks: what becomes of what the ranks say.
    """
    shuffle = random.Random(seed)
    times: dict[str, list[Any]] = {name: [] for name in contestants}
    for turn in range(-uncounted, turns):
        for name in shuffle.sample(list(contestants), len(contestants)):
            took = contestants[name](turn)
            if turn >= 0:
                times[name].append(took)
    return of_ranks(world, times)


def interval(
    value: Callable[[Callable[[str], Any]], Any], seconds: Mapping[str, Sequence[float]], samples: int = 1000
) -> tuple[float, float, float]:
    """A value of medians and its 95 % bootstrap interval. `value` asks for a contestant's median by its name; turns
    are drawn as they were measured, all contestants of one together."""
    turns = len(next(iter(seconds.values())))
    draws = np.random.default_rng(0).integers(0, turns, (samples, turns))
    drawn = value(lambda name: np.median(np.array(seconds[name])[draws], axis=1))
    low, high = np.percentile(drawn, (2.5, 97.5))
    return float(value(lambda name: np.median(seconds[name]))), float(low), float(high)


def lost(chosen: float, others: Iterable[float]) -> float:
    """By a choice that took so long, against the best of what there was: its time over that, less one."""
    return chosen / min(chosen, *others) - 1


def mean_loss(losses: Iterable[float]) -> float:
    """The geometric mean, of times over the best's."""
    return math.exp(statistics.fmean(map(math.log1p, losses))) - 1


def machine() -> dict[str, Any]:
    """What a reader must know to judge the numbers. In a rank: it starts MPI."""
    from mpi4py import MPI

    from ringcomm import __version__
    from ringcomm._src.core import _core

    return {
        "ringcomm": __version__,
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "instruction_set": _core.instruction_set(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "mpi": " ".join(MPI.Get_library_version().strip("\0 \n").splitlines()[0].split()),
        "load": os.getloadavg()[0],
    }


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write_json(file: str | Path, document: Any) -> None:
    """With lists of numbers on one line each."""
    text = re.sub(
        r"\[([\s\d.,e+-]+)\]", lambda match: f"[{' '.join(match[1].split())}]", json.dumps(document, indent=1)
    )
    Path(file).write_text(text + "\n", encoding="utf-8")
