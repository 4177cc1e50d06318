"""Parses the options of `ringcomm simulate` for the network between hosts, and placement."""

from __future__ import annotations

from collections.abc import Sequence

from ringcomm._src.cli.sizes import argument
from ringcomm._src.config import topologies
from ringcomm._src.config.option_values import refuse_unread

BLOCK, ROUND_ROBIN = "block", "round-robin"


@argument
def parse_topology(text: str) -> topologies.Topology:
    """Parses a topology of the command line."""
    made = topologies.read(text)
    refuse_unread("--topology", made)
    return topologies.parse(made)


def hosts_of_ranks(placement: str, ranks: int, ranks_per_host: int) -> list[int]:
    """Returns the host of each rank.

    Parameters
    ----------
    placement : str
        "block": hosts are filled one after another; "round-robin": consecutive ranks are on
        different hosts; else a file with the number of each rank's host, from 0.
    ranks : int
        Number of ranks.
    ranks_per_host : int
        Ranks of each host, except for a file.

    Raises
    ------
    ValueError
        The file has too few numbers, or leaves out a host.
    OSError
        The file cannot be read.
    """
    hosts = -(-ranks // ranks_per_host)
    if placement == BLOCK:
        return [rank // ranks_per_host for rank in range(ranks)]
    if placement == ROUND_ROBIN:
        return [rank % hosts for rank in range(ranks)]
    with open(placement, encoding="utf-8") as file:
        try:
            listed = [int(word) for word in file.read().split()]
        except ValueError:
            raise ValueError(f"{placement} must list each rank's host as a number, separated by spaces") from None
    if len(listed) < ranks:
        raise ValueError(f"{placement} lists {len(listed)} ranks, but --ranks asks for {ranks}: give fewer --ranks")
    return _checked(placement, listed[:ranks])


def _checked(placement: str, hosts: Sequence[int]) -> list[int]:
    if set(hosts) != set(range(max(hosts) + 1)):
        raise ValueError(f"{placement} must use all hosts from 0 to {max(hosts)}")
    return list(hosts)
