"""Bootstrap: locates ranks on hosts and shares memory, without MPI and over MPI."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import mpi_case
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcomm._src.platform import bootstrap

LIMIT = 60.0  # seconds for a group of processes
CONTEXT = multiprocessing.get_context("fork")


class PipeComm:
    """The communicator interface of bootstrap, over a pipe to the test's process."""

    def __init__(self, pipe: Connection, rank: int, size: int) -> None:
        self.pipe, self.rank, self.size = pipe, rank, size

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def allgather(self, item: Any) -> list[Any]:
        self.pipe.send(("gather", item))
        return self.pipe.recv()


class FixedComm:
    """One rank's view of an allgather whose outcome is known."""

    def __init__(self, rank: int, items: list[Any]) -> None:
        self.rank, self.items = rank, items

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return len(self.items)

    def allgather(self, item: Any) -> list[Any]:
        return self.items


def _child(pipe: Connection, rank: int, size: int, program: Callable[[PipeComm], Any]) -> None:
    try:
        pipe.send(("end", program(PipeComm(pipe, rank, size))))
    except BaseException as error:
        pipe.send(("end", error))
    finally:
        pipe.close()


def on_processes(size: int, program: Callable[[PipeComm], Any]) -> list[Any]:
    """Returns every rank's result. Fails if they do not finish in time or one of them raises."""
    pipes, children = [], []
    for rank in range(size):
        ours, theirs = CONTEXT.Pipe()
        children.append(CONTEXT.Process(target=_child, args=(theirs, rank, size, program), daemon=True))
        children[-1].start()
        theirs.close()
        pipes.append(ours)
    results: dict[int, Any] = {}
    given_: dict[int, Any] = {}
    deadline = time.monotonic() + LIMIT
    try:
        while len(results) < size:
            ready = wait([p for r, p in enumerate(pipes) if r not in results], max(0.0, deadline - time.monotonic()))
            assert ready, f"ranks {sorted(set(range(size)) - set(results))} are not done after {LIMIT} s"
            for pipe in ready:
                kind, item = pipe.recv()
                (given_ if kind == "gather" else results)[pipes.index(pipe)] = item
            if len(given_) == size:
                for pipe in pipes:
                    pipe.send([given_[r] for r in range(size)])
                given_.clear()
    finally:
        for child in children:
            child.kill()
            child.join()
    for rank in range(size):
        if isinstance(results[rank], BaseException):
            raise AssertionError(f"rank {rank}") from results[rank]
    return [results[rank] for rank in range(size)]


def memory_file() -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    os.truncate(fd, 4096)
    return fd


def open_fds() -> set[str]:
    """Returns the open descriptors of this process, without that of the listing."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(name + os.readlink(f"/proc/self/fd/{name}"))
    return {one for one in found if "/proc/" not in one}


def share_and_look(comm: Any, make_arena: Callable[[], int] = memory_file) -> Any:
    """Each rank writes its number into its arena and reads all arenas.

    Returns the numbers, or the reason for no sharing.
    """
    topology = bootstrap.discover(comm)
    before = open_fds()
    arenas = bootstrap.share_arenas(comm, topology, make_arena)
    if isinstance(arenas, str):
        assert open_fds() == before
        return arenas
    assert len(arenas.fds) == len(arenas.pidfds) == topology.local_size
    assert arenas.pidfds[topology.local_rank] == -1
    assert not any(os.get_inheritable(fd) for fd in (*arenas.fds, *arenas.pidfds) if fd >= 0)
    maps = [mmap.mmap(fd, 4096) for fd in arenas.fds]
    maps[topology.local_rank][0] = topology.rank + 1
    comm.allgather(None)
    seen = [one[0] - 1 for one in maps]
    comm.allgather(None)
    for one in maps:
        one.close()
    arenas.close()
    for fd in arenas.pidfds:
        if fd >= 0:
            os.close(fd)
    assert open_fds() == before
    return seen


# ---- topology --------------------------------------------------------------------------------------------------------
@given(st.lists(st.integers(0, 5), min_size=1, max_size=24))
def test_topology_of_any_placement(places: list[int]) -> None:
    keys = [(f"host{place}", "boot") for place in places]
    views = [bootstrap.discover(FixedComm(rank, [(key, 1) for key in keys])) for rank in range(len(keys))]
    for rank, view in enumerate(views):
        assert (view.rank, view.size, view.hosts) == (rank, len(keys), views[0].hosts)
        assert [r for r in range(len(keys)) if keys[r] == keys[rank]] == list(view.host)
        assert view.host[view.local_rank] == rank and view.local_size == len(view.host)
        assert 0 <= view.cross_rank < view.cross_size <= len(view.hosts)
        assert view.is_homogeneous == (len({places.count(place) for place in places}) == 1)
        assert view.host_names[view.hosts.index(view.host)] == keys[rank][0]
    assert sorted(r for host in views[0].hosts for r in host) == list(range(len(keys)))
    assert [host[0] for host in views[0].hosts] == sorted(host[0] for host in views[0].hosts)
    # (local rank, cross rank) identifies a rank; the cross ranks of one local rank have no gaps.
    assert len({(v.local_rank, v.cross_rank) for v in views}) == len(views)
    for local in {v.local_rank for v in views}:
        level = [v for v in views if v.local_rank == local]
        assert sorted(v.cross_rank for v in level) == list(range(len(level))) and level[0].cross_size == len(level)


def test_single_host() -> None:
    one = bootstrap.Topology.single_host(2, 4, "here")
    assert (one.local_rank, one.local_size, one.cross_rank, one.cross_size, one.is_homogeneous) == (2, 4, 0, 1, True)


def test_host_key_is_stable_and_the_same_in_a_child() -> None:
    code = "from ringcomm._src.platform import bootstrap; print(bootstrap.host_key())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LIMIT)
    assert told.stdout.strip() == repr(bootstrap.host_key())


# ---- sharing ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_everybody_sees_everybodys_arena(size: int) -> None:
    assert on_processes(size, share_and_look) == [list(range(size))] * size


def test_more_descriptors_than_one_message_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_MOST_FDS", 2)
    assert on_processes(5, share_and_look) == [list(range(5))] * 5


def test_a_short_queue_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    listen = bootstrap._listen
    monkeypatch.setattr(bootstrap, "_listen", lambda _: listen(0))
    assert on_processes(7, share_and_look) == [list(range(7))] * 7


def test_ranks_share_with_their_own_host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(comm: PipeComm) -> Any:
        bootstrap.host_key = lambda: (f"host{comm.rank % 2}",)
        return share_and_look(comm)

    assert on_processes(5, program) == [[0, 2, 4], [1, 3], [0, 2, 4], [1, 3], [0, 2, 4]]


@pytest.mark.parametrize("failing", [0, 2])
def test_a_refused_arena_is_told_to_all_at_once(failing: int) -> None:
    def program(comm: PipeComm) -> Any:
        def refuse() -> int:
            raise OSError("no memory for you")

        return share_and_look(comm, refuse if comm.rank == failing else memory_file)

    said = on_processes(3, program)  # TIMEOUT is unchanged: no rank may have waited for the rank that failed
    assert said == [f"rank {failing} could not share memory: no memory for you"] * 3


@pytest.mark.parametrize(("failing", "function"), [(0, "_serve_arenas"), (2, "_request_arenas")])
def test_a_failure_on_the_way_ends_for_all(failing: int, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "TIMEOUT", 1.0)

    def program(comm: PipeComm) -> Any:
        def fail(*_: Any) -> list[int]:
            raise RuntimeError("struck by lightning")

        if comm.rank == failing:
            setattr(bootstrap, function, fail)
        return share_and_look(comm)

    said = on_processes(3, program)
    assert len(set(said)) == 1 and "could not share memory" in said[0]


def test_strangers_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that sends invalid data, or a descriptor in a wrong place, changes nothing."""
    monkeypatch.setattr(bootstrap, "TIMEOUT", 10.0)

    def program(comm: PipeComm) -> Any:
        ask = bootstrap._request_arenas

        def ask_after_strangers(address: str, mine: int, *rest: Any) -> list[int]:
            for text, fds in ((b"hello", []), (b"\x09\0\0\0", [mine]), (b"\0\0\0\0", [mine]), (b"\1\0\0\0", [])):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                    stranger.connect(address)
                    socket.send_fds(stranger, [text], fds)
            return ask(address, mine, *rest)

        bootstrap._request_arenas = ask_after_strangers
        return share_and_look(comm)

    assert on_processes(2, program) == [[0, 1]] * 2


def test_another_users_process_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "TIMEOUT", 1.0)

    def program(comm: PipeComm) -> Any:
        if comm.rank == 0:
            bootstrap._same_user = lambda _: False
        return share_and_look(comm)

    said = on_processes(2, program)
    assert len(set(said)) == 1 and "could not share memory" in said[0]


def test_a_kernel_without_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> int:
        raise PermissionError("seccomp")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert on_processes(2, share_and_look) == [[0, 1]] * 2


def test_a_pidfd_is_of_its_ranks_process() -> None:
    def program(comm: PipeComm) -> bool:
        arenas = bootstrap.share_arenas(comm, bootstrap.discover(comm), memory_file)
        assert isinstance(arenas, bootstrap.Arenas)
        pids = comm.allgather(os.getpid())
        for rank, fd in enumerate(arenas.pidfds):
            if rank != comm.rank:
                with open(f"/proc/self/fdinfo/{fd}") as info:
                    assert [int(line.split()[1]) for line in info if line.startswith("Pid:")] == [pids[rank]]
        comm.allgather(None)  # every rank was alive until here
        return True

    assert on_processes(3, program) == [True] * 3


# ---- over MPI --------------------------------------------------------------------------------------------------------
def over_mpi() -> None:
    from mpi4py import MPI

    from ringcomm._src.core import _core

    comm = MPI.COMM_WORLD
    for make_arena in (memory_file, _core.Node.make_arena):
        arenas = bootstrap.share_arenas(comm, bootstrap.discover(comm), make_arena)
        assert isinstance(arenas, bootstrap.Arenas)
        arenas.close()
        for fd in arenas.pidfds:
            if fd >= 0:
                os.close(fd)
    seen = share_and_look(comm)
    half = comm.Split(comm.rank % 2, -comm.rank)
    part = bootstrap.share_arenas(half, bootstrap.discover(half), memory_file)
    assert isinstance(part, bootstrap.Arenas) and len(part.fds) == half.size
    if comm.size == 3:
        one_rank_is_refused_a_board(comm)
    mpi_case.say("seen", *seen)


def one_rank_is_refused_a_board(comm: Any) -> None:
    """Simulates two hosts; one rank has no memory after mapping arenas: no rank shares any."""
    import ringcomm
    from ringcomm._src.core import _core

    class Refusing(_core.Node):
        def reserve_leader_scratch(self, slot: int) -> None:
            raise ValueError("no memory for you")

    of_one_host, node = bootstrap.host_key, _core.Node
    try:
        bootstrap.host_key = lambda: (f"host{comm.rank // 2}",)
        if comm.rank == 1:
            _core.Node = Refusing
        world = ringcomm.Communicator(comm)
    finally:
        bootstrap.host_key, _core.Node = of_one_host, node
    assert not world.shared_memory and "no memory for you" in world.shared_memory_reason
    assert world.allreduce(np.ones(5))[0] == comm.size
    world.close()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_over_mpi(size: int) -> None:
    line = " ".join(["seen", *map(str, range(size))])
    assert mpi_case.run(size, over_mpi).lines("seen") == [line] * size
