"""Operations that run once a quorum of ranks has come, and methods that are made of them."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ringcomm import _core, arrays, calls, named, shared
from ringcomm.handles import Handle
from ringcomm.process_sets import ProcessSet
from ringcomm.relaxed.every import NEVER
from ringcomm.relaxed.periodic import Periodic
from ringcomm.relaxed.replicas import Flat, Replica
from ringcomm.relaxed.rules import Mean

Quorum = str | int
_LOOK = 2e-4  # seconds between looks at a round that goes on without this rank


def least_of(quorum: Quorum, size: int) -> int:
    """As the core takes it. Raises ValueError for what is no quorum of so many ranks."""
    named_ones = {"solo": 1, "majority": 0}
    if isinstance(quorum, str) and quorum in named_ones:
        return named_ones[quorum]
    if isinstance(quorum, int) and not isinstance(quorum, bool) and 1 <= quorum <= size:
        return quorum
    raise ValueError(f'quorum={quorum!r}: "solo", "majority", or a number of ranks from 1 to {size}')


class QuorumReduction:
    """All-reduces of one array, which run on all ranks once a quorum has come. Collective.

    Args:
        name: the same on all ranks, and nothing else's.
        count, dtype: of the array; float32 or float64.
        op: Sum or Average (over all ranks of the set, whoever came).
        put: what is given last counts, and the last result (weights); else both are added up (gradients).
    """

    def __init__(
        self, name: str, process_set: ProcessSet, count: int, dtype: Any, quorum: Quorum, op: Any, put: bool = False
    ) -> None:
        self._name, self._set = name, process_set
        self._array = shared.empty(process_set.node, count, dtype)
        self.nbytes = self._array.nbytes
        buffer = arrays.target(self._array).on_host()
        request = calls.allreduce(buffer, buffer, op)
        request.name = f"allreduce.{name}"
        least = least_of(quorum, process_set.size())
        self._of_all = least == process_set.size()
        self._standing = _core.Standing(process_set.session().engine, process_set.set_id(), request, least, put)
        self._meet("stands")
        self.included = True  # what was given last is in the results taken last
        self.rounds = self.late = 0  # that this rank has taken; times it came late
        self.waited = 0.0  # seconds

    def exchange(self, given: Flat | None, results: Flat) -> None:
        """Gives, and takes the results of the rounds since the last time, which there are, or waits for one. ``given``
        may be ``results``.

        Raises:
            RankLeftError, ShutDownError, PeerLostError: there are none to come.
        """
        since = time.monotonic()
        operation = self._standing.come(0 if given is None else given.ctypes.data)
        if operation is not None:
            Handle([operation], lambda: None, self._name).wait()
        else:
            self.late += 1
            while not self._standing.has_results():
                if self._standing.operation.wait(_LOOK):
                    self._standing.operation.check()
        rounds, self.included = self._standing.take(results.ctypes.data)
        self.rounds += rounds
        self.waited += time.monotonic() - since

    def offer(self, given: Flat) -> None:
        """For whatever round comes next."""
        self._standing.offer(given.ctypes.data)

    @property
    def has_results(self) -> bool:
        return self._standing.has_results()

    def step_aside(self, ending: bool = False) -> None:
        """No round waits for this rank, which waits for all others elsewhere, until it comes again. Where rounds are of
        all ranks these are in step, so that none needs it but when this rank ends."""
        if ending or not self._of_all:
            self._standing.step_aside()

    def close(self) -> None:
        """When no rank comes any more. Collective."""
        self._meet("ends")
        self._standing.close()

    def save(self) -> tuple[Flat, Flat]:
        """What was given and has been in no round, and results that were not taken."""
        given, kept = np.empty_like(self._array), np.empty_like(self._array)
        self._standing.save(given.ctypes.data, kept.ctypes.data)
        return given, kept

    def restore(self, given: Flat, kept: Flat) -> None:
        self._standing.restore(given.ctypes.data, kept.ctypes.data)
        self.included = False

    def _meet(self, why: str) -> None:
        named.submit(self._set, calls.barrier(), f"{self._name}.{why}").wait()


class QuorumMethod(Periodic):
    """What methods of quorums have in common: replicas that part, of which all ranks take the mean now and then, when
    somebody looks, and at the end."""

    def __init__(self, name: str, replica: Replica[Any], resync: int, process_set: ProcessSet) -> None:
        if isinstance(resync, bool) or not isinstance(resync, int) or resync < 0:
            raise ValueError(f"resync={resync!r}: a number of 0 or more")
        self._resync = resync
        self._reductions: list[QuorumReduction] = []
        super().__init__(name, replica, Mean(), NEVER, process_set)
        self._ending.keeps = self  # memory of rounds lives as long as ringcomm

    def _aside(self, ending: bool = False) -> None:
        """This rank is about to wait for all others."""
        for one in self._reductions:
            one.step_aside(ending)

    def _resynchronise(self) -> None:
        """All ranks come to this after as many rounds."""
        self.exchange_all()
        self._mixed()

    def exchange_now(self) -> None:
        self._aside()
        super().exchange_now()
        self._mixed()

    def _mixed(self) -> None:
        """The replica holds the mean of all."""

    def global_weights(self) -> AbstractContextManager[None]:
        self._aside()
        return super().global_weights()

    def _finish(self) -> None:
        self._aside(ending=True)
        super()._finish()
        for one in self._reductions:
            one.close()

    @property
    def exchanges(self) -> int:
        return self.rounds + sum(one.rounds for one in self._reductions)

    def stats(self) -> dict[str, Any]:
        stats, waited = super().stats(), sum(one.waited for one in self._reductions)
        return stats | {
            "waited": stats["waited"] + self._share(waited),
            "bytes": stats["bytes"] + sum(one.rounds * one.nbytes for one in self._reductions),
            "late": sum(one.late for one in self._reductions),
        }
