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

from ringcomm.installed import cpu_name


def take_turns(
    world: Any, contestants: Mapping[str, Callable[[int], float]], turns: int, seed: int, uncounted: int = 0
) -> dict[str, list[float]]:
    """Seconds by contestant, of each turn the slowest rank's. In a turn each is called once, with the turn's number,
    and says what it took on this rank; their order is shuffled, alike on all ranks. Collective.

    Args:
        world: an mpi4py communicator.
        uncounted: turns before the first one that counts; their numbers are negative.
    """
    shuffle = random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(-uncounted, turns):
        for name in shuffle.sample(list(contestants), len(contestants)):
            seconds = contestants[name](turn)
            if turn >= 0:
                times[name].append(seconds)
    return slowest(world, times)


def slowest(world: Any, times: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Of every timing, the slowest rank's. Collective: all ranks timed the same things."""
    from mpi4py import MPI

    own = np.array([times[name] for name in times])
    every = np.empty_like(own)
    world.Allreduce(own, every, MPI.MAX)
    return {name: [float(t) for t in row] for name, row in zip(times, every, strict=True)}


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

    from ringcomm import __version__, _core

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
