"""Every kind of traffic between the ranks of a job. test_hosts.py runs it on simulated hosts.

Communicators and sessions stay open at the end, as users leave them. Messages that MPI still holds
are counted after ringcomm's exit handler and before MPI's.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from pathlib import Path


def count_unreceived() -> None:
    """Prints a line for every message that MPI would find unreceived in MPI_Finalize."""
    from ringcomm._src.platform import mpi_link

    for link in mpi_link._open:
        for comm, _ in link._duplicates:
            if comm.Iprobe():
                print("MPI still holds a message", flush=True)


atexit.register(count_unreceived)  # handlers run in reverse order: ringcomm's, registered later, runs before it

import numpy as np  # noqa: E402

import ringcomm  # noqa: E402

ringcomm.init()
RANK, SIZE = ringcomm.rank(), ringcomm.size()
TOTAL = SIZE * (SIZE + 1) / 2  # the sum of rank + 1


def named() -> None:
    """Each rank submits in a different order; the coordinator exchanges messages with every rank."""
    order = np.random.default_rng(RANK)
    for step in range(4):
        names = [f"{step}.{i}" for i in range(12)]
        sizes = {name: 10 + 300 * i for i, name in enumerate(names)}
        handles = {
            name: ringcomm.allreduce_async(np.full(sizes[name], RANK + 1.0), name=name, op=ringcomm.Sum)
            for name in order.permutation(names)
        }
        for handle in handles.values():
            assert (ringcomm.synchronize(handle) == TOTAL).all()
    names = [f"a tensor with a long name, {'x' * 200} {i}" for i in range(400)]  # control messages of 100 KB
    waiting = [ringcomm.allreduce_async(np.ones(3), name=name, op=ringcomm.Sum) for name in order.permutation(names)]
    for handle in waiting:
        assert (ringcomm.synchronize(handle) == SIZE).all()
    rows = ringcomm.allgather(np.full((RANK + 1, 2), RANK), name="rows")
    assert (rows[:, 0] == np.repeat(np.arange(SIZE), np.arange(SIZE) + 1)).all()


def ordered() -> None:
    comm = ringcomm.communicator()
    for count in (0, 1, 100, 100_000):
        assert (comm.allreduce(np.full(count, RANK + 1.0)) == TOTAL).all()
        assert (comm.broadcast(np.full(count, RANK, np.int32), SIZE - 1) == SIZE - 1).all()
        parts = comm.alltoall(np.repeat(np.arange(SIZE) * 100 + RANK, count))
        assert (parts == np.repeat(np.arange(SIZE) + RANK * 100, count)).all()
    for algorithm in ("all_to_all", "master_worker", "tree", "round_robin", "butterfly", "ring"):
        assert (comm.allreduce(np.full(1000, RANK + 1.0), algorithm=algorithm) == TOTAL).all()
    with comm.split(RANK % 2, -RANK) as half:  # this communicator is closed; the next one is not
        assert half.allreduce(np.ones(5))[0] == half.size
    part = comm.split(0, RANK)
    assert part.allreduce(np.ones(5))[0] == SIZE


def messages() -> None:
    """Several senders, and one receiver that accepts any source, with short and long messages."""
    comm = ringcomm.communicator()
    lengths = (0, 1, 1000, 5000, 300_000)
    for root in range(SIZE):
        if root == RANK:
            seen = np.zeros((SIZE, len(lengths)), int)
            for turn in range((SIZE - 1) * len(lengths)):
                room = np.empty(max(lengths))
                if turn % 2:
                    status = comm.recv(room, ringcomm.ANY_SOURCE)
                else:
                    status = comm.irecv(room, ringcomm.ANY_SOURCE, ringcomm.ANY_TAG).wait()
                got = room[: lengths[status.tag]]
                assert (got == status.source).all()
                seen[status.source, status.tag] += 1
            assert (np.delete(seen, root, 0) == 1).all()
        else:
            sends = [comm.isend(np.full(length, float(RANK)), root, tag) for tag, length in enumerate(lengths)]
            for send in sends:
                send.wait()
        comm.barrier()
    if SIZE > 1 and RANK == 0:
        comm.send(np.ones(10), SIZE - 1, 77)  # never received


def torch_wrapped() -> None:
    import torch

    import ringcomm.torch as hvd

    for wrap in (
        lambda inner, model: hvd.DistributedOptimizer(inner, model.named_parameters()),
        lambda inner, model: hvd.DistributedOptimizer(
            inner, model.named_parameters(), compression=hvd.Compression.int8
        ),
        lambda inner, model: hvd.DistributedOptimizer(
            inner, model.named_parameters(), compression=hvd.Compression.topk(0.1)
        ),
        lambda inner, model: hvd.LocalSGD(inner, every=2, model=model),
    ):
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.01), model)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 64) + RANK).square().mean().backward()
            optimizer.step()
        if hasattr(optimizer, "finish"):
            optimizer.finish()
        flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        assert torch.equal(hvd.broadcast(flat, 0), flat), wrap


def overlapped() -> None:
    import torch

    import ringcomm.torch as hvd
    from ringcomm._src.torch.overlap.parameter import ParameterInFlight

    trained = {}
    for overlap in (False, True):
        torch.manual_seed(7)
        model = torch.nn.Sequential(*(torch.nn.Linear(300, 300) for _ in range(5)))
        inner = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(inner, model.named_parameters(), overlap_forward=overlap)
        torch.manual_seed(RANK)
        for _ in range(9):
            optimizer.zero_grad()
            model(torch.randn(8, 300)).square().mean().backward()
            optimizer.step()
        assert any(type(p) is ParameterInFlight for p in model.parameters()) == overlap
        trained[overlap] = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    # On more ranks, sums of buckets of different sizes may be in different orders.
    same = torch.equal if hvd.size() == 2 else torch.allclose
    assert same(trained[True], trained[False])


def relaxed() -> None:
    import torch

    import ringcomm.torch as hvd

    model = torch.nn.Linear(64, 64)
    for wrap in (hvd.ParameterServer, lambda inner: hvd.Gossip(inner, topology="ring")):
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.01))
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 64)).square().mean().backward()
            optimizer.step()
        optimizer.finish()


def torch_distributed() -> None:
    import torch
    import torch.distributed as dist

    import ringcomm.torch.distributed

    dist.init_process_group(ringcomm.torch.distributed.NAME)
    x = torch.full((1000,), RANK + 1.0)
    dist.all_reduce(x)
    assert (x == TOTAL).all()
    outputs = [torch.empty(5) for _ in range(SIZE)]
    dist.all_gather(outputs, torch.full((5,), float(RANK)))
    assert [int(one[0]) for one in outputs] == list(range(SIZE))
    work = dist.isend(torch.full((70_000,), float(RANK)), (RANK + 1) % SIZE)
    room = torch.empty(70_000)
    if SIZE > 1:
        dist.recv(room)  # from any rank
        assert (room == (RANK - 1) % SIZE).all()
    work.wait()
    dist.barrier()


CASES = {
    case.__name__: case for case in (named, ordered, messages, torch_wrapped, overlapped, relaxed, torch_distributed)
}

if __name__ == "__main__":
    os.environ.setdefault("XDG_CACHE_HOME", tempfile.mkdtemp())
    Path(sys.argv[1], f"{RANK}.begun").touch()
    for name in sys.argv[2:]:
        CASES[name]()
    # Each rank writes to a separate file, because launchers mix the lines of several ranks.
    Path(sys.argv[1], f"{RANK}.done").write_text(ringcomm.__version__)
