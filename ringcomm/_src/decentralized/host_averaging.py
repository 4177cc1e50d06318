"""Averages the shared weights of hosts: the first rank of each host exchanges them.

The parameter store uses this module for ``across="host"``, where each host has a separate store.
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

_NAP = 1e-3  # seconds between two polls of a host's first rank after its last step
_PAUSE = 0.05  # seconds between two exchanges of a host's first rank after its last step


def host_sets(process_set: ProcessSet) -> tuple[ProcessSet, ProcessSet | None]:
    """Returns the ranks of this host, and the first ranks of all hosts.

    The second set is None if there is only one host. Collective.
    """
    session = process_set.session()
    hosts = {session.host_of[rank]: rank for rank in reversed(process_set.ranks)}
    if len(hosts) == 1:
        return process_set, None
    own_host = of_this_host(process_set)
    return own_host, set_of(session, sorted(hosts.values()))


class HostAveraging:
    """A periodic exchange that replaces each host's weights by the mean of all hosts' weights.

    It adds the mean minus the sent weights, so changes that the host's ranks make meanwhile are
    kept. The first rank of each host exchanges; on other ranks all methods do nothing.

    Parameters
    ----------
    leaders : ProcessSet | None
        The first ranks of the hosts; None: there is no other host.
    weights : Flat
        The weights.
    read, add, put
        Functions that copy the host's weights out, add to them, and replace them.
    every : int | str
        The first rank's steps between exchanges, or a time. The result of an exchange is used when
        the next one begins.
    """

    def __init__(
        self,
        name: str,
        leaders: ProcessSet | None,
        weights: Flat,
        every: int | str,
        read: Callable[[Flat], None],
        add: Callable[[Flat], None],
        put: Callable[[Flat], None],
    ) -> None:
        self._read, self._add, self._put = read, add, put
        self._steps = 0
        self._sent = np.empty_like(weights)
        self._finishing = False
        self._lane: Lane | None = None
        if leaders is not None and leaders.included():
            self._every = Every(every)
            self._lane = Lane(f"{name}.across", leaders, [len(weights)], weights.dtype, self._fill, self._apply_outcome)

    def stepped(self) -> None:
        self._steps += 1
        if self._lane is not None and self._every.due(self._steps):
            if self._lane.in_flight:
                self._lane.complete()
            self._every.count()
            self._lane.begin()

    def _fill(self, fragment: int, flat: Flat) -> None:
        self._read(flat)
        self._sent[:] = flat

    def _apply_outcome(self, fragment: int, outcome: Outcome) -> None:
        if self._finishing:
            self._put(outcome.mean)
        else:
            outcome.mean[:] -= self._sent
            self._add(outcome.mean)

    def participate(self, until: Callable[[], bool]) -> None:
        """Takes part in exchanges after this rank's last step, until ``until()`` is true.

        Other ranks of the host still make steps meanwhile.
        """
        while self._lane is not None and not until():
            if not self._lane.in_flight:
                self._lane.begin()
            elif self._lane.ready():
                self._lane.complete()
                time.sleep(_PAUSE)
            else:
                time.sleep(_NAP)

    def finish(self) -> None:
        """Exchanges after the last step of this host's ranks. All hosts then hold equal weights."""
        if self._lane is None:
            return
        while self._lane.in_flight:
            self._lane.complete()
        self._finishing = True
        self._lane.finish(1)
        serve([self._lane])
        self._lane.close()

    def stats(self) -> dict[str, Any]:
        return {} if self._lane is None else {"across": self._lane.begun, "across_bytes": self._lane.bytes}
