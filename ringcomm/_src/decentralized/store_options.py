"""The options of a parameter store, and functions that check them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ringcomm._src.decentralized.consistency import Consistency
from ringcomm._src.named.process_sets import ProcessSet

Scale = str | Callable[[int], float]
Servers = str | int | Sequence[int]


class StoreOptions(NamedTuple):
    """Options as in `ringcomm.ParameterStore`."""

    consistency: Consistency
    servers: Servers
    scale: Scale
    compensate: float
    on_loss: str
    every: int | str
    across: str


def scale_of(scale: Scale) -> Callable[[int], float] | None:
    """Returns the function of the staleness, or None. Raises ValueError for an invalid scale."""
    if scale == "none":
        return None
    if scale == "inverse":
        return lambda staleness: 1.0 / max(1, staleness)
    if callable(scale):
        return scale
    raise ValueError(f'scale={scale!r}: must be "none", "inverse", or a function of the staleness')


def servers_of(servers: Servers, process_set: ProcessSet) -> list[int]:
    """Returns the servers as indices in the set. Raises ValueError for invalid servers."""
    if servers == "all":
        return list(range(process_set.size()))
    if isinstance(servers, int) and not isinstance(servers, bool):
        if 0 < servers <= process_set.size():
            return list(range(servers))
        raise ValueError(f"servers={servers}: must be from 1 to the number of ranks, {process_set.size()}")
    ranks = list(servers) if not isinstance(servers, str | bool) else []
    if ranks and all(rank in process_set.ranks for rank in ranks) and len(set(ranks)) == len(ranks):
        return [process_set.ranks.index(rank) for rank in ranks]
    raise ValueError(f'servers={servers!r}: must be "all", a number of ranks, or a list of ranks of the process set')
