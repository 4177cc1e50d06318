"""The other collectives between hosts beside MPI's, and all-to-all beside bare TCP, which shows what links that all use
at once give.

    python benchmarks/cluster.py --hosts 4 --rate 200mbit -- python benchmarks/collectives_network.py --rate 200e6

One rank of each host. Contestants take turns; times are the slowest rank's, shares are of the time that a link needs
for what it carries one way: (h-1)/h S / rate, and of a broadcast or a reduction S / rate, where S is the whole buffer's
size (allgather, reducescatter, alltoall: of all ranks' parts together):

    ringcomm     Communicator.alltoall and so on, of float32
    mpi          MPI_Alltoall and so on
    tcp at once  all-to-all by a socket to each host: all blocks at once, a thread for each
    tcp in turn  the same sockets: to the next host, to the one after it, ...
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from cluster import NETWORK
from measure import machine, write
from mpi4py import MPI
from training_step import timed

import ringcomm
from ringcomm.cli.measured import take_turns
from ringcomm.cli.sizes import human_size, parse_sizes


def own_address() -> str:
    """Of this host in the cluster's network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((f"{NETWORK}.254", 9))
        return str(probe.getsockname()[0])


class Sockets:
    """One to each other host for sending, and one from each."""

    def __init__(self, world: MPI.Intracomm) -> None:
        self.rank, self.size = world.rank, world.size
        self.to: dict[int, socket.socket] = {}
        self.of: dict[int, socket.socket] = {}
        with socket.create_server((own_address(), 0)) as server:
            addresses = world.allgather(server.getsockname())
            accepting = threading.Thread(target=self._accept, args=(server,))
            accepting.start()
            for rank, address in enumerate(addresses):
                if rank != self.rank:
                    self.to[rank] = socket.create_connection(address)
                    self.to[rank].sendall(bytes([self.rank]))
            accepting.join()
        for one in (*self.to.values(), *self.of.values()):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _accept(self, server: socket.socket) -> None:
        while len(self.of) < self.size - 1:
            one, _ = server.accept()
            self.of[one.recv(1)[0]] = one

    def _receive(self, rank: int, block: memoryview) -> None:
        while len(block) > 0:
            block = block[self.of[rank].recv_into(block) :]

    def alltoall(self, given: list[memoryview], taken: list[memoryview], at_once: bool) -> None:
        threads = [threading.Thread(target=self._receive, args=(rank, taken[rank])) for rank in self.of]
        if at_once:
            threads += [threading.Thread(target=one.sendall, args=(given[rank],)) for rank, one in self.to.items()]
        for thread in threads:
            thread.start()
        for turn in range(1, self.size) if not at_once else ():
            rank = (self.rank + turn) % self.size
            self.to[rank].sendall(given[rank])
        for thread in threads:
            thread.join()
        taken[self.rank][:] = given[self.rank]


COLLECTIVES = ("alltoall", "allgather", "reducescatter", "broadcast", "reduce")
Works = dict[str, Callable[[], object]]


def calls(
    collective: str, comm: ringcomm.Communicator, world: MPI.Intracomm, whole: np.ndarray, part: np.ndarray
) -> Works:
    """Of a whole buffer and of this rank's part, both of which a collective that has two buffers reads or writes."""
    other = np.empty_like(whole)
    found: dict[str, Works] = {
        "alltoall": {"ringcomm": lambda: comm.alltoall(whole, out=other), "mpi": lambda: world.Alltoall(whole, other)},
        "allgather": {"ringcomm": lambda: comm.allgather(part, out=other), "mpi": lambda: world.Allgather(part, other)},
        "reducescatter": {
            "ringcomm": lambda: comm.reducescatter(whole, out=part),
            "mpi": lambda: world.Reduce_scatter_block(whole, part),
        },
        "broadcast": {"ringcomm": lambda: comm.broadcast(whole, out=whole), "mpi": lambda: world.Bcast(whole)},
        "reduce": {"ringcomm": lambda: comm.reduce(whole, out=other), "mpi": lambda: world.Reduce(whole, other)},
    }
    return found[collective]


def works_of(
    collective: str, comm: ringcomm.Communicator, world: MPI.Intracomm, sockets: Sockets, size: int
) -> dict[str, Callable[[int], float]]:
    whole = np.full(size // 4, world.rank, np.float32)
    works = calls(collective, comm, world, whole, np.full(len(whole) // world.size, world.rank, np.float32))
    if collective == "alltoall":
        into = np.empty_like(whole)
        given, taken = (list(map(memoryview, np.split(array.view(np.uint8), world.size))) for array in (whole, into))
        works |= {
            "tcp at once": lambda: sockets.alltoall(given, taken, True),
            "tcp in turn": lambda: sockets.alltoall(given, taken, False),
        }
    return {name: partial(timed, world, work) for name, work in works.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collectives", default=",".join(COLLECTIVES), help=f"(default {','.join(COLLECTIVES)})")
    parser.add_argument("--sizes", default="256K,1M,4M,16M", help="of the whole buffer")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--rate", type=float, required=True, help="of each host's link, in bits a second")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as folder:  # what another cluster's links are like does not hold here
        os.environ["XDG_CACHE_HOME"] = folder
        comm = ringcomm.Communicator(world)
    sockets = Sockets(world)
    rows = []
    for collective in options.collectives.split(","):
        for size in parse_sizes(options.sizes):
            works = works_of(collective, comm, world, sockets, size)
            found = take_turns(world, works, options.turns, size, uncounted=2)
            share = 1.0 if collective in ("broadcast", "reduce") else (world.size - 1) / world.size
            bound = share * size * 8 / options.rate
            rows.append({"collective": collective, "size": size, "bound": bound, "seconds": found})
            if world.rank == 0:
                shares = ", ".join(f"{name} {bound / statistics.median(times):.2f}" for name, times in found.items())
                print(f"{collective:13} {human_size(size):>7}  of the bound: {shares}", flush=True)
    if world.rank == 0 and options.json:
        write(options.json, {"machine": machine(), "hosts": world.size, "rate": options.rate, "rows": rows})
    comm.close()


if __name__ == "__main__":
    main()
