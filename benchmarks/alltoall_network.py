"""All-to-all between hosts beside MPI's and beside bare TCP, which shows what links that all use at once give.

    python benchmarks/cluster.py --hosts 4 --rate 200mbit -- python benchmarks/alltoall_network.py --rate 200e6

One rank of each host. Contestants take turns; times are the slowest rank's, shares are of the time that a link needs
for the blocks that it carries one way, (h-1)/h S / rate:

    ringcomm     Communicator.alltoall of bytes
    mpi          MPI_Alltoall
    tcp at once  a socket to each host: all blocks at once, a thread for each
    tcp in turn  the same sockets: to the next host, to the one after it, ...
"""

from __future__ import annotations

import argparse
import socket
import statistics
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


def works_of(
    comm: ringcomm.Communicator, world: MPI.Intracomm, sockets: Sockets, size: int
) -> dict[str, Callable[[int], float]]:
    x, out = np.full(size, world.rank, np.uint8), np.empty(size, np.uint8)
    given, taken = (list(map(memoryview, np.split(array, world.size))) for array in (x, out))
    works: dict[str, Callable[[], object]] = {
        "ringcomm": lambda: comm.alltoall(x, out=out),
        "mpi": lambda: world.Alltoall(x, out),
        "tcp at once": lambda: sockets.alltoall(given, taken, True),
        "tcp in turn": lambda: sockets.alltoall(given, taken, False),
    }

    def checked(work: Callable[[], object], turn: int) -> float:
        out[:] = 255
        took = timed(world, work, turn)
        if any(block[0] != rank or block[-1] != rank for rank, block in enumerate(taken)):
            raise SystemExit("a wrong result")
        return took

    return {name: partial(checked, work) for name, work in works.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="256K,1M,4M,16M", help="of a rank's whole input")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--rate", type=float, required=True, help="of each host's link, in bits a second")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    comm, sockets = ringcomm.Communicator(world), Sockets(world)
    rows = []
    for size in parse_sizes(options.sizes):
        found = take_turns(world, works_of(comm, world, sockets, size), options.turns, size, uncounted=2)
        bound = (world.size - 1) / world.size * size * 8 / options.rate
        rows.append({"size": size, "bound": bound, "seconds": found})
        if world.rank == 0:
            shares = ", ".join(f"{name} {bound / statistics.median(times):.2f}" for name, times in found.items())
            print(f"{human_size(size):>7}  of the bound: {shares}", flush=True)
    if world.rank == 0 and options.json:
        write(options.json, {"machine": machine(), "hosts": world.size, "rate": options.rate, "rows": rows})
    comm.close()


if __name__ == "__main__":
    main()
