"""State that all process groups of this process share: the communicator, groups, and shared tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from ringcomm._src.base.errors import RingcommError
from ringcomm._src.communicator.communicator import Communicator
from ringcomm._src.communicator.groups import Group, Groups
from ringcomm._src.observe import timeline
from ringcomm._src.torch.distributed.shared_tensors import SharedTensors

_groups: Groups | None = None  # kept for the life of the process: groups begin and end without a call of all ranks
_shared: SharedTensors | None = None
_rank_of: list[int] = []  # MPI rank of each rank of torch.distributed


def join(rank: int, size: int) -> list[int]:
    """Starts the default group. Returns MPI's ranks by torch.distributed's. Collective over MPI's ranks."""
    global _groups, _rank_of, _shared
    comm = _groups.comm if _groups else Communicator()
    ranks = comm._link.exchange((rank, size))
    if comm.size != size or sorted(one for one, _ in ranks) != list(range(size)):
        raise RingcommError(
            f"init_process_group has {size} ranks, of which this is number {rank}; MPI has {comm.size}, which give "
            f"the numbers {[one for one, _ in ranks]}. Leave rank and world_size out: MPI knows them"
        )
    _groups = _groups or Groups(comm)
    if _shared is None and comm.config.shared_allocator and comm._node is not None:
        _shared = SharedTensors(comm._node)
    timeline.start_if_asked(comm.config.timeline, comm.rank, comm.config.timeline_mark_cycles)
    _rank_of = [0] * size
    for mine, (theirs, _) in enumerate(ranks):
        _rank_of[theirs] = mine
    return _rank_of


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts a timeline like :func:`ringcomm.start_timeline`, in programs without ``ringcomm.init()``.

    Raises:
        ValueError: there is no process group of this backend, or a timeline is being written already.
        OSError: the file cannot be written.
    """
    if _groups is None:
        raise ValueError('there is no process group: torch.distributed.init_process_group("ringcomm") first')
    timeline.start(file_path, _groups.comm.rank, mark_cycles)


def stop_timeline() -> None:
    """Ends the timeline and closes its file; does nothing without a timeline."""
    timeline.stop()


def make_group(ranks: Sequence[int], name: str, timeout: float) -> Group:
    """Makes a group of torch.distributed's ranks. Collective over these.

    If the default group is of another backend, the first group must have all ranks, which then
    `join`.
    """
    if _groups is None:
        size = dist.get_world_size()
        if len(ranks) < size:
            raise RingcommError(
                f'ranks {list(ranks)} cannot make the first group with backend="ringcomm": the default group is of '
                f'another backend. On all {size} ranks, call init_process_group("ringcomm"), or '
                'new_group(backend="ringcomm") of all of them first'
            )
        join(dist.get_rank(), size)
    assert _groups is not None
    return _groups.make([_rank_of[rank] for rank in ranks], name, timeout)


def shared_tensors() -> SharedTensors | None:
    """Returns the shared tensors; None: ranks share no memory, or the option is off."""
    return _shared
