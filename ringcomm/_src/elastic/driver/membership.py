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
    which a slot is unused after its rank has failed; it grows with each failure. None: the slot
    stays unused unless the remaining slots are too few.
    """

    minimum: int
    maximum: int | None = None
    cooldown: tuple[float, float] | None = None
    jitter: Callable[[], float] = random.random
    _hosts: dict[str, int] = field(default_factory=dict)  # slots of the hosts found, in the order of discovery
    _leaving: list[str] = field(default_factory=list)  # hosts found earlier, but not now
    _reached: set[str] = field(default_factory=set)
    _failures: dict[Slot, Failures] = field(default_factory=dict)
    _held: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def found(self, hosts: Sequence[Host]) -> None:
        """Sets the current hosts. Hosts that remain keep their order, so that ranks keep their hosts."""
        slots = {host.name: host.slots for host in hosts}
        kept = {name: slots[name] for name in self._hosts if name in slots}
        self._leaving = [name for name in self.known if name not in slots]
        self._hosts = kept | slots

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
        self._held.pop(host, None)

    def holds(self, host: str, commit: tuple[int, ...]) -> None:
        """Records the newest commit that a host stores: the generation that wrote it, and its number."""
        self._held[host] = commit

    def failed(self, slot: Slot, now: float) -> None:
        """Records that the slot's rank ended by its own fault."""
        it = self._failures.setdefault(slot, Failures())
        it.count += 1
        it.since, it.until = now, float("inf")
        if self.cooldown is not None:
            least, most = self.cooldown
            it.until = now + min(most, least * 2 ** (it.count - 1) * (1 + self.jitter()))

    def available(self) -> int:
        """Returns the number of slots of reachable hosts, including slots that failed."""
        return sum(self._hosts[name] for name in self._hosts if name in self._reached)

    def choose(self, now: float) -> list[Slot]:
        """Returns the slots of the next generation, in the order of hosts; empty if there are fewer than `minimum`."""
        slots = [Slot(name, i) for name, count in self._hosts.items() if name in self._reached for i in range(count)]
        if len(slots) < self.minimum:
            return []
        slots = [*self._heirs(slots), *slots]
        good = {slot for slot in slots if slot not in self._failures or now >= self._failures[slot].until}
        # A slot that has failed is better than no training. The slot with the oldest failure goes
        # first.
        for slot in sorted(set(slots) - good, key=lambda slot: self._failures[slot].since):
            if len(good) < self.minimum:
                good.add(slot)
        chosen = self._with_newest(slots, [slot for slot in slots if slot in good][: self.maximum])
        return chosen if len(chosen) >= self.minimum else []

    def _heirs(self, slots: list[Slot]) -> list[Slot]:
        """Returns a slot on a leaving host that alone stores the newest commit, so that it can pass the commit on."""
        commits = {name: self._held[name] for name in self.known if name in self._reached and name in self._held}
        newest = max(commits.values(), default=None)
        if any(commits.get(slot.host) == newest for slot in slots):
            return []
        return [Slot(name, 0) for name in self._leaving if name in commits and commits[name] == newest][:1]

    def _with_newest(self, slots: list[Slot], chosen: list[Slot]) -> list[Slot]:
        """Returns the chosen slots, with at least one on a host that stores the newest commit.

        Without that host, the newest commit would be lost. A slot that has failed is used too.
        """
        newest = max((self._held[slot.host] for slot in slots if slot.host in self._held), default=None)
        keepers = [slot for slot in slots if newest is not None and self._held.get(slot.host) == newest]
        if not chosen or not keepers or set(chosen) & set(keepers):
            return chosen
        best = min(keepers, key=lambda slot: self._failures[slot].since if slot in self._failures else 0.0)
        kept = chosen[: self.maximum - 1] if self.maximum is not None and len(chosen) == self.maximum else chosen
        return [slot for slot in slots if slot == best or slot in kept]
