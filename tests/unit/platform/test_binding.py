"""Binding: the choice of cores for each rank."""

from __future__ import annotations

import os
import subprocess
import sys

import mpi_case
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcomm._src.platform import binding


@given(st.integers(1, 9), st.integers(1, 20))
def test_shares_are_disjoint_and_use_every_core(ranks: int, cores: int) -> None:
    sets = [tuple(range(cores))] * ranks
    shares = [binding.share(sets, rank)[0] for rank in range(ranks)]
    if ranks == 1 or cores < ranks:
        assert not any(shares)
    else:
        assert all(shares) and sorted(core for share in shares for core in share) == list(range(cores))


@pytest.mark.parametrize("sets", [[(0,), (1,)], [(0, 1), (1, 2)], [(0, 1), (0, 1, 2)], [(), ()]])
def test_what_the_launcher_says_holds(sets: list[tuple[int, ...]]) -> None:
    assert all(binding.share(sets, rank)[0] == () for rank in range(len(sets)))


def test_ranks_bound_to_a_socket_share_it() -> None:
    sets = [(0, 1), (2, 3), (0, 1), (2, 3)]
    assert [binding.share(sets, rank)[0] for rank in range(4)] == [(0,), (2,), (1,), (3,)]


@pytest.mark.skipif(len(binding.allowed()) < 2, reason="needs two cores")
def test_threads_that_exist_and_those_to_come_move() -> None:
    script = """
import os, threading
from ringcomm._src.platform import binding
cores, moved = binding.allowed(), []
go = threading.Event()
look = lambda: (go.wait(), moved.append(binding.allowed()))
old = threading.Thread(target=look)
old.start()
binding.bind([cores, cores], 1)
go.set()
new = threading.Thread(target=look)
new.start()
old.join(), new.join()
assert moved == [cores[len(cores) // 2 :]] * 2, moved
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=os.environ)


@pytest.mark.skipif(len(binding.allowed()) < 2, reason="needs two cores")
@pytest.mark.parametrize("first", ["import ringcomm.torch", "pass"], ids=["imported first", "imported later"])
def test_torch_has_no_more_threads_than_its_rank_has_cores(first: str) -> None:
    pytest.importorskip("torch")
    script = f"""
import torch
{first}
from ringcomm._src.platform import binding
torch.set_num_threads(64)
cores = binding.allowed()
binding.bind([cores, cores], 1)
import ringcomm.torch
assert torch.get_num_threads() == len(binding.allowed()) < len(cores)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, env=os.environ)


def test_a_core_for_every_rank() -> None:
    hosts: list[list[binding.Cores]] = [[(0, 1)] * 2, [(0,), (1,)], [(0,)] * 2, [(0, 1)] * 3]
    assert [binding.cores_of_each(sets) for sets in hosts] == [1, 1, 0, 0]
    assert [binding.cores_of_each([(0, 1, 2, 3, 4)] * ranks) for ranks in (1, 2, 3)] == [5, 2, 1]


def test_time_slices_reach_threads_to_come() -> None:
    script = """
import ctypes, struct, threading
from ringcomm._src.platform import binding

def runtime():  # sched_getattr's
    attributes = ctypes.create_string_buffer(56)
    assert ctypes.CDLL(None).syscall({"x86_64": 315, "aarch64": 275}[machine], 0, attributes, 56, 0) == 0
    return struct.unpack("IIQiIQQQII", attributes.raw)[5]

import platform
machine, seen = platform.machine(), []
before = runtime()
binding.shorten_time_slices(0)
assert runtime() == before
binding.shorten_time_slices(2e-4)
thread = threading.Thread(target=lambda: seen.append(runtime()))
thread.start(), thread.join()
recent = tuple(int(part) for part in platform.release().split(".")[:2]) >= (6, 12)
assert not recent or seen == [runtime()] == [200_000], seen
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=os.environ)


def ranks_of_a_host_share_its_cores() -> None:
    from mpi4py import MPI

    import ringcomm

    world = MPI.COMM_WORLD
    before = world.allgather(binding.allowed())
    os.environ["RINGCOMM_BIND"] = "0"
    ringcomm.init()
    ringcomm.shutdown()
    assert world.allgather(binding.allowed()) == before
    os.environ["RINGCOMM_BIND"] = "1"
    part = ringcomm.Communicator(world.Split(world.rank % 2))  # other ranks may use these cores
    part.close()
    assert world.allgather(binding.allowed()) == before
    ringcomm.init()
    after = world.allgather(binding.allowed())
    assert all(mine == binding.share(before, rank)[0] or mine == before[rank] for rank, mine in enumerate(after))
    if len(set(before)) == 1 and len(before[0]) >= world.size:
        assert sorted(core for mine in after for core in mine) == list(before[0])


@pytest.mark.parametrize("ranks", [2, 3])
def test_under_mpirun(ranks: int) -> None:
    mpi_case.run(ranks, ranks_of_a_host_share_its_cores, alone=True)
