"""State that all process groups share: the communicator, groups, and shared tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from ringcomm._src.base.errors import RingcommError
from ringcomm._src.communicator.communicator import Communicator
from ringcomm._src.communicator.groups import Group, Groups
from ringcomm._src.observe import timeline
from ringcomm._src.torch.distributed.shared_tensors import SharedTensors

_groups: Groups | None = None  # kept until the process ends: groups end without a common call of all ranks
_shared: SharedTensors | None = None
_rank_of: list[int] = []  # MPI rank of each rank of torch.distributed


def join(rank: int, size: int) -> list[int]:
    """Starts the default group. Returns the MPI rank of each rank of torch.distributed. Collective."""
    global _groups, _rank_of, _shared
    comm = _groups.comm if _groups else Communicator()
    ranks = comm._link.exchange((rank, size))
    if comm.size != size or sorted(given for given, _ in ranks) != list(range(size)):
        raise RingcommError(
            f"init_process_group was called with rank={rank} and world_size={size} on rank {comm.rank} of MPI, which "
            f"has {comm.size} ranks; their arguments rank are {[r for r, _ in ranks]}. Omit rank and world_size: "
            "MPI defines them"
        )
    _groups = _groups or Groups(comm)
    if _shared is None and comm.config.shared_allocator and comm._node is not None:
        _shared = SharedTensors(comm._node)
    timeline.start_if_configured(comm.config, comm.rank)
    _rank_of = [0] * size
    for mpi_rank, (torch_rank, _) in enumerate(ranks):
        _rank_of[torch_rank] = mpi_rank
    return _rank_of


def start_timeline(file_path: str, mark_cycles: bool = False, last: int = 0) -> None:
    """Starts a timeline like :func:`ringcomm.start_timeline`, without ``ringcomm.init()``.

    Parameters
    ----------
    file_path : str
        File that rank 0 writes; if it contains ``{rank}``, every rank writes a separate file.
    mark_cycles : bool
        True: marks each round of agreement on named operations.
    last : int
        The file keeps only the newest events, `last` to 2 `last` of them; 0: all.

    Raises
    ------
    ValueError
        There is no process group of this backend, a timeline is being written already, or `last`
        is negative.
    OSError
        The file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import torch.distributed as dist
    >>> from ringcomm.torch.distributed import start_timeline, stop_timeline
    >>> dist.init_process_group("ringcomm")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     start_timeline(os.path.join(folder, "timeline.json"))
    ...     dist.barrier()
    ...     stop_timeline()
    >>> dist.destroy_process_group()
    """
    if _groups is None:
        raise ValueError('there is no process group: call torch.distributed.init_process_group("ringcomm") first')
    timeline.start(file_path, _groups.comm.rank, mark_cycles, last)


def stop_timeline() -> None:
    """Ends the timeline and closes its file; does nothing without a timeline.

    Examples
    --------
    >>> from ringcomm.torch.distributed import stop_timeline
    >>> stop_timeline()
    """
    timeline.stop()


def make_group(ranks: Sequence[int], name: str, timeout: float) -> Group:
    """Makes a group of torch.distributed's ranks. Collective over these.

    If the default group has another backend, the first group of this backend must have all ranks.
    Its creation calls `join`.
    """
    if _groups is None:
        size = dist.get_world_size()
        if len(ranks) < size:
            raise RingcommError(
                f'ranks {list(ranks)} cannot make the first group with backend="ringcomm", because the default group '
                f'has another backend. On all {size} ranks, call init_process_group("ringcomm"), or '
                'new_group(backend="ringcomm") of all of them first'
            )
        join(dist.get_rank(), size)
    assert _groups is not None
    return _groups.make([_rank_of[rank] for rank in ranks], name, timeout)


def shared_tensors() -> SharedTensors | None:
    """Returns the shared tensors; None: ranks share no memory, or the option is off."""
    return _shared
