"""Join: lets a rank that has no more data take part in the operations of the other ranks."""

from __future__ import annotations

from ringcomm._src.arrays.handles import Handle
from ringcomm._src.base import process
from ringcomm._src.named.process_sets import ProcessSet, global_process_set


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Declares that this rank has no more data, and blocks until all ranks have joined.

    Meanwhile this rank takes part in the operations of the other ranks without data. It contributes no rows to
    allgather and alltoall, and the identity element to reductions. ``Average`` still divides by the size of the set, so
    this rank counts as zeros. It takes part in barriers, and in the steps of every DistributedOptimizer. Data sent to
    it is dropped. A broadcast from this rank raises RankJoinedError on the other ranks, which may continue.

    Joining the global set joins every process set that includes this rank; joining another set joins that set only.
    This rank does not take part in calls of a ``Communicator``, nor in adding or removing process sets.

    Args:
        device: ignored; for compatibility with Horovod.
        process_set: this rank takes part in the operations of this set.

    Returns:
        The rank (of the world) that joined last, the same on every rank. Its model has seen the most data:
        ``broadcast_parameters(model.state_dict(), root_rank=hvd.join())``.

    Raises:
        ValueError: gradients of this rank are in flight, and neither ``step()`` nor ``synchronize()`` has been called;
            or another of its threads has joined.
        RankLeftError, ShutDownError, PeerLostError: a rank ended without joining; this rank shut down; a rank died.
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
