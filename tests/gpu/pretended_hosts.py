"""Ranks of one machine on several hosts: those of each share memory among themselves only."""

from __future__ import annotations

import os

from mpi4py import MPI

from ringcomm._src.platform import bootstrap


def pretend() -> None:
    """On as many as PRETENDED_HOSTS says, if anything; before any communicator is made."""
    world, hosts = MPI.COMM_WORLD, int(os.environ.get("PRETENDED_HOSTS", "1"))
    if hosts > 1:
        bootstrap.host_key = lambda: (f"host{world.rank * hosts // world.size}",)
