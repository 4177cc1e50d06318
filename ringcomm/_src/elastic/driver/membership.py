"""Decides which slots of which hosts the ranks of the next generation use.

`Membership` is a pure state machine: the driver reports events and times to it, and it starts no
process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ringcomm._src.launch.hosts import Host


class Slot(NamedTuple):
    """Room for one rank on a host."""

    host: str
    number: int


@dataclass
class Failures:
    """The failures of a slot."""

    count: int = 0
    since: float = 0.0
    until: float = 0.0  # time from which it may be used again; infinity: never


@dataclass
class Membership:
    """The known hosts, their state, and the limits of the number of ranks.

    `minimum` and `maximum` (None: no limit): numbers of ranks. `cooldown`: range of the seconds for
    which a slot is unused after its rank has failed; the time grows with each failure. None: the
    slot stays unused unless the remaining slots are too few.
    """

    minimum: int
    maximum: int | None = None
    cooldown: tuple[float, float] | None = None
    jitter: Callable[[], float] = random.random
    _hosts: dict[str, int] = field(default_factory=dict)  # slots of the hosts found, in the order of discovery
    _leaving: list[str] = field(default_factory=list)  # hosts found earlier, but not now
    _reached: set[str] = field(default_factory=set)
    _failures: dict[Slot, Failures] = field(default_factory=dict)
    _commits: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def found(self, hosts: Sequence[Host]) -> None:
        """Sets the current hosts. Remaining hosts keep their order, and thereby their ranks."""
        slots = {host.name: host.slots for host in hosts}
        remaining = {name: slots[name] for name in self._hosts if name in slots}
        self._leaving = [name for name in self.known if name not in slots]
        self._hosts = remaining | slots

    @property
    def hosts(self) -> list[str]:
        return list(self._hosts)

    @property
    def known(self) -> list[str]:
        """All known hosts, including hosts that are not found any more."""
        return [*self._hosts, *self._leaving]

    def reached(self, host: str) -> None:
        self._reached.add(host)

    def lost(self, host: str) -> None:
        self._reached.discard(host)
        self._commits.pop(host, None)

    def record_commit(self, host: str, commit: tuple[int, ...]) -> None:
        """Records the newest commit that a host stores: (generation that wrote it, number)."""
        self._commits[host] = commit

    def failed(self, slot: Slot, now: float) -> None:
        """Records that the slot's rank ended by its own fault."""
        failures = self._failures.setdefault(slot, Failures())
        failures.count += 1
        failures.since, failures.until = now, float("inf")
        if self.cooldown is not None:
            shortest, longest = self.cooldown
            failures.until = now + min(longest, shortest * 2 ** (failures.count - 1) * (1 + self.jitter()))

    def available(self) -> int:
        """Returns the number of slots of reachable hosts, including slots that failed."""
        return sum(self._hosts[name] for name in self._hosts if name in self._reached)

    def choose(self, now: float) -> list[Slot]:
        """Returns the next generation's slots, sorted by host; empty if fewer than `minimum`."""
        slots = [Slot(name, i) for name, count in self._hosts.items() if name in self._reached for i in range(count)]
        if len(slots) < self.minimum:
            return []
        slots = [*self._commit_source(slots), *slots]
        good = {slot for slot in slots if slot not in self._failures or now >= self._failures[slot].until}
        # A failed slot is better than no training. The slot with the oldest failure is used first.
        for slot in sorted(set(slots) - good, key=lambda slot: self._failures[slot].since):
            if len(good) < self.minimum:
                good.add(slot)
        chosen = self._with_newest(slots, [slot for slot in slots if slot in good][: self.maximum])
        return chosen if len(chosen) >= self.minimum else []

    def _commit_source(self, slots: list[Slot]) -> list[Slot]:
        """Returns a slot on a leaving host if only leaving hosts store the newest commit.

        Its rank sends the commit to the other hosts.
        """
        commits = {name: self._commits[name] for name in self.known if name in self._reached and name in self._commits}
        newest = max(commits.values(), default=None)
        if any(commits.get(slot.host) == newest for slot in slots):
            return []
        return [Slot(name, 0) for name in self._leaving if name in commits and commits[name] == newest][:1]

    def _with_newest(self, slots: list[Slot], chosen: list[Slot]) -> list[Slot]:
        """Returns the chosen slots, with at least one on a host that stores the newest commit.

        Without that host, the newest commit would be lost. So even a failed slot is used for it.
        """
        newest = max((self._commits[slot.host] for slot in slots if slot.host in self._commits), default=None)
        with_commit = [slot for slot in slots if newest is not None and self._commits.get(slot.host) == newest]
        if not chosen or not with_commit or set(chosen) & set(with_commit):
            return chosen
        best = min(with_commit, key=lambda slot: self._failures[slot].since if slot in self._failures else 0.0)
        remaining = chosen[: self.maximum - 1] if self.maximum is not None and len(chosen) == self.maximum else chosen
        return [slot for slot in slots if slot == best or slot in remaining]
