"""Parses the options of `ringcomm simulate` that describe the network between hosts, and placement.

docs/simulate.md describes the format of topologies and of files.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringcomm._src.cli.sizes import parse_rate, parse_seconds
from ringcomm._src.core import _core

RACK = 16  # hosts of a rack, unless given
FORMS = "fat-tree:oversubscription=4, fat-tree:oversubscription=4,rack=16, torus:8x8, torus:2d, rails:4 or FILE.json"
BLOCK, ROUND_ROBIN = "block", "round-robin"


@dataclass(frozen=True)
class Topology:
    """A topology for any number of hosts. `build` makes it for a number and seconds per byte."""

    text: str
    build: Callable[[int, float], _core.Topology]


def parse_topology(text: str) -> Topology:
    """Parses a topology of the command line. Raises argparse.ArgumentTypeError."""
    try:
        if text.endswith(".json"):
            return Topology(text, from_file(text))
        kind, _, rest = text.partition(":")
        parts = [part for part in rest.split(",") if part]
        head = parts.pop(0) if parts and "=" not in parts[0] else ""
        given = dict(part.split("=", 1) for part in parts if "=" in part)
        if len(given) != len(parts) or kind not in KINDS:
            raise ValueError("no topology has this form")
        return Topology(text, KINDS[kind](head, given))
    except (ValueError, OSError, argparse.ArgumentTypeError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}; write {FORMS}") from None


def fat_tree(head: str, given: Mapping[str, str]) -> Callable[[int, float], _core.Topology]:
    _known(head == "", given, "oversubscription", "rack", "hop")
    over, rack, hop = _positive(given, "oversubscription", 1.0), int(_positive(given, "rack", RACK)), _hop(given)
    return lambda hosts, beta: _core.Topology.fat_tree(hosts, rack, over, hop)


def torus(head: str, given: Mapping[str, str]) -> Callable[[int, float], _core.Topology]:
    _known(head != "", given, "hop")
    hop = _hop(given)
    if head in ("1d", "2d", "3d"):
        return lambda hosts, beta: _core.Topology.torus(even_shape(hosts, int(head[0])), hop)
    shape = [int(length) for length in head.split("x")]

    def build(hosts: int, beta: float) -> _core.Topology:
        made = _core.Topology.torus(shape, hop)
        if made.hosts < hosts:
            raise ValueError(f"torus:{head} has {made.hosts} hosts, but the ranks need {hosts}: give fewer --ranks")
        return made

    return build


def even_shape(hosts: int, dimensions: int) -> list[int]:
    """Returns the shape of a torus of this many hosts with the most even lengths, longest first."""
    shape: list[int] = []
    for left in range(dimensions, 1, -1):
        length = round(hosts ** (1 / left))
        length = next(n for n in range(min(hosts, length), 0, -1) if hosts % n == 0)
        shape.append(length)
        hosts //= length
    return sorted([*shape, hosts], reverse=True)


def rails(head: str, given: Mapping[str, str]) -> Callable[[int, float], _core.Topology]:
    _known(head != "", given, "spine", "hop")
    number, spine, hop = int(head), _positive(given, "spine", 0.0), _hop(given)
    return lambda hosts, beta: _core.Topology.rails(hosts, number, spine, hop)


KINDS = {"fat-tree": fat_tree, "torus": torus, "rails": rails}


def from_file(path: str) -> Callable[[int, float], _core.Topology]:
    """Reads a graph: hosts, switches, and links with rates."""
    with open(path, encoding="utf-8") as file:
        document: Mapping[str, Any] = json.load(file)
    try:
        names = [*document["hosts"], *document.get("switches", [])]
        numbers = {name: index for index, name in enumerate(names)}
        kinds: dict[str, int] = {}
        links: list[tuple[int, int, float, int]] = []  # source, target, seconds per byte (0: as a host's), kind
        for link in document["links"]:
            ends = link["between"] if "between" in link else (link["from"], link["to"])
            source, target = (numbers[end] for end in ends)
            kind = kinds.setdefault(link.get("kind", "link"), len(kinds))
            each = parse_rate(link["rate"]) if "rate" in link else 0.0
            links += [(source, target, each, kind), (target, source, each, kind)][: 2 if "between" in link else 1]
    except (KeyError, TypeError) as error:
        raise ValueError(f"the file lacks, or does not define, {error}") from None
    hosts, hop = len(document["hosts"]), _hop(document)

    def build(needed: int, beta: float) -> _core.Topology:
        if hosts < needed:
            raise ValueError(f"{path} has {hosts} hosts, but the ranks need {needed}: give fewer --ranks")
        costs = [(source, target, each / beta or 1.0, kind) for source, target, each, kind in links]
        return _core.Topology.graph(hosts, len(names), costs, list(kinds), hop)

    return build


def _known(head_fits: bool, given: Mapping[str, str], *names: str) -> None:
    unknown = [name for name in given if name not in names]
    if not head_fits or unknown:
        raise ValueError(f"unknown or missing {', '.join(unknown) or 'values'}; its parameters are {', '.join(names)}")


def _positive(given: Mapping[str, str], name: str, default: float) -> float:
    value = float(given.get(name, default))
    if name in given and not value > 0:
        raise ValueError(f"{name} must be above 0")
    return value


def _hop(given: Mapping[str, Any]) -> float:
    return parse_seconds(str(given.get("hop", "0s")))


# ---- placement -------------------------------------------------------------------------------------------------------


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
