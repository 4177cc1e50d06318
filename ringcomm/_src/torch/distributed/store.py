"""The store of torch.distributed when MPI, not the environment, defines ranks and sizes.

`backend` uses `over_mpi` if MPI launched the processes, and `StoreSpace` to start MPI under
torchrun.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import struct
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ringcomm._src.platform import mpi_library
from ringcomm._src.shims import ringcomm_torch_backend

_ADDRESS_OF = 0x8915  # SIOCGIFADDR
_MAX_NAME = 15  # bytes of an interface's name


def launched_by_mpi() -> bool:
    """Returns True if a launcher of MPI has started this process, or if it is the only process."""
    return ringcomm_torch_backend.launched_by_mpi() or "RANK" not in os.environ


_base: Any = None  # kept until the process ends, so that connections are made only once
_calls = itertools.count()


def over_mpi(timeout: timedelta) -> tuple[Any, int, int]:
    """Returns (store, rank, size) with an empty store. Collective over MPI's ranks."""
    global _base
    world = mpi_library.initialized().COMM_WORLD
    _base = _base or _make(world, timeout)
    return dist.PrefixStore(f"start {next(_calls)}", _base), world.Get_rank(), world.Get_size()


def _make(world: Any, timeout: timedelta) -> Any:
    """Returns a store served by MPI's rank 0, which broadcasts its address."""
    size, first = world.Get_size(), world.Get_rank() == 0
    server = dist.TCPStore("localhost", 0, size, True, timeout, False) if first else None
    here = (socket.gethostname(), _boot())
    where = world.bcast((here, addresses(), server.port) if server else None)
    if server:
        return server
    host, others, port = where
    return _connect(["127.0.0.1", *others] if host == here else others, port, size, timeout)


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip() + os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


def addresses() -> list[str]:
    """Returns this host's addresses for other hosts: IPv4 of its interfaces, and its name."""
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                row = fcntl.ioctl(any_socket.fileno(), _ADDRESS_OF, struct.pack("256s", name.encode()[:_MAX_NAME]))
                found.append(socket.inet_ntoa(row[20:24]))
            except OSError:  # the interface has no IPv4 address
                continue
    return [address for address in found if not address.startswith("127.")] + [socket.gethostname()]


def _connect(candidates: list[str], port: int, size: int, timeout: timedelta) -> Any:
    failures = ""
    for host in candidates:
        try:
            with socket.create_connection((host, port), 3):  # TCPStore would retry for minutes
                pass
            return dist.TCPStore(host, port, size, False, timeout, False)
        except (OSError, dist.DistError) as error:
            failures = f"{failures}; {host}: {error}" if failures else f"{host}: {error}"
    raise RuntimeError(
        f"this rank cannot reach the store of rank 0 on port {port} ({failures}). Set MASTER_ADDR, MASTER_PORT, RANK "
        "and WORLD_SIZE, or pass a store to init_process_group"
    )


class StoreSpace:
    """Key-value space for ringcomm._src.platform.pmi over a store.

    Keys have a new prefix after torchrun has restarted the processes.
    """

    def __init__(self, store: Any, size: int) -> None:
        self._store, self._size = store, size
        self._prefix = f"pmi/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        self._fences = 0

    def put(self, key: str, value: str) -> None:
        self._store.set(f"{self._prefix}/{key}", value)

    def get(self, key: str) -> str | None:
        name = f"{self._prefix}/{key}"
        return str(self._store.get(name).decode()) if self._has(name) else None

    def _has(self, name: str) -> bool:
        if hasattr(self._store, "check"):
            return bool(self._store.check([name]))
        try:  # torch 2.1 has no check(). A value put before the last fence is there already
            self._store.wait([name], timedelta(milliseconds=1))
        except RuntimeError:
            return False
        return True

    def fence(self) -> None:
        self._fences += 1
        name = f"{self._prefix}/fence {self._fences}"
        if self._store.add(name, 1) == self._size:
            self._store.set(f"{name} is full", "")
        self._store.wait([f"{name} is full"])
