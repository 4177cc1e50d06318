"""Which gradients travel together, and as what."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from ringcomm._src.base.wire_formats import Auto, pays
from ringcomm._src.named.process_sets import ProcessSet, global_process_set

logger = logging.getLogger("ringcomm")


@dataclass(frozen=True)
class Limits:
    """Bytes at which a bucket is full. The first is small, so that something travels early."""

    first_bytes: int = 1 << 20
    bytes: int = 25 << 20


def bucket_limits() -> Limits:
    """Buckets are smaller than what the engine fuses at most: to travel while backward runs, one must be full early."""
    fusion = global_process_set.session().config.fusion_bytes
    return Limits(bytes=min(Limits.bytes, fusion)) if fusion else Limits(first_bytes=1, bytes=1)


def assign(
    order: Sequence[int],
    nbytes: Sequence[int],
    dtypes: Sequence[Hashable],
    groups: Sequence[Hashable | None],
    limits: Limits,
) -> list[list[int]]:
    """Sorts items into buckets.

    ``order`` lists the items as they become ready; ``nbytes``, ``dtypes`` and ``groups`` are indexed by item. Items
    of one group (not None) and dtype share a bucket, which nothing else joins; the others share by dtype, up to
    ``limits``. Buckets come in the order in which they fill up, so that none waits for one that fills later.
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
        bucket = waiting.pop(key, [])  # back in at the end: `waiting` stays in the order of the last item
        bucket.append(item)
        size[key] = size.get(key, 0) + nbytes[item]
        limit = limits.bytes if full else min(limits.first_bytes, limits.bytes)
        if (len(bucket) == members[key]) if grouped else (size[key] >= limit):
            full.append(bucket)
            size[key] = 0
        else:
            waiting[key] = bucket
    return full + list(waiting.values())


def decided(wire: Any, process_set: ProcessSet, nbytes: int) -> Any:
    """A format, or None, in place of ``Compression.auto``; alike on all ranks. `nbytes`: of what travels together."""
    if not isinstance(wire, Auto):
        return wire
    session = process_set.session()
    hosts, network = [session.host_of[rank] for rank in process_set.ranks], session.config.network()
    better = pays(wire.code, hosts, network, nbytes, process_set.node is not None)
    logger.info("compression=auto: gradients travel %s", "as int8" if better else "as they are")
    return wire.decided(better)
