"""What the network and the hosts are like, measured between ranks through the transport and the executor that run the
collectives. The numbers price schedules (csrc/schedule/price.cpp); docs/tuning.md says what they mean."""

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

TINY, SHORT, USUAL = 8, 8 << 10, 60 << 10  # bytes of messages: latency, and two that tell the rate
BURST = 64  # messages posted together
SECONDS = 0.04  # that one measurement should take
REPEAT = 5


def settle(link: Link, config: Config, known: dict[str, float] | None) -> Config:
    """The same options on every rank, with the network's numbers filled in where they can be had. Collective.

    Args:
        config: agreed already; what it gives holds.
        known: rank 0's `recall`.

    Raises:
        ValueError: rank 0's tuning file cannot be used.
    """
    rules.parse(config.tuning_file)  # raises on every rank if rank 0's cannot be used
    several_hosts = len(link.topology.hosts) > 1
    measuring = config.tune == "on" or (config.tune == "auto" and several_hosts and known is None)
    if config.alpha > 0 and config.beta > 0:  # given, or settled for the communicator that this one is a part of
        measuring = False
    if measuring and link.size > 1 and isinstance(link, MpiLink):
        known = measure(link)
        if link.rank == 0:
            tuning_cache.save(link.topology, known)
    filled: dict[str, Any] = {name: value for name, value in (known or {}).items() if getattr(config, name) == 0}
    return dataclasses.replace(config, **filled)


def recall(link: Link, config: Config) -> dict[str, float] | None:
    """What was measured on this machine before, if it may be used. For rank 0; not collective."""
    if config.tune == "off" or link.rank != 0 or link.size == 1 or not isinstance(link, MpiLink):
        return None
    return tuning_cache.load(link.topology)


def measure(link: Link) -> dict[str, float]:
    """Numbers by the names of ringcomm._src.config.config.NETWORK, those of rank 0; less than a second for each level.
    Collective.

    Between hosts the first ranks of all measure at the same time, each sending and waiting, as schedules run: what a
    round costs depends on how busy all of them keep cores and links. Inside hosts the first two ranks of each.
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
    """Ranks that measure together: the first ones of all hosts (none if there is one host), and the first two of each
    host. Rank 0 is among those of each level, if there are any."""
    hosts = topology.hosts
    between = tuple(ranks[0] for ranks in hosts) if len(hosts) > 1 else ()
    return between, [(ranks[0], ranks[1]) for ranks in hosts if len(ranks) > 1]


class Circle:
    """Ranks that send on and receive, round after round, all at once: by dissemination, so that after some rounds each
    has waited for all. Every rank sends one message and takes one in each round; two ranks exchange theirs."""

    def __init__(self, link: Link, ranks: Sequence[int]) -> None:
        self._me, self._size = ranks.index(link.rank), len(ranks)
        self._channel = _channel(link, ranks, self._me)
        self.send_around(TINY, 2 * self._size.bit_length())  # makes connections

    def level(self) -> dict[str, float]:
        """alpha, beta, gap and hidden of the links between the ranks."""
        tiny, short, usual = (self.round(nbytes) for nbytes in (TINY, SHORT, USUAL))
        beta = max((usual - short) / (USUAL - SHORT), tuning_cache.LEAST_BETA)
        alpha = max(tiny - TINY * beta, 1e-9)
        hidden = min(max(alpha + SHORT * beta - short, 0.0), alpha)
        return {"alpha": alpha, "beta": beta, "gap": min(self.gap(), alpha), "hidden": hidden}

    def round(self, nbytes: int) -> float:
        """Seconds of one round with messages of so many bytes, in a row of them."""
        rounds = 4
        for _ in range(2):  # the second one also uses up what links have saved while they were idle
            rounds = self._agree(round(SECONDS * rounds / max(self.send_around(nbytes, rounds), 1e-9)), 4, 2000)
        return statistics.median(self.send_around(nbytes, rounds) / rounds for _ in range(REPEAT))

    def gap(self) -> float:
        """Seconds that each further one of many tiny messages takes."""
        times = [[self.send_around(TINY, 1, n) for n in (1, BURST)] for _ in range(6 * REPEAT)]
        one, many = (statistics.median(row[i] for row in times[REPEAT:]) for i in (0, 1))
        return max((many - one) / (BURST - 1), 1e-9)

    def send_around(self, nbytes: int, rounds: int, messages: int = 1) -> float:
        """Seconds that this takes; of so many messages at a time."""
        schedule = dissemination(self._me, self._size, rounds)
        memory = np.zeros(messages * 2 * nbytes, np.uint8)
        _from_first(self._channel, memory[:1])  # all are here
        begun = time.perf_counter()
        self._channel.run_messages(schedule, memory.ctypes.data, len(memory), 2 * nbytes, messages)
        return time.perf_counter() - begun

    def _agree(self, number: int, least: int, most: int) -> int:
        agreed = np.array([min(max(number, least), most)], np.int64)
        _from_first(self._channel, agreed.view(np.uint8))
        return int(agreed[0])


@functools.lru_cache(maxsize=8)
def dissemination(me: int, size: int, rounds: int) -> _core.Schedule:
    """Sends block 0 and takes block 1, in round k to and from the ranks 2^k away, and from the nearest again after the
    farthest: data only moves, as in an all-to-all."""
    distances = [1 << k for k in range((size - 1).bit_length())]

    def steps(distance: int) -> list[_core.Step]:
        to, origin = (me + distance) % size, (me - distance) % size
        return [_core.Step("send", to, 0, -1, False), _core.Step("receive", origin, 1, -1, False)]

    listed = [steps(distances[k % len(distances)]) for k in range(rounds)]
    return _core.Schedule("alltoall", "around", me, size, 0, 2, [], listed)


def _channel(link: Link, peers: Sequence[int], me: int) -> _core.Channel:
    return _core.Channel(link.ordered, peers, me, 0, link.tags, None, 0, Config(check=False).channel([]))


def _from_first(channel: _core.Channel, memory: npt.NDArray[np.uint8]) -> None:
    """What the first rank has in it is on all."""
    data = memory.ctypes.data
    channel.run(_core.Request(BROADCAST, BYTES, None, input=data, output=data, count=len(memory)))


def _from_rank_0(link: Link, numbers: dict[str, float]) -> dict[str, float]:
    """Over a channel of ours: ranks that wait there sleep, and do not disturb those that still measure."""
    values = np.array([numbers[name] for name in NETWORK])
    _from_first(_channel(link, range(link.size), link.rank), values.view(np.uint8))
    return dict(zip(NETWORK, map(float, values), strict=True))


# ---- memory ----------------------------------------------------------------------------------------------------------


def reducing(nbytes: int = 1 << 20) -> float:
    """Seconds per byte of a sum of float32."""
    x, y = np.ones(nbytes // 4, np.float32), np.ones(nbytes // 4, np.float32)
    dtype, op = _core.DTYPES.index("float32"), _core.OPS.index("sum")
    target, source = x.ctypes.data, y.ctypes.data
    return _best(lambda: _core.kernel_reduce(dtype, op, target, target, source, len(x))) / nbytes


def copying(nbytes: int = 4 << 20) -> float:
    """Seconds per byte of a copy."""
    x, y = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    return _best(lambda: _core.kernel_copy(x.ctypes.data, y.ctypes.data, nbytes)) / nbytes


def _best(call: Callable[[], None]) -> float:
    """The median of what it takes for a while."""
    times: list[float] = []
    end = time.perf_counter() + SECONDS / 4
    while len(times) < 5 or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)
