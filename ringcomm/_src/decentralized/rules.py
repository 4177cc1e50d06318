"""Rules of an exchange: mean, move of an anchor (DiLoCo, SlowMo), pull to a centre (EASGD).

Fragments are flat arrays: ``head`` elements of weights, followed by statistics. Every rule takes
the mean of the statistics. `Periodic` calls ``contribute`` before a round, then ``apply_mean``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Flat = NDArray[Any]


class Rule(ABC):
    """Base class of the rules, which change fragments in place."""

    anchors: list[Flat]  # the method's model, by fragment; empty: the model is the mean of all replicas

    def __init__(self) -> None:
        self.anchors = []

    def start(self, fragment: Flat) -> None:  # noqa: B027
        """Receives the next fragment's initial weights, equal on all ranks."""

    def contribute(self, number: int, flat: Flat) -> None:  # noqa: B027
        """Replaces this rank's weights in ``flat`` by its contribution."""

    @abstractmethod
    def apply_mean(self, number: int, mean: Flat, count: int, old_weights: Callable[[], Flat]) -> None:
        """Replaces the mean of ``count`` contributions by new weights."""

    def prepare_finish(self) -> None:  # noqa: B027
        """Prepares for the end: this rank makes no more steps."""

    def state(self) -> dict[str, list[Flat]]:
        """Returns copies of the state between exchanges."""
        return {"anchors": [anchor.copy() for anchor in self.anchors]}

    def load(self, state: dict[str, list[Flat]]) -> None:
        for name, flats in state.items():
            for own, loaded in zip(getattr(self, name), flats, strict=True):
                own[:] = loaded


class Mean(Rule):
    """The mean: x <- mean. With ``overlap``: x <- x + mean - (the rank's contribution).

    Source: Stich, "Local SGD converges fast", arXiv:1805.09767; Shen et al., CoCoD-SGD,
    arXiv:1906.12043.
    """

    def __init__(self, overlap: bool = False) -> None:
        super().__init__()
        self._overlap = overlap
        self._sent: dict[int, Flat] = {}

    def contribute(self, number: int, flat: Flat) -> None:
        if self._overlap:
            np.copyto(self._sent.setdefault(number, np.empty_like(flat)), flat)

    def apply_mean(self, number: int, mean: Flat, count: int, old_weights: Callable[[], Flat]) -> None:
        if self._overlap:
            mean -= self._sent[number]
            mean += old_weights()

    def prepare_finish(self) -> None:
        self._overlap = False  # all ranks end with the same bits


class Outer(Rule):
    """An outer optimizer that uses the means as SGD uses gradients.

    With anchor a, velocity u, momentum m and blend b: d = a - mean x; u <- m u + d. With Nesterov's
    momentum, a <- a - lr (d + m u), else a <- a - lr u. Then x <- a; if steps were made during the
    round, x <- b x + (1 - b) a.

    Source: Douillard et al., DiLoCo, arXiv:2311.08105, and Streaming DiLoCo, arXiv:2501.18512; Wang
    et al., SlowMo, arXiv:1910.00643; Chen and Huo, BMUF, ICASSP 2016.
    """

    def __init__(self, lr: float, momentum: float, nesterov: bool, blend: float | None, heads: list[int]) -> None:
        super().__init__()
        self.lr, self.momentum, self.nesterov, self.blend = lr, momentum, nesterov, blend
        self._heads = heads
        self.velocities: list[Flat] = []

    def start(self, fragment: Flat) -> None:
        head = self._heads[len(self.anchors)]
        self.anchors.append(fragment[:head].copy())
        self.velocities.append(np.zeros(head if self.momentum else 0, fragment.dtype))

    def contribute(self, number: int, flat: Flat) -> None:
        flat[: self._heads[number]] -= self.anchors[number]

    def apply_mean(self, number: int, mean: Flat, count: int, old_weights: Callable[[], Flat]) -> None:
        anchor, velocity, gradient = self.anchors[number], self.velocities[number], mean[: self._heads[number]]
        np.negative(gradient, out=gradient)
        if self.momentum:
            velocity *= self.momentum
            velocity += gradient
            if self.nesterov:
                gradient += self.momentum * velocity
            else:
                gradient[:] = velocity
        gradient *= self.lr
        anchor -= gradient
        gradient[:] = anchor
        if self.blend:
            gradient *= 1 - self.blend
            gradient += self.blend * old_weights()[: len(gradient)]

    def state(self) -> dict[str, list[Flat]]:
        return super().state() | {"velocities": [velocity.copy() for velocity in self.velocities]}


class Elastic(Rule):
    """Elastic averaging: replicas and a centre attract each other.

    d = alpha (x - c), x <- x - d, c <- c + (sum of all d).

    Source: Zhang, Choromanska and LeCun, "Deep learning with elastic averaging SGD",
    arXiv:1412.6651.
    """

    def __init__(self, alpha: float, heads: list[int]) -> None:
        super().__init__()
        self.alpha, self._heads = alpha, heads
        self._pulls: dict[int, Flat] = {}

    def start(self, fragment: Flat) -> None:
        self.anchors.append(fragment[: self._heads[len(self.anchors)]].copy())

    def contribute(self, number: int, flat: Flat) -> None:
        difference = flat[: self._heads[number]]
        difference -= self.anchors[number]
        np.multiply(difference, self.alpha, out=self._pulls.setdefault(number, np.empty_like(difference)))

    def apply_mean(self, number: int, mean: Flat, count: int, old_weights: Callable[[], Flat]) -> None:
        difference = mean[: self._heads[number]]
        difference *= self.alpha * count
        self.anchors[number] += difference
        difference[:] = old_weights()[: len(difference)]
        if number in self._pulls:  # false if this rank has finished and did not contribute
            difference -= self._pulls.pop(number)
