"""Starts torch.distributed's Gloo on the ranks that mpiexec started, for comparisons with MPI."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any


def start_gloo(world: Any, address: str = "127.0.0.1", interface: str = "") -> None:
    """Makes torch.distributed's default group of the ranks of `world`. Collective.

    Parameters
    ----------
    world
        An mpi4py communicator.
    address : str
        The address of rank 0's host, to which the ranks connect.
    interface : str
        The network interface to use; empty: Gloo's choice.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # otherwise it warns about hosts without names
    if interface:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    import torch.distributed as dist

    store = None
    if world.rank == 0:
        store = dist.TCPStore(address, 0, world.size, is_master=True, wait_for_workers=False)
    port = world.bcast(store.port if store else None)
    store = store or dist.TCPStore(address, port, world.size, is_master=False)
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size, timeout=timedelta(seconds=120))
