"""Compares the other collectives between hosts with MPI's, and all-to-all with bare TCP.

TCP shows the throughput of links that all hosts use at the same time.

    python benchmarks/cluster.py --hosts 4 --rate 200mbit -- python benchmarks/collectives_network.py --rate 200e6

Each host has one rank. Contestants take turns; times are the slowest rank's. Shares are relative to
the time that a link needs in one direction: (h-1)/h S / rate, and for a broadcast or a reduction S
/ rate. S is the complete buffer's size (allgather, reducescatter, alltoall: of all ranks' parts
together):

    ringcomm         Communicator.alltoall and so on, of float32
    mpi              MPI_Alltoall and so on
    ``tcp at once``  all-to-all by a socket to each host: all blocks at the same time, by threads
    ``tcp in turn``  the same sockets: to the next host, to the one after it, ...
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
from ringcomm._src.cli.measured import take_turns
from ringcomm._src.cli.sizes import human_size, parse_sizes


def own_address() -> str:
    """Returns this host's address in the cluster's network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((f"{NETWORK}.254", 9))
        return str(probe.getsockname()[0])


class Sockets:
    """One socket to each other host for sending, and one from each for receiving."""

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
    collective: str, comm: ringcomm.Communicator, world: MPI.Intracomm, given: np.ndarray, taken: np.ndarray
) -> Works:
    found: dict[str, Works] = {
        "alltoall": {"ringcomm": lambda: comm.alltoall(given, out=taken), "mpi": lambda: world.Alltoall(given, taken)},
        "allgather": {
            "ringcomm": lambda: comm.allgather(given, out=taken),
            "mpi": lambda: world.Allgather(given, taken),
        },
        "reducescatter": {
            "ringcomm": lambda: comm.reducescatter(given, out=taken),
            "mpi": lambda: world.Reduce_scatter_block(given, taken),
        },
        "broadcast": {"ringcomm": lambda: comm.broadcast(taken, out=taken), "mpi": lambda: world.Bcast(taken)},
        "reduce": {"ringcomm": lambda: comm.reduce(given, out=taken), "mpi": lambda: world.Reduce(given, taken)},
    }
    return found[collective]


def answer(collective: str, rank: int, ranks: int, count: int) -> np.ndarray | None:
    """Returns the expected content of `taken` if ranks pass their numbers; None if none."""
    if collective in ("alltoall", "allgather"):
        return np.arange(ranks, dtype=np.float32).repeat(count // ranks)
    if collective == "broadcast":
        return np.zeros(count, np.float32)
    total = np.float32(ranks * (ranks - 1) // 2)
    if collective == "reducescatter":
        return np.full(count // ranks, total)
    return np.full(count, total) if rank == 0 else None


def works_of(
    collective: str, comm: ringcomm.Communicator, world: MPI.Intracomm, sockets: Sockets, size: int
) -> dict[str, Callable[[int], float]]:
    count, part = size // 4, size // 4 // world.size
    given = np.full(part if collective == "allgather" else count, world.rank, np.float32)
    taken = np.empty(part if collective == "reducescatter" else count, np.float32)
    works = calls(collective, comm, world, given, taken)
    if collective == "alltoall":
        sent, into = (list(map(memoryview, np.split(array.view(np.uint8), world.size))) for array in (given, taken))
        works |= {
            "tcp at once": lambda: sockets.alltoall(sent, into, True),
            "tcp in turn": lambda: sockets.alltoall(sent, into, False),
        }
    right = answer(collective, world.rank, world.size, count)

    def checked(work: Callable[[], object], turn: int) -> float:
        taken.fill(0 if collective == "broadcast" and world.rank == 0 else -1)
        took = timed(world, work, turn)
        if right is not None and not np.array_equal(taken, right):
            raise SystemExit("a wrong result")
        return took

    return {name: partial(checked, work) for name, work in works.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collectives", default=",".join(COLLECTIVES), help=f"(default {','.join(COLLECTIVES)})")
    parser.add_argument("--sizes", default="256K,1M,4M,16M", help="of the whole buffer")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--rate", type=float, required=True, help="of each host's link, in bits a second")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as folder:  # ignores measurements of another cluster's links
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
