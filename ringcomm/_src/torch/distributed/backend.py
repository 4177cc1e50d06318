"""How the backend's process groups are created, and how their processes find each other. torch.distributed gets to know
the backend by ringcomm._src.shims.ringcomm_torch_backend."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from ringcomm._src.platform import pmi
from ringcomm._src.torch.distributed import store as stores


def create(options: Any) -> Any:
    """Called by the group's members, and by nobody else."""
    from ringcomm._src.torch.distributed.process_group import ProcessGroup

    if not options.global_ranks_in_group and options.group_size > 1 and not stores.launched_by_mpi():
        space = stores.StoreSpace(options.store, options.group_size)
        pmi.start_mpi(space, options.group_rank, options.group_size, "torchrun", "init_process_group")
    return ProcessGroup.of(options)


def by_mpi(url: str, timeout: timedelta = timedelta(minutes=30), **_: Any) -> Iterator[Any]:
    """A store that rank 0 serves, whose address the others learn by MPI."""
    yield stores.over_mpi(timeout)
    raise RuntimeError("ranks of MPI do not change: init_process_group again needs a new job")
