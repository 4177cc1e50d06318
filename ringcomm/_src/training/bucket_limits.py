"""Assigns gradients to buckets, and resolves the wire format ``Compression.auto``.

The bindings call this module when they make a plan or reduce a list of gradients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from ringcomm._src.base.wire_formats import Auto, predicts_gain
from ringcomm._src.core import _core
from ringcomm._src.named.process_sets import ProcessSet
from ringcomm._src.training.pieces import SMALLEST, piece_bytes

logger = logging.getLogger("ringcomm")

EFFICIENT = 1.05  # highest cost of a byte in a full bucket, as a multiple of its cost in the largest bucket


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes at which a bucket is full. The first bucket is small, to start sending early."""

    first_bytes: int = 1 << 20
    bytes: int = 25 << 20

    @classmethod
    def up_to(cls, size: int) -> Limits:
        return cls(min(cls.first_bytes, size), size)


def overlaps_backward(process_set: ProcessSet) -> bool:
    """Returns True if buckets are reduced during the backward pass. Equal on all ranks.

    They are not if the ranks of one host reduce them in memory, and the worker has no core besides
    the program's: it could only interrupt the program.
    """
    session = process_set.session()
    hosts = {session.host_of[rank] for rank in process_set.ranks}
    return session.own_core or process_set.node is None or len(hosts) > 1


def bucket_limits(process_set: ProcessSet, overlaps: bool = True) -> Limits:
    """Returns the limits for gradients of this set, at most the fusion size. Equal on all ranks.

    `overlaps`: full buckets are reduced during the backward pass.
    """
    session, size = process_set.session(), Limits.bytes
    fusion_bytes = session.config.fusion_bytes or 1
    if not overlaps:
        return Limits(fusion_bytes, fusion_bytes)
    hosts = [session.host_of[rank] for rank in process_set.ranks]
    if len(set(hosts)) > 1:
        menu = _core.Menu("allreduce", len(hosts), hosts, session.config.network())
        size = efficient_bytes(lambda n: min(option.price.seconds for option in menu.options("", n, memory=True)))
    return Limits.up_to(min(size, fusion_bytes))


def efficient_bytes(seconds: Callable[[int], float]) -> int:
    """Returns the size of a full bucket between hosts: the smallest one that is sent efficiently.

    Small buckets are complete earlier in the backward pass, which hides their transfer. `seconds`:
    predicted time of an all-reduce, by bytes.
    """
    size, most = SMALLEST, EFFICIENT * seconds(Limits.bytes) / Limits.bytes
    while size < Limits.bytes and seconds(size) / size > most:
        size *= 2
    return min(size, Limits.bytes)


def limits_of_pieces(total: int, largest: int) -> Limits:
    """Returns limits for `total` bytes of gradients that run in pieces (`pieces`)."""
    size = min(piece_bytes(total), largest)
    return Limits(first_bytes=size, bytes=size)


def assign(
    order: Sequence[int],
    nbytes: Sequence[int],
    dtypes: Sequence[Hashable],
    groups: Sequence[Hashable | None],
    limits: Limits,
) -> list[list[int]]:
    """Assigns items to buckets.

    ``order`` lists the items as they become ready; ``nbytes``, ``dtypes`` and ``groups`` are
    indexed by item. Items of one group (not None) and one dtype form a bucket. Items without a
    group share buckets by dtype, up to ``limits``. Buckets are returned in the order in which they
    fill up, so that no bucket waits for a later one.
    """
    members: dict[Hashable, int] = {}
    for item in order:
        if groups[item] is not None:
            key = (groups[item], dtypes[item])
            members[key] = members.get(key, 0) + 1
    full: list[list[int]] = []
    waiting: dict[Hashable, list[int]] = {}
    size: dict[Hashable, int] = {}
    for item in order:
        grouped = groups[item] is not None
        key = (groups[item], dtypes[item])
        bucket = waiting.pop(key, [])  # reinserted at the end, so `waiting` stays ordered by last item
        bucket.append(item)
        size[key] = size.get(key, 0) + nbytes[item]
        limit = limits.bytes if full else min(limits.first_bytes, limits.bytes)
        if (len(bucket) == members[key]) if grouped else (size[key] >= limit):
            full.append(bucket)
            size[key] = 0
        else:
            waiting[key] = bucket
    return full + list(waiting.values())


def resolve_auto(wire: Any, process_set: ProcessSet, nbytes: int) -> Any:
    """Returns the format that ``Compression.auto`` selects on all ranks. Other formats are kept.

    `nbytes`: size of the data that one call reduces.
    """
    if not isinstance(wire, Auto):
        return wire
    session = process_set.session()
    hosts, network = [session.host_of[rank] for rank in process_set.ranks], session.config.network()
    better = predicts_gain(wire.code, hosts, network, nbytes, process_set.node is not None)
    logger.info("compression=auto: gradients are sent %s", "as int8" if better else "uncompressed")
    return wire.resolve(better)
