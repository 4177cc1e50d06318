"""Ranks that run out of data before the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringcomm import arrays, named, process
from ringcomm.errors import MismatchError, RankJoinedError
from ringcomm.handles import Handle
from ringcomm.process_sets import ProcessSet, global_process_set

_CALLS = ("add_process_set", "remove_process_set", "init")


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Says that this rank has no more data, and answers for it until all ranks have said so.

    Meanwhile the other ranks' operations go on as if this rank gave nothing to them: no rows to allgather and alltoall;
    to reductions what leaves their result as it is (``Average`` divides by the size of the set all the same, so this
    rank counts as zeros); it takes part in barriers, and in the steps of every DistributedOptimizer. What they send to
    this rank is dropped. A broadcast from it raises RankJoinedError on the others, and they go on.

    Joining the global set joins every process set that this rank is in; joining another set, that one only. Ordered
    calls (``Communicator``) are not answered, nor are process sets added or removed.

    Args:
        device: accepted because Horovod has it; not needed.
        process_set: whose operations to answer.

    Returns:
        The rank (of the world) that was the last to join, the same on every rank. Its model has seen the most data:
        ``broadcast_parameters(model.state_dict(), root_rank=hvd.join())``.

    Raises:
        ValueError: this rank has gradients on their way that ``step()`` or ``synchronize()`` has not taken; or another
            of its threads has joined.
        RankLeftError, ShutDownError, PeerLostError: a rank ended without joining; this one shut down; a rank died.
    """
    session = process_set.session()
    process_set.set_id()
    process.check_not_forked()
    everywhere = process_set is global_process_set
    sets = [one for one in (session.sets if everywhere else [process_set]) if one.included()]
    operations = session.engine.join([one.set_id() for one in sets])
    for one in sets:
        one.joined = True
    try:
        mine = operations[sets.index(process_set)]
        return Handle(operations, lambda: mine.last_joined, "join").wait()
    finally:
        for one in sets:
            one.rejoin()


def agree_on_sets(what: str, values: Sequence[int]) -> None:
    """Raises on every rank, unless all are here and gave the same: MismatchError, or RankJoinedError."""
    require_equal(what, exchange_sets(what, values))


def exchange_sets(what: str, values: Sequence[int]) -> dict[int, list[int]]:
    """What every rank gave to this call. Raises on every rank, unless all are here and make the same call."""
    if global_process_set.size() == 1:
        return {0: list(values)}
    mine = np.array([global_process_set.rank(), len(values), _CALLS.index(what), *values], np.int64)
    request = named.allgather(global_process_set, arrays.source(mine), "process_sets")
    everybody = named.submit(global_process_set, request).wait().tolist()
    rows: dict[int, list[int]] = {}
    while everybody:
        end = 3 + everybody[1]
        rows[everybody[0]], everybody = everybody[2:end], everybody[end:]
    missing = tuple(rank for rank in global_process_set.ranks if rank not in rows)
    if missing:
        raise RankJoinedError(f"{what}: needs all ranks, and ranks {list(missing)} have joined", missing)
    given = {rank: row[1:] for rank, row in rows.items()}
    first = next(iter(rows.values()))[0]
    others = tuple(rank for rank, row in rows.items() if row[0] != first)
    if others:
        raise _disagreement(what, given, others)
    return given


def require_equal(what: str, rows: dict[int, list[int]]) -> None:
    first = next(iter(rows.values()))
    others = tuple(rank for rank, row in rows.items() if row != first)
    if others:
        raise _disagreement(what, rows, others)


def _disagreement(what: str, rows: dict[int, list[int]], ranks: tuple[int, ...]) -> MismatchError:
    given = "; ".join(f"rank {rank} gave {row}" for rank, row in rows.items())
    return MismatchError(
        f"{what}: all ranks must add, or remove, the same process set at the same time: {given}", ranks
    )
