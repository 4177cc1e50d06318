"""Join: a rank that has no more data takes part in the operations of the other ranks."""

from __future__ import annotations

from ringcomm._src.arrays.handles import Handle
from ringcomm._src.base import process
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.process import exits


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Declares that this rank has no more data, and blocks until all ranks have joined.

    Until then, this rank takes part in the operations of the other ranks without data. It
    contributes no rows to allgather and alltoall, and the identity element to reductions.
    ``Average`` still divides by the size of the set, so this rank counts as zeros. It takes part in
    barriers, and in the steps of every DistributedOptimizer. Data sent to it is dropped. A
    broadcast from this rank raises RankJoinedError on the other ranks, which may continue.

    Joining the global set joins every process set that includes this rank; joining another set
    joins that set only. This rank does not take part in calls of a ``Communicator``, nor in adding
    or removing process sets.

    Parameters
    ----------
    device : int
        Ignored; for compatibility with Horovod.
    process_set : ProcessSet
        The set in whose operations this rank takes part until all ranks have joined.

    Returns
    -------
    int
        The rank (of the world) that joined last, identical on all ranks. Its model has used the
        most data: ``broadcast_parameters(model.state_dict(), root_rank=hvd.join())``.

    Raises
    ------
    ValueError
        Gradients of this rank are in flight, and neither ``step()`` nor ``synchronize()`` has been
        called; or another of its threads has joined.
    RankLeftError, ShutDownError, PeerLostError
        A rank ended without joining; this rank shut down; a rank died.

    Examples
    --------
    >>> ringcomm.init()
    >>> if ringcomm.rank() == 0:  # rank 0 has one more batch
    ...     batch = ringcomm.allreduce(np.ones(2), name="last batch")
    >>> ringcomm.join() in range(ringcomm.size())
    True
    """
    session = process_set.session()
    exits.complete()
    process_set.set_id()
    process.check_not_forked()
    everywhere = process_set is global_process_set
    sets = [joining_set for joining_set in (session.sets if everywhere else [process_set]) if joining_set.included()]
    for joining_set in sets:
        session.custom_algorithms.prepare(joining_set.require_rank(), len(joining_set.ranks))
    operations = session.engine.join([joining_set.set_id() for joining_set in sets])
    for joining_set in sets:
        joining_set.joined = True
    try:
        operation = operations[sets.index(process_set)]
        return Handle(operations, lambda: operation.last_joined, "join").wait()
    finally:
        for joining_set in sets:
            joining_set.rejoin()
