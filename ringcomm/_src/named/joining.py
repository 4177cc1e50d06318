"""Ranks that run out of data before the others."""

from __future__ import annotations

from ringcomm._src.arrays.handles import Handle
from ringcomm._src.base import process
from ringcomm._src.named.process_sets import ProcessSet, global_process_set


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
    for one in sets:
        session.own.prepare(one.require_rank(), len(one.ranks))
    operations = session.engine.join([one.set_id() for one in sets])
    for one in sets:
        one.joined = True
    try:
        mine = operations[sets.index(process_set)]
        return Handle(operations, lambda: mine.last_joined, "join").wait()
    finally:
        for one in sets:
            one.rejoin()
