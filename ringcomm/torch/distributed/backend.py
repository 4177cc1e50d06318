"""How torch.distributed comes to know of the backend, and how its processes find each other."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ringcomm.torch.distributed import pmi
from ringcomm.torch.distributed import store as stores
from ringcomm.torch.kind import DEVICES

NAME = "ringcomm"


def register() -> None:
    """Makes ``backend="ringcomm"`` known to torch.distributed, and ``init_method="ringcomm://"``; ``env://``, the
    default, needs no variables any more where MPI's launcher has started the ranks. A second call does nothing."""
    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", *DEVICES])
    dist.register_rendezvous_handler(NAME, _by_mpi)
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    by_environment = handlers["env"]

    def env(url: str, **kwargs: Any) -> Any:
        known = "MASTER_ADDR" in os.environ or not stores.launched_by_mpi()
        return by_environment(url, **kwargs) if known else _by_mpi(url, **kwargs)

    handlers["env"] = env


def _create(options: Any, backend_options: Any) -> Any:
    """Called by the group's members, and by nobody else."""
    from ringcomm.torch.distributed.process_group import ProcessGroup

    if not options.global_ranks_in_group and options.group_size > 1 and not stores.launched_by_mpi():
        pmi.start_mpi(options.store, options.group_rank, options.group_size)
    return ProcessGroup.of(options)


def _by_mpi(url: str, timeout: timedelta = timedelta(minutes=30), **_: Any) -> Iterator[Any]:
    """A store that rank 0 serves, whose address the others learn by MPI."""
    yield stores.over_mpi(timeout)
    raise RuntimeError("ranks of MPI do not change: init_process_group again needs a new job")
