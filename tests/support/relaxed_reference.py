"""Relaxed methods in NumPy, as a reference: all ranks' weights are in one array.

`gradient(rank, step, x)` returns the gradient of this rank's step (from 0) at its weights x. Ranks
may make different numbers of steps: `steps[rank]`. Results are (weights of each rank, the method's
model).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

Gradient = Callable[[int, int, np.ndarray], np.ndarray]


class SGD:
    """A torch.optim.SGD with momentum, on all ranks' rows."""

    def __init__(self, x: np.ndarray, lr: float, momentum: float) -> None:
        self.lr, self.momentum, self.v = lr, momentum, np.zeros_like(x)

    def step(self, x: np.ndarray, rank: int, g: np.ndarray) -> None:
        self.v[rank] = self.momentum * self.v[rank] + g
        x[rank] -= self.lr * self.v[rank]


def _mean(rows: np.ndarray) -> np.ndarray:
    return rows.sum(axis=0) / len(rows)


def local_sgd(
    x0: np.ndarray,
    gradient: Gradient,
    steps: Sequence[int],
    every: int,
    lr: float,
    momentum: float = 0.0,
    state: str = "local",
    start: int = 0,
    overlap: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes a periodic method.

    Ranks that have finished contribute nothing to means. Rounds are counted: a rank's n-th round
    meets the other ranks' n-th.
    """
    p = len(steps)
    x = np.repeat(x0[None], p, axis=0)
    sgd = SGD(x, lr, momentum)
    sent: np.ndarray | None = None
    live = list(range(p))
    for step in range(max(steps)):
        leaving = [rank for rank in live if steps[rank] <= step]
        here = [rank for rank in live if steps[rank] > step]
        if leaving:  # their last weights count in the next round
            assert not overlap and step >= start
        gradients = {rank: gradient(rank, step, x[rank]) for rank in here}
        if step < start:
            mean = _mean(np.array(list(gradients.values())))
            gradients = dict.fromkeys(here, mean)
        for rank in here:
            sgd.step(x, rank, gradients[rank])
        if step >= start and (step - start + 1) % every == 0:
            if overlap:
                if sent is not None:
                    x += _mean(sent) - sent
                sent = x.copy()
            else:
                x[:] = _mean(x[live])
                live = here
                if state == "average":
                    sgd.v[:] = _mean(sgd.v)
                elif state == "reset":
                    sgd.v[:] = 0
    if sent is not None:
        x += _mean(sent) - sent
    x[:] = _mean(x[live])
    return x, x[0]


def diloco(
    x0: np.ndarray,
    gradient: Gradient,
    p: int,
    steps: int,
    every: int,
    lr: float,
    outer_lr: float,
    outer_momentum: float,
    nesterov: bool,
    cuts: Sequence[slice],
    delay: int = 0,
    blend: float = 0.5,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes a method that exchanges fragments; `cuts` are their bounds."""
    x, a, u = np.repeat(x0[None], p, axis=0), x0.copy(), np.zeros_like(x0)
    sgd = SGD(x, lr, 0.0)
    parts, begun = len(cuts), 0
    flying: list[tuple[int, slice, np.ndarray]] = []

    def land(part: slice, sent: np.ndarray, mixing: bool) -> None:
        d = -_mean(sent)
        u[part] = outer_momentum * u[part] + d
        a[part] -= outer_lr * (d + outer_momentum * u[part] if nesterov else u[part])
        x[:, part] = blend * x[:, part] + (1 - blend) * a[part] if mixing else a[part]

    for step in range(1, steps + 1):
        for rank in range(p):
            sgd.step(x, rank, gradient(rank, step - 1, x[rank]))
        while flying and flying[0][0] <= step:
            land(*flying.pop(0)[1:], delay > 0)
        if step >= (begun + 1) * every // parts:
            part = cuts[begun % parts]
            begun += 1
            flying.append((step + delay, part, x[:, part] - a[part]))
            if not delay:
                land(*flying.pop(0)[1:], False)
    for _, part, sent in flying:
        land(part, sent, delay > 0)
    for i in range(parts):
        part = cuts[(begun + i) % parts]
        land(part, x[:, part] - a[part], delay > 0)
    return x, a


def easgd(
    x0: np.ndarray, gradient: Gradient, p: int, steps: int, every: int, lr: float, beta: float, overlap: bool
) -> tuple[np.ndarray, np.ndarray]:
    x, c = np.repeat(x0[None], p, axis=0), x0.copy()
    sgd = SGD(x, lr, 0.0)
    flying: np.ndarray | None = None

    def land(apart: np.ndarray) -> None:
        c[:] += beta * _mean(apart)
        x[:] -= beta / p * apart

    for step in range(1, steps + 1):
        for rank in range(p):
            sgd.step(x, rank, gradient(rank, step - 1, x[rank]))
        if flying is not None:
            land(flying)
            flying = None
        if step % every == 0:
            flying = x - c
            if not overlap:
                land(flying)
                flying = None
    if flying is not None:
        land(flying)
    land(x - c)
    return x, c


def late(x0: np.ndarray, gradient: Gradient, steps: Sequence[int], lr: float, momentum: float) -> np.ndarray:
    """Computes Pipe-SGD. Returns the weights, which are equal on every rank."""
    x = x0[None].copy()
    sgd = SGD(x, lr, momentum)
    pending: np.ndarray | None = None
    for step in range(max(steps)):
        mean = _mean(np.array([gradient(rank, step, x[0]) for rank in range(len(steps)) if steps[rank] > step]))
        if pending is not None:
            sgd.step(x, 0, pending)
        pending = mean
    if pending is not None:
        sgd.step(x, 0, pending)
    return x[0]


def gossip(
    x0: np.ndarray,
    gradient: Gradient,
    matrices: Sequence[np.ndarray],
    steps: int,
    every: int,
    lr: float,
    resync: int = 0,
    ahead: bool = False,
) -> np.ndarray:
    """Returns all replicas of a gossip method. `ahead`: combines while it adapts."""
    p, rounds = len(matrices[0]), 0
    x = np.repeat(x0[None], p, axis=0)
    sgd = SGD(x, lr, 0.0)
    sent: tuple[np.ndarray, np.ndarray] | None = None
    for step in range(1, steps + 1):
        for rank in range(p):
            sgd.step(x, rank, gradient(rank, step - 1, x[rank]))
        if step % every == 0:
            if sent is not None:
                x += sent[0] @ sent[1] - sent[1]
            weights = matrices[rounds % len(matrices)]
            rounds += 1
            sent = (weights, x.copy()) if ahead else None
            if not ahead:
                x[:] = weights @ x
        if resync and step % resync == 0:
            if sent is not None:
                x += sent[0] @ sent[1] - sent[1]
                sent = None
            x[:] = _mean(x)
    if sent is not None:
        x += sent[0] @ sent[1] - sent[1]
    return x


def synchronous(x0: np.ndarray, gradient: Gradient, p: int, steps: int, lr: float, momentum: float) -> np.ndarray:
    x = x0[None].copy()
    sgd = SGD(x, lr, momentum)
    for step in range(steps):
        sgd.step(x, 0, _mean(np.array([gradient(rank, step, x[0]) for rank in range(p)])))
    return x[0]


def replayed(
    x0: np.ndarray, gradient: Gradient, log: Sequence[tuple[int, int, int, int]], lr: float, momentum: float
) -> np.ndarray:
    """Replays a shard's asynchronous log: (version applied, rank, step, version read)."""
    versions = [x0.copy()]
    v = np.zeros_like(x0)
    for version, rank, step, read in sorted(log):
        assert version == len(versions) - 1
        v = v * v.dtype.type(momentum) + gradient(rank, step, versions[read])
        versions.append(versions[-1] + v.dtype.type(-lr) * v)
    return versions[-1]


def easgd_replayed(
    x0: np.ndarray, gradient: Gradient, p: int, steps: int, every: int, lr: float, log: Sequence[tuple[int, int]]
) -> np.ndarray:
    """Returns the centre of asynchronous EASGD from its log: (version, rank) in any order."""
    x, c = np.repeat(x0[None], p, axis=0), x0.copy()
    alpha = c.dtype.type(0.9 / p)

    def worker(rank: int) -> Iterator[None]:
        for step in range(steps):
            g = gradient(rank, step, x[rank])
            if (step + 1) % every == 0:
                yield
            x[rank] -= c.dtype.type(lr) * g
        yield

    workers = [worker(rank) for rank in range(p)]
    for number, (version, rank) in enumerate(sorted(log)):
        assert version == number
        next(workers[rank])
        pull = alpha * (x[rank] - c)
        x[rank] -= pull
        c += pull
    return c


def pairs_replayed(
    x0: np.ndarray, gradient: Gradient, lr: float, logs: Sequence[Sequence[tuple[int, int, int, int, int]]]
) -> np.ndarray:
    """Returns the final weights of AD-PSGD, from each rank's log of its meetings.

    An entry holds the version of the replica before the step was added, the other rank (-1: none),
    the versions of both before their mean, and the version taken. The last entry has no step.
    """
    p = len(logs)
    values = [[x0.copy()] for _ in range(p)]  # one per version
    # by version: the operation that made the next one
    todo: list[dict[int, tuple[str, int, int]]] = [{} for _ in range(p)]
    for rank, log in enumerate(logs):
        for number, (added, other, mine, theirs, _) in enumerate(log):
            todo[rank][added] = ("add", rank, number)
            if other >= 0:
                todo[rank][mine] = todo[other][theirs] = ("mean", rank, number)

    def change(rank: int, number: int) -> np.ndarray:
        x = x0 if number == 0 else values[rank][logs[rank][number - 1][4]]
        step = x.dtype.type(lr) * gradient(rank, number, x) if number < len(logs[rank]) - 1 else x.dtype.type(0)
        return (x - step) - x

    while any(len(values[rank]) - 1 in todo[rank] for rank in range(p)):
        before = sum(map(len, values))
        for rank in range(p):
            what, by, number = todo[rank].get(len(values[rank]) - 1, ("", 0, 0))
            if what == "add" and (number == 0 or logs[rank][number - 1][4] < len(values[rank])):
                values[rank].append(values[rank][-1] + change(rank, number))
            elif what == "mean":
                _, other, mine, theirs, _ = logs[by][number]
                if len(values[by]) - 1 == mine and len(values[other]) - 1 == theirs:
                    mean = (values[by][-1] + values[other][-1]) * x0.dtype.type(0.5)
                    values[by].append(mean)
                    values[other].append(mean)
        assert sum(map(len, values)) > before, "the log contradicts itself"
    total = np.zeros_like(x0)
    for one in values:
        total += one[-1]
    return np.asarray(total / p, x0.dtype)
