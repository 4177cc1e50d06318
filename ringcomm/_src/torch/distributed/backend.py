"""Creates the process groups of the backend "ringcomm", and connects their processes.

ringcomm._src.shims.ringcomm_torch_backend registers the backend with torch.distributed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from ringcomm._src.platform import pmi
from ringcomm._src.torch.distributed import store as stores


def create(options: Any) -> Any:
    """Creates a process group. torch.distributed calls it on the members of the group only."""
    from ringcomm._src.torch.distributed.process_group import ProcessGroup

    if not options.global_ranks_in_group and options.group_size > 1 and not stores.launched_by_mpi():
        space = stores.StoreSpace(options.store, options.group_size)
        pmi.start_mpi(space, options.group_rank, options.group_size, "torchrun", "init_process_group")
    return ProcessGroup.of(options)


def by_mpi(url: str, timeout: timedelta = timedelta(minutes=30), **_: Any) -> Iterator[Any]:
    """Yields (store of rank 0, rank, size). Ranks get the store's address by MPI."""
    yield stores.over_mpi(timeout)
    raise RuntimeError(
        "the ranks of an MPI job cannot change: start a new job to call init_process_group with other ranks"
    )
