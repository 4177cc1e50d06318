"""Provides helpers of commands that measure: turns, intervals, machine description, JSON."""

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
    """Returns the slowest rank's time of every timing. Collective; names are equal on all ranks."""
    return _largest(world, times)[0]


def first_to_last(
    world: Any, times: Mapping[str, Sequence[tuple[float, float]]], one_clock: bool
) -> dict[str, list[float]]:
    """Returns the times from the first rank's start to the last rank's end. Collective.

    A timing is the start and the end of a call on this rank. Hunold and Carpen-Amarie
    ("Reproducible MPI Benchmarking Is Still Not As Easy As You Think", 2016) define this time.
    `one_clock` False: ranks have no common clock, so the result is the slowest rank's time.
    """
    if not one_clock:
        return slowest(world, {name: [end - begin for begin, end in pairs] for name, pairs in times.items()})
    minus_begin = {name: [-begin for begin, _ in pairs] for name, pairs in times.items()}
    ends = {name: [end for _, end in pairs] for name, pairs in times.items()}
    first, last = _largest(world, minus_begin, ends)
    return {name: [a + b for a, b in zip(first[name], last[name], strict=True)] for name in times}


def _largest(world: Any, *numbers: Mapping[str, Sequence[float]]) -> list[dict[str, list[float]]]:
    """Returns the maximum of all ranks' numbers, elementwise. Collective."""
    from mpi4py import MPI

    own = np.array([list(each.values()) for each in numbers])
    maxima = np.empty_like(own)
    world.Allreduce(own, maxima, MPI.MAX)
    return [dict(zip(each, rows.tolist(), strict=True)) for each, rows in zip(numbers, maxima, strict=True)]


def take_turns(
    world: Any,
    contestants: Mapping[str, Callable[[int], Any]],
    turns: int,
    seed: int,
    uncounted: int = 0,
    of_ranks: Callable[[Any, Mapping[str, Sequence[Any]]], dict[str, list[float]]] = slowest,
) -> dict[str, list[float]]:
    """Calls the contestants in turns. Returns the seconds of each turn, by contestant. Collective.

    A turn calls each contestant once, with the number of the turn. The contestant returns its
    timing on this rank. The order is shuffled, identically on all ranks.

    Parameters
    ----------
    world : mpi4py.MPI.Comm
        Communicator of all ranks.
    contestants : Mapping[str, Callable[[int], Any]]
        Functions by name.
    turns : int
        Number of turns that count.
    seed : int
        Seed of the shuffle.
    uncounted : int
        Number of turns before the first turn that counts; their numbers are negative.
    of_ranks : Callable
        Combines the timings of all ranks.
    """
    shuffle = random.Random(seed)
    times: dict[str, list[Any]] = {name: [] for name in contestants}
    for turn in range(-uncounted, turns):
        for name in shuffle.sample(list(contestants), len(contestants)):
            timing = contestants[name](turn)
            if turn >= 0:
                times[name].append(timing)
    return of_ranks(world, times)


def interval(
    value: Callable[[Callable[[str], Any]], Any], seconds: Mapping[str, Sequence[float]], samples: int = 1000
) -> tuple[float, float, float]:
    """Returns a value computed from medians, and the bounds of its 95 % bootstrap interval.

    `value` is called with a function that maps a contestant's name to the median of its times. The
    bootstrap draws turns, each with the times of all contestants.
    """
    turns = len(next(iter(seconds.values())))
    draws = np.random.default_rng(0).integers(0, turns, (samples, turns))
    drawn = value(lambda name: np.median(np.array(seconds[name])[draws], axis=1))
    low, high = np.percentile(drawn, (2.5, 97.5))
    return float(value(lambda name: np.median(seconds[name]))), float(low), float(high)


def loss_of(chosen: float, others: Iterable[float]) -> float:
    """Returns the loss of a choice: its time `chosen` / the smallest of all times, minus 1."""
    return chosen / min(chosen, *others) - 1


def mean_loss(losses: Iterable[float]) -> float:
    """Returns the mean loss: the geometric mean of time / smallest time, minus 1."""
    return math.exp(statistics.fmean(map(math.log1p, losses))) - 1


def machine() -> dict[str, Any]:
    """Returns facts about the machine, for readers of measurements. Initialises MPI."""
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
    """Writes a document as JSON, with each list of numbers on one line."""
    text = re.sub(
        r"\[([\s\d.,e+-]+)\]", lambda match: f"[{' '.join(match[1].split())}]", json.dumps(document, indent=1)
    )
    Path(file).write_text(text + "\n", encoding="utf-8")
