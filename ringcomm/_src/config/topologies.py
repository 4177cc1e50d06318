"""Parses topologies: the links between hosts that transfers share.

docs/simulate.md describes the format of topologies and of files. All ranks use rank 0's topology.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringcomm._src.base.sizes import parse_rate, parse_seconds
from ringcomm._src.config.option_values import read_or_reason, refuse_unread
from ringcomm._src.core import _core

RACK = 16  # hosts of a rack, unless given
FORMS = "fat-tree:oversubscription=4, fat-tree:oversubscription=4,rack=16, torus:8x8, torus:2d, rails:4 or FILE.json"
MOST_HOSTS = (1 << 31) - 1


@dataclass(frozen=True)
class Topology:
    """A topology for any number of hosts. `build` makes it for a number and seconds per byte."""

    text: str
    build: Callable[[int, float], _core.Topology]


def read(text: str) -> str:
    """Returns a topology as a text that contains its file, if it has one (see read_or_reason)."""
    return read_or_reason(text, _checked)


def _checked(text: str) -> str:
    try:
        if text.endswith(".json"):
            text = json.dumps(json.loads(Path(text).read_text(encoding="utf-8")) | {"file": text})
        if text:
            parse(text).build(1, 1.0)
    except Exception as error:
        raise ValueError(f"{error}; write {FORMS}") from None
    return text


@functools.lru_cache(maxsize=8)
def build(text: str, hosts: int, beta: float) -> _core.Topology | None:
    """Returns the topology of hosts with this time per byte on their links; None for "".

    Raises ValueError if the topology cannot be used, or has too few hosts.
    """
    if not text:
        return None
    refuse_unread("RINGCOMM_TOPOLOGY", text)
    try:
        return parse(text).build(hosts, beta)
    except ValueError as error:
        raise ValueError(f"RINGCOMM_TOPOLOGY: {error}") from None


def parse(text: str) -> Topology:
    """Parses a text that `read` returned. Raises ValueError if it is no topology."""
    if text.startswith("{"):
        document = json.loads(text)
        return Topology(document["file"], graph(document))
    kind, _, rest = text.partition(":")
    parts = [part for part in rest.split(",") if part]
    head = parts.pop(0) if parts and "=" not in parts[0] else ""
    given = dict(part.split("=", 1) for part in parts if "=" in part)
    if len(given) != len(parts) or kind not in KINDS:
        raise ValueError("no topology has this form")
    return Topology(text, KINDS[kind](head, given))


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
    if min(shape) < 1 or math.prod(shape) > MOST_HOSTS:
        raise ValueError(f"torus:{head} has no possible number of hosts")

    def build(hosts: int, beta: float) -> _core.Topology:
        made = _core.Topology.torus(shape, hop)
        if made.hosts < hosts:
            raise ValueError(f"torus:{head} has {made.hosts} hosts, but the ranks need {hosts}: use fewer ranks")
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


def graph(document: Mapping[str, Any]) -> Callable[[int, float], _core.Topology]:
    """Reads the document of a file: hosts, switches, and links with rates."""
    try:
        names = [*document["hosts"], *document.get("switches", [])]
        numbers = {name: index for index, name in enumerate(names)}
        kinds: dict[str, int] = {}
        links: list[tuple[int, int, float, int]] = []  # source, target, seconds per byte (0: as a host's), kind
        for link in document["links"]:
            ends = link["between"] if "between" in link else (link["from"], link["to"])
            source, target = (numbers[end] for end in ends)
            kind = kinds.setdefault(link.get("kind", "link"), len(kinds))
            each = parse_rate(str(link["rate"])) if "rate" in link else 0.0
            links += [(source, target, each, kind), (target, source, each, kind)][: 2 if "between" in link else 1]
    except (KeyError, TypeError) as error:
        raise ValueError(f"the file lacks, or does not define, {error}") from None
    hosts, hop = len(document["hosts"]), _hop(document)

    def build(needed: int, beta: float) -> _core.Topology:
        if hosts < needed:
            raise ValueError(f"{document['file']} has {hosts} hosts, but the ranks need {needed}: use fewer ranks")
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
