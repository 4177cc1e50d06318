"""Averages weights between hosts when the ranks of each host share them. The first rank of each host does this.

The parameter store uses it for ``across="host"``, where each host has a separate store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ringcomm._src.decentralized.every import Every
from ringcomm._src.decentralized.periodic import of_this_host, set_of
from ringcomm._src.decentralized.replicas import Flat
from ringcomm._src.decentralized.rounds import Lane, Outcome, serve
from ringcomm._src.named.process_sets import ProcessSet

_NAP = 1e-3  # seconds between two polls of a first rank that only waits
_PAUSE = 0.05  # seconds between two rounds of a first rank that only waits


def host_sets(process_set: ProcessSet) -> tuple[ProcessSet, ProcessSet | None]:
    """Returns the ranks of this host, and the first ranks of all hosts.

    The second set is None if there is only one host. Collective.
    """
    session = process_set.session()
    hosts = {session.host_of[rank]: rank for rank in reversed(process_set.ranks)}
    if len(hosts) == 1:
        return process_set, None
    mine = of_this_host(process_set)
    return mine, set_of(session, sorted(hosts.values()))


class Across:
    """A periodic exchange that replaces each host's weights by the mean of all hosts' weights.

    It adds (mean - what was sent), so changes that the host's ranks make meanwhile are kept. The
    first rank of each host does the exchange; on other ranks all methods do nothing.

    Args:
        leaders: the first ranks of the hosts; None: there is no other host.
        like: the weights.
        read, add, put: functions on the host's weights. They copy them out, add to them, and
            replace them.
        every: the first rank's steps between exchanges, or a time. A round ends where the next one
            begins.
    """

    def __init__(
        self,
        name: str,
        leaders: ProcessSet | None,
        like: Flat,
        every: int | str,
        read: Callable[[Flat], None],
        add: Callable[[Flat], None],
        put: Callable[[Flat], None],
    ) -> None:
        self._read, self._add, self._put = read, add, put
        self._steps = 0
        self._sent = np.empty_like(like)
        self._leaving = False
        self._lane: Lane | None = None
        if leaders is not None and leaders.included():
            self._every = Every(every)
            self._lane = Lane(f"{name}.across", leaders, [len(like)], like.dtype, self._fill, self._landed)

    def stepped(self) -> None:
        self._steps += 1
        if self._lane is not None and self._every.due(self._steps):
            if self._lane.flying:
                self._lane.land()
            self._every.count()
            self._lane.begin()

    def _fill(self, fragment: int, flat: Flat) -> None:
        self._read(flat)
        self._sent[:] = flat

    def _landed(self, fragment: int, outcome: Outcome) -> None:
        if self._leaving:
            self._put(outcome.mean)
        else:
            outcome.mean[:] -= self._sent
            self._add(outcome.mean)

    def answer(self, until: Callable[[], bool]) -> None:
        """Takes part in other hosts' exchanges until ``until()`` is true, after this rank's last step.

        Other ranks of the host still make steps meanwhile.
        """
        while self._lane is not None and not until():
            if not self._lane.flying:
                self._lane.begin()
            elif self._lane.ready():
                self._lane.land()
                time.sleep(_PAUSE)
            else:
                time.sleep(_NAP)

    def finish(self) -> None:
        """Exchanges a last time, after the last step of all ranks of this host. All hosts then hold equal weights."""
        if self._lane is None:
            return
        while self._lane.flying:
            self._lane.land()
        self._leaving = True
        self._lane.finish(1)
        serve([self._lane])
        self._lane.close()

    def stats(self) -> dict[str, Any]:
        return {} if self._lane is None else {"across": self._lane.begun, "across_bytes": self._lane.bytes}
