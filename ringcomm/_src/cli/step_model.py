"""Predicts the time of a training step on several ranks, from that of one process and a network.

A step is a backward pass, in which gradients become ready one after the other, and the forward pass
that follows. The network reduces one buffer at a time. `advise` prints the predictions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

from ringcomm._src.core import _core
from ringcomm._src.training.bucket_limits import Limits, assign, efficient_bytes, limits_of_pieces
from ringcomm._src.training.pieces import by_first_use, cut, piece_bytes

ITEMSIZE = 4  # bytes of an element: gradients are float32

Price = Callable[[str, int], float]  # (collective, bytes) -> seconds


class Step(NamedTuple):
    """A step of one process. Items are parameters, in the order of their use in the forward pass."""

    forward: float  # seconds, with the optimizer's update
    backward: float  # seconds
    sizes: tuple[int, ...]  # bytes of each item
    ready: tuple[float, ...]  # seconds from the begin of the backward pass to each item's gradient

    @property
    def seconds(self) -> float:
        return self.forward + self.backward

    def slower(self, factor: float) -> Step:
        """Returns the step with all computation `factor` times as long."""
        return Step(
            self.forward * factor, self.backward * factor, self.sizes, tuple(time * factor for time in self.ready)
        )


class Job(NamedTuple):
    """A buffer that the network reduces when the gradients of its items are ready."""

    seconds: float
    items: Sequence[int]


def step_by_bytes(seconds: float, forward_share: float, sizes: Sequence[int]) -> Step:
    """Returns a step in which each item takes computation in proportion to its bytes."""
    backward, total, rest, ready = seconds * (1 - forward_share), sum(sizes), sum(sizes), []
    for size in sizes:
        ready.append(backward * (rest / total))
        rest -= size
    return Step(seconds - backward, backward, tuple(sizes), tuple(ready))


def prices(ranks: int, ranks_per_host: int, network: _core.Network, wire: int = 0) -> Price:
    """Returns the price function of a cluster with hosts that are filled one after another."""

    @cache
    def menu(collective: str) -> _core.Menu:
        return _core.Menu(collective, ranks, [rank // ranks_per_host for rank in range(ranks)], network)

    @cache
    def price(collective: str, nbytes: int) -> float:
        if ranks == 1:
            return 0.0
        options = menu(collective).options("", nbytes, memory=True, wire=wire)
        return next(option.price.seconds for option in options if option.chosen)

    return price


# ---- the methods -----------------------------------------------------------------------------------------------------


def synchronous(step: Step, price: Price, overhead: float = 0.0) -> float:
    """Returns the seconds of a step that waits for all gradients before the optimizer's update."""
    limits = Limits.up_to(efficient_bytes(partial(price, "allreduce")))
    return _in_buckets(step, "allreduce", price, overhead, limits)


def overlap_forward(step: Step, price: Price, overhead: float = 0.0) -> float:
    """Returns the seconds of a step with ``overlap_forward=True``: pieces in the order of use."""
    total = sum(step.sizes)
    piece = piece_bytes(total)
    buckets = _buckets(step, limits_of_pieces(total, efficient_bytes(partial(price, "allreduce"))))
    jobs: list[Job] = []
    gates: dict[int, list[int]] = {}
    for bucket in by_first_use(buckets, range(len(step.sizes))):
        items = buckets[bucket]
        pieces = cut(bucket, -(-sum(step.sizes[item] for item in items) // ITEMSIZE), ITEMSIZE, piece)
        numbers = list(range(len(jobs), len(jobs) + len(pieces)))
        gates |= dict.fromkeys(items, numbers)
        jobs += [Job(price("allreduce", each.elements * ITEMSIZE), items) for each in pieces]
    return run(step, jobs, [gates[item] for item in range(len(step.sizes))], overhead)


def local_sgd(step: Step, price: Price, every: int) -> float:
    """Returns the mean seconds of a step if ranks average their weights after `every` steps."""
    return step.seconds + price("allreduce", sum(step.sizes)) / every


def sharded_optimizer(step: Step, price: Price, overhead: float = 0.0) -> float:
    """Returns the seconds of a step with a sharded optimizer (ZeRO).

    Gradients are reduce-scattered during the backward pass. Then the new weights are gathered.
    """
    return _in_buckets(step, "reducescatter", price, overhead, Limits()) + price("allgather", sum(step.sizes))


def sharded_model(step: Step, price: Price, overhead: float = 0.0) -> float:
    """Returns the seconds of a step with a sharded model (FSDP, ZeRO stage 3).

    Each pass gathers the weights, one bucket ahead of its use. The backward pass also
    reduce-scatters the gradients.
    """
    sizes = [sum(step.sizes[item] for item in bucket) for bucket in _buckets(step, Limits())]
    gathers, scatters = ([price(name, size) for size in sizes] for name in ("allgather", "reducescatter"))
    return (
        gathers[-1]  # the forward pass begins with the last bucket, and leaves the first one in memory
        + _beside(step.forward, sum(gathers[:-1]), overhead)
        + _beside(step.backward, sum(gathers[1:]) + sum(scatters[:-1]), overhead)
        + scatters[-1]
    )


def _beside(compute: float, transfer: float, overhead: float) -> float:
    """Returns the seconds of computation and transfers that run at the same time."""
    return max(transfer, compute + overhead * transfer)


def _buckets(step: Step, limits: Limits) -> list[list[int]]:
    items = range(len(step.sizes))
    order = sorted(items, key=lambda item: (step.ready[item], -item))
    return assign(order, step.sizes, [0 for _ in items], [None for _ in items], limits)


def _in_buckets(step: Step, collective: str, price: Price, overhead: float, limits: Limits) -> float:
    buckets = _buckets(step, limits)
    jobs = [Job(price(collective, sum(step.sizes[item] for item in bucket)), bucket) for bucket in buckets]
    return run(step, jobs, [list(range(len(jobs)))] * len(step.sizes), overhead)


# ---- the simulation --------------------------------------------------------------------------------------------------


def run(step: Step, jobs: Sequence[Job], gates: Sequence[Sequence[int]], overhead: float) -> float:
    """Returns the seconds from the begin of a backward pass to the end of the next forward pass.

    Parameters
    ----------
    jobs
        Buffers by descending priority. The network runs one at a time and does not interrupt it.
    gates
        For each item, the jobs that must be done before the forward pass uses the item.
    overhead
        Share of its speed that computation loses while the network moves data; below 1.

    Notes
    -----
    Each job gates an item, so all jobs are done before the next backward pass begins. One pass is
    therefore the period of a training loop.
    """
    order = sorted(range(len(step.sizes)), key=lambda item: (step.ready[item], -item))
    ends = [step.ready[item] for item in order]
    works = [end - begin for begin, end in zip([0.0, *ends], ends, strict=False)]
    backward = sum(works)
    scale = step.forward / backward if backward else 0.0
    forward = [0.0] * len(works)
    for item, work in zip(order, works, strict=True):
        forward[item] = work * scale if scale else step.forward / len(works)
    network = _Network(jobs, len(works), overhead)
    for item, work in zip(order, works, strict=True):
        network.compute(work)
        network.gradient_ready(item)
    network.compute(step.backward - backward)
    for item, work in enumerate(forward):
        network.wait(gates[item])
        network.compute(work)
    return network.now


class _Network:
    """A network that runs jobs by priority beside one thread of computation."""

    def __init__(self, jobs: Sequence[Job], items: int, overhead: float) -> None:
        self.now = 0.0
        self._jobs, self._speed = jobs, 1 - overhead
        self._missing = [len(job.items) for job in jobs]
        self._jobs_of: list[list[int]] = [[] for _ in range(items)]
        for number, job in enumerate(jobs):
            for item in job.items:
                self._jobs_of[item].append(number)
        self._available: list[int] = []  # a heap
        self._current: int | None = None
        self._end = 0.0  # time at which the current job ends
        self._done = [False for _ in jobs]

    def gradient_ready(self, item: int) -> None:
        for number in self._jobs_of[item]:
            self._missing[number] -= 1
            if not self._missing[number]:
                heapq.heappush(self._available, number)
        if self._current is None:
            self._begin()

    def _begin(self) -> None:
        self._current = heapq.heappop(self._available) if self._available else None
        if self._current is not None:
            self._end = self.now + self._jobs[self._current].seconds

    def _finish(self) -> None:
        assert self._current is not None
        self.now = self._end
        self._done[self._current] = True
        self._begin()

    def compute(self, work: float) -> None:
        """Advances the clock by `work` seconds of undisturbed computation."""
        while self._current is not None:
            possible = (self._end - self.now) * self._speed
            if possible > work:
                self.now += work / self._speed
                return
            work -= possible
            self._finish()
        self.now += work

    def wait(self, jobs: Sequence[int]) -> None:
        """Advances the clock until the jobs are done."""
        while not all(self._done[number] for number in jobs):
            self._finish()
