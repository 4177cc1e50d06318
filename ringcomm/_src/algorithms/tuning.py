"""Measures the parameters of the cost model: network, memory and reduction speed.

Ranks measure through the transport and the executor that run the collectives.
csrc/schedule/price.cpp computes the cost of schedules from the parameters. docs/tuning.md defines
them.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ringcomm._src.algorithms import tuning_cache
from ringcomm._src.arrays.buffers import BYTES
from ringcomm._src.calls.calls import BROADCAST
from ringcomm._src.config import rules
from ringcomm._src.config.config import NETWORK, Config
from ringcomm._src.core import _core
from ringcomm._src.platform.bootstrap import Topology
from ringcomm._src.platform.links import Link
from ringcomm._src.platform.mpi_link import MpiLink

logger = logging.getLogger("ringcomm")

TINY, SHORT, LONG = 8, 8 << 10, 60 << 10  # message sizes in bytes: one for latency, two for bandwidth
BURST = 64  # messages posted together
SECONDS = 0.04  # target duration of one measurement, in seconds
REPEAT = 5


def add_network_parameters(link: Link, config: Config, cached: dict[str, float] | None) -> Config:
    """Returns the options with the network's parameters, identical on all ranks. Collective.

    Measures the network if the options ask for it, or if there are several hosts and no cached
    parameters.

    Parameters
    ----------
    config : Config
        Options, identical on all ranks. Parameters that they set are not changed.
    cached : dict[str, float] | None
        Result of `cached_parameters` on rank 0.

    Raises
    ------
    ValueError
        Rank 0's tuning file cannot be used.
    """
    rules.parse(config.tuning_file)  # the file's text is rank 0's, so this raises on every rank or on none
    several_hosts = len(link.topology.hosts) > 1
    needs_measurement = config.tune == "on" or (config.tune == "auto" and several_hosts and cached is None)
    if config.alpha > 0 and config.beta > 0:  # given, or measured for the parent communicator
        needs_measurement = False
    if needs_measurement and link.size > 1 and isinstance(link, MpiLink):
        cached = measure(link)
        if link.rank == 0:
            tuning_cache.save(link.topology, cached)
    measured: dict[str, Any] = {name: value for name, value in (cached or {}).items() if getattr(config, name) == 0}
    return dataclasses.replace(config, **measured)


def cached_parameters(link: Link, config: Config) -> dict[str, float] | None:
    """Returns this machine's cached parameters on rank 0 if the options allow it, else None."""
    if config.tune == "off" or link.rank != 0 or link.size == 1 or not isinstance(link, MpiLink):
        return None
    return tuning_cache.load(link.topology)


def measure(link: Link) -> dict[str, float]:
    """Measures the parameters that NETWORK names; all ranks get rank 0's results. Collective.

    A measurement takes less than a second for each level (between hosts, inside hosts). Between
    hosts, the first ranks of all hosts measure at the same time. This loads all cores and links as
    a schedule does, and the cost of a round depends on this load. Inside a host, the first two
    ranks measure.
    """
    started = time.perf_counter()
    numbers = dict.fromkeys(NETWORK, 0.0)
    between, within = groups(link.topology)
    if link.rank in between:
        numbers |= NetworkProbe(link, between).measure_level()
    for pair in within:
        if link.rank in pair:
            host_level = NetworkProbe(link, pair).measure_level()
            numbers |= {"host_alpha": host_level["alpha"], "host_beta": host_level["beta"]}
    numbers |= {"gamma": measure_reduce(), "copy": measure_copy()}
    agreed = _broadcast_from_rank_0(link, numbers)
    if link.rank == 0:
        logger.info("measured the network in %.2f s: %s", time.perf_counter() - started, agreed)
    return agreed


def groups(topology: Topology) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Returns the ranks that measure between hosts, and the pairs that measure within a host.

    The first result has the first rank of every host; it is empty if there is one host. The second
    result has the first two ranks of every host that has several ranks. Rank 0, whose results are
    used, is in the first result, and in a pair if its host has several ranks.
    """
    hosts = topology.hosts
    between = tuple(ranks[0] for ranks in hosts) if len(hosts) > 1 else ()
    return between, [(ranks[0], ranks[1]) for ranks in hosts if len(ranks) > 1]


class NetworkProbe:
    """Measures rounds of messages on several ranks at the same time.

    In each round, every rank sends one message and receives one. The peers are those of a
    dissemination barrier: after ceil(log2(size)) rounds, each rank has waited, directly or through
    other ranks, for all ranks.
    """

    def __init__(self, link: Link, ranks: Sequence[int]) -> None:
        self._rank, self._size = ranks.index(link.rank), len(ranks)
        self._channel = _channel(link, ranks, self._rank)
        self.time_rounds(TINY, 2 * self._size.bit_length())  # opens the connections

    def measure_level(self) -> dict[str, float]:
        """Measures alpha, beta, gap and hidden of the links between the ranks."""
        tiny_seconds, short_seconds, long_seconds = (self.measure_round(nbytes) for nbytes in (TINY, SHORT, LONG))
        beta = max((long_seconds - short_seconds) / (LONG - SHORT), tuning_cache.LEAST_BETA)
        alpha = max(tiny_seconds - TINY * beta, 1e-9)
        hidden_seconds = min(max(alpha + SHORT * beta - short_seconds, 0.0), alpha)
        return {"alpha": alpha, "beta": beta, "gap": min(self.measure_gap(), alpha), "hidden": hidden_seconds}

    def measure_round(self, nbytes: int) -> float:
        """Returns the time of one round, in seconds, in a series with messages of `nbytes`."""
        rounds = 4
        for _ in range(2):  # the second series also exhausts the burst credit that links gain while idle
            rounds = self._agree_on_number(
                round(SECONDS * rounds / max(self.time_rounds(nbytes, rounds), 1e-9)), 4, 2000
            )
        return statistics.median(self.time_rounds(nbytes, rounds) / rounds for _ in range(REPEAT))

    def measure_gap(self) -> float:
        """Returns the seconds that each additional tiny message of a burst takes."""
        times = [[self.time_rounds(TINY, 1, n) for n in (1, BURST)] for _ in range(6 * REPEAT)]
        single_seconds, burst_seconds = (statistics.median(row[i] for row in times[REPEAT:]) for i in (0, 1))
        return max((burst_seconds - single_seconds) / (BURST - 1), 1e-9)

    def time_rounds(self, nbytes: int, rounds: int, messages: int = 1) -> float:
        """Runs rounds of dissemination with `messages` messages each; returns the seconds."""
        schedule = dissemination(self._rank, self._size, rounds)
        memory = np.zeros(messages * 2 * nbytes, np.uint8)
        _broadcast_from_first(self._channel, memory[:1])  # a barrier: all ranks start together
        started = time.perf_counter()
        self._channel.run_messages(schedule, memory.ctypes.data, len(memory), 2 * nbytes, messages)
        return time.perf_counter() - started

    def _agree_on_number(self, number: int, minimum: int, maximum: int) -> int:
        agreed = np.array([min(max(number, minimum), maximum)], np.int64)
        _broadcast_from_first(self._channel, agreed.view(np.uint8))
        return int(agreed[0])


@functools.lru_cache(maxsize=8)
def dissemination(rank: int, size: int, rounds: int) -> _core.Schedule:
    """Returns a schedule that sends block 0 and receives block 1 in each round.

    In round k, the peers are 2^k ranks away. After the largest distance, the next round starts
    again with the nearest peers. The schedule reduces nothing, so it is declared as an all-to-all.
    """
    distances = [1 << k for k in range((size - 1).bit_length())]

    def steps(distance: int) -> list[_core.Step]:
        dest, source = (rank + distance) % size, (rank - distance) % size
        return [_core.Step("send", dest, 0, -1, False), _core.Step("receive", source, 1, -1, False)]

    steps_of_rounds = [steps(distances[k % len(distances)]) for k in range(rounds)]
    return _core.Schedule("alltoall", "around", rank, size, 0, 2, [], steps_of_rounds)


def _channel(link: Link, peers: Sequence[int], rank: int) -> _core.Channel:
    return _core.Channel(link.ordered, peers, rank, 0, link.tags, None, 0, Config(check=False).channel([]))


def _broadcast_from_first(channel: _core.Channel, memory: npt.NDArray[np.uint8]) -> None:
    """Broadcasts the memory of the channel's first rank."""
    data = memory.ctypes.data
    channel.run(_core.Request(BROADCAST, BYTES, None, input=data, output=data, count=len(memory)))


def _broadcast_from_rank_0(link: Link, numbers: dict[str, float]) -> dict[str, float]:
    """Broadcasts rank 0's parameters over a separate channel, where waiting ranks sleep.

    Ranks that are done therefore do not disturb ranks that still measure.
    """
    values = np.array([numbers[name] for name in NETWORK])
    _broadcast_from_first(_channel(link, range(link.size), link.rank), values.view(np.uint8))
    return dict(zip(NETWORK, map(float, values), strict=True))


# ---- memory ----------------------------------------------------------------------------------------------------------


def measure_reduce(nbytes: int = 1 << 20) -> float:
    """Returns the seconds per byte of a sum of float32."""
    x, y = np.ones(nbytes // 4, np.float32), np.ones(nbytes // 4, np.float32)
    dtype, op = _core.DTYPES.index("float32"), _core.OPS.index("sum")
    target, source = x.ctypes.data, y.ctypes.data
    return _median_seconds(lambda: _core.kernel_reduce(dtype, op, target, target, source, len(x))) / nbytes


def measure_copy(nbytes: int = 4 << 20) -> float:
    """Returns the seconds per byte of a copy."""
    x, y = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    return _median_seconds(lambda: _core.kernel_copy(x.ctypes.data, y.ctypes.data, nbytes)) / nbytes


def _median_seconds(call: Callable[[], None]) -> float:
    """Returns the median duration of `call` in seconds, over SECONDS / 4 and at least 5 calls."""
    times: list[float] = []
    end = time.perf_counter() + SECONDS / 4
    while len(times) < 5 or time.perf_counter() < end:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)
