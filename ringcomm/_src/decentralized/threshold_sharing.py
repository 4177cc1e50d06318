"""Threshold gradient sharing: ranks send only the weight changes that exceed a threshold.

`ringcomm.torch` uses it for its gradient sharing optimizer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ringcomm._src.decentralized.method import Method
from ringcomm._src.decentralized.replicas import Flat, Replica
from ringcomm._src.named.collectives import allgather
from ringcomm._src.named.process_sets import ProcessSet

_HEAD = 5  # numbers before the body: finishing, steps, encoding, entries, the threshold's bits
_INDICES, _BITMAP = 0, 1
_SPARSE = 1 / 16  # density below which indices are shorter than two bits per element
# An adaptive threshold is changed by this factor while the density is outside of this range.
_MIN_DENSITY, _MAX_DENSITY, _FACTOR = 1e-4, 1e-2, 1.2
_CLIP, _CLIP_EVERY = 5.0, 5  # limit of the residual, in thresholds, and steps between clippings


def encoded(residual: Flat, threshold: float) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Returns a message with the signs of the elements that reach the threshold.

    Subtracts the message from the residual. If less than a 16th of the elements are sent, the body
    is their indices; an index i with a negative sign is stored as ~i. Otherwise the body has two
    bits per element.
    """
    large = np.abs(residual) >= threshold
    count = int(np.count_nonzero(large))
    negative = residual < 0
    if count < _SPARSE * len(residual):
        indices = np.flatnonzero(large).astype(np.int32)
        body, encoding = np.where(negative[indices], ~indices, indices), _INDICES
    else:
        bits = np.concatenate([np.packbits(large), np.packbits(large & negative)])
        body, encoding = np.concatenate([bits, np.zeros(-len(bits) % 4, np.uint8)]).view(np.int32), _BITMAP
    residual[large] -= np.where(negative[large], -threshold, threshold).astype(residual.dtype)
    tau = np.array([threshold], np.float32).view(np.int32)
    return np.concatenate([np.array([0, 0, encoding, count], np.int32), tau, body.astype(np.int32)])


def subtract(x: Flat, message: np.ndarray[Any, np.dtype[np.int32]]) -> None:
    """Subtracts a rank's message from the weights."""
    encoding, tau, body = int(message[2]), message[4:5].view(np.float32)[0].astype(x.dtype), message[_HEAD:]
    if encoding == _INDICES:
        x[body[body >= 0]] -= tau
        x[~body[body < 0]] += tau
    else:
        length = -(-len(x) // 8)
        bits = np.ascontiguousarray(body).view(np.uint8)
        large = np.unpackbits(bits[:length], count=len(x)).view(bool)
        negative = np.unpackbits(bits[length : 2 * length], count=len(x)).view(bool)
        x[large & ~negative] -= tau
        x[negative] += tau


class ThresholdSharing(Method):
    """A method with identical weights on all ranks, which share large changes only. Collective.

    The optimizer's change of a rank's weights is added to its residual. All ranks apply the parts
    of all residuals that exceed a threshold.

    Source: Strom, Interspeech 2015; adaptation and clipping as in DL4J's SharedTrainingMaster.
    """

    has_own_model = True

    def __init__(
        self, name: str, replica: Replica[Any], threshold: float, adaptive: bool, process_set: ProcessSet
    ) -> None:
        self._replica, self.threshold, self._adaptive = replica, threshold, adaptive
        self.weights = replica.broadcast_initial(0, f"{name}.start", process_set)
        self.residual = np.zeros_like(self.weights)
        self.exchanges = self.bytes = self._other_steps = 0
        self.density = self.waited = 0.0
        super().__init__(name, process_set)

    def stepped(self) -> None:
        """Adds the change of this rank's step to the residual, and exchanges large elements."""
        self.steps += 1
        change = self.weights - self._replica.flat_copy(0)
        change /= self.process_set.size()
        self.residual += change
        message = encoded(self.residual, self.threshold)
        self.density = message[3] / max(len(self.weights), 1)
        if self.steps % _CLIP_EVERY == 0:
            np.clip(self.residual, -_CLIP * self.threshold, _CLIP * self.threshold, out=self.residual)
        if self._adaptive and not _MIN_DENSITY <= self.density <= _MAX_DENSITY:
            self.threshold *= _FACTOR if self.density > _MAX_DENSITY else 1 / _FACTOR
        self._exchange(message)

    def _exchange(self, message: np.ndarray[Any, np.dtype[np.int32]]) -> bool:
        """Sends a message, and applies all ranks' messages. Returns True if all ranks finish."""
        message[1] = self.steps
        sized = np.concatenate([np.array([len(message)], np.int32), message])
        since = time.monotonic()
        gathered = allgather(sized, name=f"{self.name}.shared", process_set=self.process_set)
        self.waited += time.monotonic() - since
        self.bytes += sized.nbytes
        steps, all_finishing = 0, True
        while len(gathered):
            received, gathered = gathered[1 : 1 + gathered[0]], gathered[1 + gathered[0] :]
            steps, all_finishing = steps + int(received[1]), all_finishing and bool(received[0])
            subtract(self.weights, received)
        self._other_steps = steps - self.steps
        self._replica.write(0, self.weights)
        self.exchanges += 1
        return all_finishing

    def _finish(self) -> None:
        """Answers the other ranks until all ranks finish. The residual is discarded."""
        empty = np.zeros(_HEAD, np.int32)
        empty[0] = 1
        while not self._exchange(empty.copy()):
            pass

    @property
    def updates(self) -> int:
        return self.steps + self._other_steps

    def stats(self) -> dict[str, Any]:
        more = {"density": self.density, "threshold": self.threshold}
        return self._stats(self.exchanges, self.waited, self.bytes, **more)

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps, "threshold": self.threshold, "residual": self.residual.copy()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned. The weights are read from the replica."""
        self.steps, self.threshold = state["steps"], state["threshold"]
        self.residual[:] = state["residual"]
        self._replica.read(0, self.weights)
