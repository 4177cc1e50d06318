"""Measures the parameters of the cost model: network, memory and reduction speed.

Ranks measure through the transport and the executor that run the collectives. The parameters price schedules
(csrc/schedule/price.cpp); docs/tuning.md defines them.
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

TINY, SHORT, USUAL = 8, 8 << 10, 60 << 10  # message sizes in bytes: one for latency, two for bandwidth
BURST = 64  # messages posted together
SECONDS = 0.04  # target duration of one measurement, in seconds
REPEAT = 5


def settle(link: Link, config: Config, known: dict[str, float] | None) -> Config:
    """Returns the options with the network's parameters filled in, identical on all ranks. Collective.

    It measures the network if the options ask for it, or if there are several hosts and no cached parameters.

    Args:
        config: options, identical on all ranks; parameters given in them are kept.
        known: result of `recall` on rank 0.

    Raises:
        ValueError: rank 0's tuning file cannot be used.
    """
    rules.parse(config.tuning_file)  # the file's text is rank 0's, so this raises on every rank or on none
    several_hosts = len(link.topology.hosts) > 1
    measuring = config.tune == "on" or (config.tune == "auto" and several_hosts and known is None)
    if config.alpha > 0 and config.beta > 0:  # given, or measured for the parent communicator
        measuring = False
    if measuring and link.size > 1 and isinstance(link, MpiLink):
        known = measure(link)
        if link.rank == 0:
            tuning_cache.save(link.topology, known)
    filled: dict[str, Any] = {name: value for name, value in (known or {}).items() if getattr(config, name) == 0}
    return dataclasses.replace(config, **filled)


def recall(link: Link, config: Config) -> dict[str, float] | None:
    """Returns the cached parameters of this machine on rank 0, if the options allow it, else None. Not collective."""
    if config.tune == "off" or link.rank != 0 or link.size == 1 or not isinstance(link, MpiLink):
        return None
    return tuning_cache.load(link.topology)


def measure(link: Link) -> dict[str, float]:
    """Measures the parameters named in ringcomm._src.config.config.NETWORK; all ranks get those of rank 0. Collective.

    It takes less than a second for each level. Between hosts, the first ranks of all hosts measure at the same time,
    as schedules run: the cost of a round depends on the load of all cores and links. Inside a host, the first two ranks
    measure.
    """
    begun = time.perf_counter()
    numbers = dict.fromkeys(NETWORK, 0.0)
    between, within = groups(link.topology)
    if link.rank in between:
        numbers |= Circle(link, between).level()
    for pair in within:
        if link.rank in pair:
            near = Circle(link, pair).level()
            numbers |= {"host_alpha": near["alpha"], "host_beta": near["beta"]}
    numbers |= {"gamma": reducing(), "copy": copying()}
    agreed = _from_rank_0(link, numbers)
    if link.rank == 0:
        logger.info("measured the network in %.2f s: %s", time.perf_counter() - begun, agreed)
    return agreed


def groups(topology: Topology) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Returns the ranks that measure together: the first rank of each host, and the first two ranks of each host.

    The first tuple is empty if there is one host. Rank 0, whose results are used, is in the first tuple, and in a pair
    if its host has several ranks.
    """
    hosts = topology.hosts
    between = tuple(ranks[0] for ranks in hosts) if len(hosts) > 1 else ()
    return between, [(ranks[0], ranks[1]) for ranks in hosts if len(ranks) > 1]


class Circle:
    """Ranks that measure rounds of messages by dissemination, all at the same time.

    In each round, every rank sends one message and receives one. After ceil(log2(size)) rounds, each rank has waited
    for all ranks. Two ranks exchange messages.
    """

    def __init__(self, link: Link, ranks: Sequence[int]) -> None:
        self._me, self._size = ranks.index(link.rank), len(ranks)
        self._channel = _channel(link, ranks, self._me)
        self.send_around(TINY, 2 * self._size.bit_length())  # opens the connections

    def level(self) -> dict[str, float]:
        """Measures alpha, beta, gap and hidden of the links between the ranks."""
        tiny, short, usual = (self.round(nbytes) for nbytes in (TINY, SHORT, USUAL))
        beta = max((usual - short) / (USUAL - SHORT), tuning_cache.LEAST_BETA)
        alpha = max(tiny - TINY * beta, 1e-9)
        hidden = min(max(alpha + SHORT * beta - short, 0.0), alpha)
        return {"alpha": alpha, "beta": beta, "gap": min(self.gap(), alpha), "hidden": hidden}

    def round(self, nbytes: int) -> float:
        """Returns the seconds of one round with messages of `nbytes`, within a series of rounds."""
        rounds = 4
        for _ in range(2):  # the second series also exhausts the burst credit that links gain while idle
            rounds = self._agree(round(SECONDS * rounds / max(self.send_around(nbytes, rounds), 1e-9)), 4, 2000)
        return statistics.median(self.send_around(nbytes, rounds) / rounds for _ in range(REPEAT))

    def gap(self) -> float:
        """Returns the seconds that each additional tiny message of a burst takes."""
        times = [[self.send_around(TINY, 1, n) for n in (1, BURST)] for _ in range(6 * REPEAT)]
        one, many = (statistics.median(row[i] for row in times[REPEAT:]) for i in (0, 1))
        return max((many - one) / (BURST - 1), 1e-9)

    def send_around(self, nbytes: int, rounds: int, messages: int = 1) -> float:
        """Runs `rounds` rounds of dissemination with `messages` messages each; returns the seconds."""
        schedule = dissemination(self._me, self._size, rounds)
        memory = np.zeros(messages * 2 * nbytes, np.uint8)
        _from_first(self._channel, memory[:1])  # a barrier: all ranks start together
        begun = time.perf_counter()
        self._channel.run_messages(schedule, memory.ctypes.data, len(memory), 2 * nbytes, messages)
        return time.perf_counter() - begun

    def _agree(self, number: int, least: int, most: int) -> int:
        agreed = np.array([min(max(number, least), most)], np.int64)
        _from_first(self._channel, agreed.view(np.uint8))
        return int(agreed[0])


@functools.lru_cache(maxsize=8)
def dissemination(me: int, size: int, rounds: int) -> _core.Schedule:
    """Returns a schedule that sends block 0 and receives block 1 in each round.

    In round k, the peers are 2^k ranks away; after the largest distance it starts again with the nearest peers. Nothing
    is reduced, so the collective is an all-to-all.
    """
    distances = [1 << k for k in range((size - 1).bit_length())]

    def steps(distance: int) -> list[_core.Step]:
        to, origin = (me + distance) % size, (me - distance) % size
        return [_core.Step("send", to, 0, -1, False), _core.Step("receive", origin, 1, -1, False)]

    listed = [steps(distances[k % len(distances)]) for k in range(rounds)]
    return _core.Schedule("alltoall", "around", me, size, 0, 2, [], listed)


def _channel(link: Link, peers: Sequence[int], me: int) -> _core.Channel:
    return _core.Channel(link.ordered, peers, me, 0, link.tags, None, 0, Config(check=False).channel([]))


def _from_first(channel: _core.Channel, memory: npt.NDArray[np.uint8]) -> None:
    """Broadcasts the memory of the channel's first rank."""
    data = memory.ctypes.data
    channel.run(_core.Request(BROADCAST, BYTES, None, input=data, output=data, count=len(memory)))


def _from_rank_0(link: Link, numbers: dict[str, float]) -> dict[str, float]:
    """Broadcasts rank 0's parameters over a separate channel, where waiting ranks sleep.

    Ranks that are done therefore do not disturb ranks that still measure.
    """
    values = np.array([numbers[name] for name in NETWORK])
    _from_first(_channel(link, range(link.size), link.rank), values.view(np.uint8))
    return dict(zip(NETWORK, map(float, values), strict=True))


# ---- memory ----------------------------------------------------------------------------------------------------------


def reducing(nbytes: int = 1 << 20) -> float:
    """Returns the seconds per byte of a sum of float32."""
    x, y = np.ones(nbytes // 4, np.float32), np.ones(nbytes // 4, np.float32)
    dtype, op = _core.DTYPES.index("float32"), _core.OPS.index("sum")
    target, source = x.ctypes.data, y.ctypes.data
    return _best(lambda: _core.kernel_reduce(dtype, op, target, target, source, len(x))) / nbytes


def copying(nbytes: int = 4 << 20) -> float:
    """Returns the seconds per byte of a copy."""
    x, y = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    return _best(lambda: _core.kernel_copy(x.ctypes.data, y.ctypes.data, nbytes)) / nbytes


def _best(call: Callable[[], None]) -> float:
    """Calls `call` for a quarter of SECONDS, at least 5 times; returns the median duration in seconds."""
    times: list[float] = []
    end = time.perf_counter() + SECONDS / 4
    while len(times) < 5 or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)
