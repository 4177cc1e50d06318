"""Errors in scripts: Horovod's exception types, on all ranks concerned; the job continues."""

import torch
from expected import alive, raises

import ringcomm
import ringcomm.torch as hvd
from ringcomm._src.base.errors import MismatchError


def odd():
    """Returns a different value on the last rank."""
    return hvd.rank() == hvd.size() - 1


def case_ranks_disagree():
    def tensor(**options):
        return torch.ones(4, 3, **options)

    half = torch.float16 if odd() else torch.float32
    wrong = {
        "shape": lambda name: hvd.allreduce(torch.ones(4 + odd(), 3), name=name),
        "dims": lambda name: hvd.allreduce(torch.ones([4, 3, 1] if odd() else [4, 3]), name=name),
        "same count": lambda name: hvd.allreduce(torch.ones(3, 4) if odd() else tensor(), name=name),
        "dtype": lambda name: hvd.allreduce(tensor(dtype=half), name=name),
        "op": lambda name: hvd.allreduce(tensor(), name=name, op=hvd.Max if odd() else hvd.Sum),
        "prescale": lambda name: hvd.allreduce(tensor(), name=name, op=hvd.Sum, prescale_factor=1.0 + odd()),
        "postscale": lambda name: hvd.allreduce(tensor(), name=name, op=hvd.Sum, postscale_factor=1.0 + odd()),
        "row": lambda name: hvd.allgather(torch.ones(4, 3 + odd()), name=name),
        "gathered dims": lambda name: hvd.allgather(torch.ones([2, 2, 2] if odd() else [2, 2]), name=name),
        "gathered dtype": lambda name: hvd.allgather(tensor(dtype=half), name=name),
        "root": lambda name: hvd.broadcast(tensor(), int(odd()), name=name),
        "broadcast shape": lambda name: hvd.broadcast(torch.ones(4, 3 + odd()), 0, name=name),
        "broadcast dtype": lambda name: hvd.broadcast(tensor(dtype=half), 0, name=name),
        "alltoall row": lambda name: hvd.alltoall(torch.ones(hvd.size(), 3 + odd()), name=name),
        "alltoall dtype": lambda name: hvd.alltoall(torch.ones(hvd.size(), dtype=half), name=name),
        "scattered shape": lambda name: hvd.reducescatter(torch.ones(4 + odd(), 3), name=name),
        "scattered op": lambda name: hvd.reducescatter(tensor(), name=name, op=hvd.Sum if odd() else hvd.Average),
        "scattered dtype": lambda name: hvd.reducescatter(tensor(dtype=half), name=name),
    }
    for kind, call in wrong.items():
        for _ in range(2):  # the second time the names are cached
            message = raises(hvd.HorovodInternalError, call, f"wrong.{kind}")
            assert f"wrong.{kind}" in message and "rank" in message, message
            raises(RuntimeError, call, f"wrong.{kind}")
        alive()
        good = hvd.allreduce(torch.ones(2), name=f"wrong.{kind}", op=hvd.Sum)  # the name is free again
        assert good.tolist() == [hvd.size()] * 2


def case_asynchronous_errors_come_with_synchronize():
    handles = [hvd.allreduce_async(torch.ones(2 + odd() * (i == 1)), name=f"three.{i}", op=hvd.Sum) for i in range(3)]
    assert hvd.synchronize(handles[0]).tolist() == [hvd.size()] * 2
    raises(MismatchError, hvd.synchronize, handles[1])
    raises(MismatchError, hvd.synchronize, handles[1])
    assert hvd.synchronize(handles[2]).tolist() == [hvd.size()] * 2
    alive()


def case_groups_fail_as_a_whole():
    tensors = [torch.ones(2), torch.ones(3 + odd()), torch.ones(1)]
    raises(hvd.HorovodInternalError, hvd.grouped_allreduce, tensors, name="group", op=hvd.Sum)
    raises(hvd.HorovodInternalError, hvd.grouped_allgather_async(tensors[:2] * (1 + odd()), name="count").wait)
    alive()


def case_a_name_in_flight():
    duplicates = {
        "allreduce": lambda: hvd.allreduce_async(torch.ones(2), name="twice", op=hvd.Sum),
        "allreduce_": lambda: hvd.allreduce_async_(torch.ones(2), name="twice", op=hvd.Sum),
        "grouped": lambda: hvd.grouped_allreduce_async([torch.ones(2)] * 2, name="twice", op=hvd.Sum),
        "allgather": lambda: hvd.allgather_async(torch.ones(2), name="twice"),
        "broadcast": lambda: hvd.broadcast_async(torch.ones(2), 0, name="twice"),
        "alltoall": lambda: hvd.alltoall_async(torch.ones(hvd.size()), name="twice"),
        "reducescatter": lambda: hvd.reducescatter_async(torch.ones(2), name="twice"),
    }
    for kind, call in duplicates.items():
        if hvd.rank() == 0:  # the other ranks cannot have finished it
            handle = call()
            for _ in range(3):
                raises(ValueError, call)
            hvd.barrier()
        else:
            hvd.barrier()
            handle = call()
        assert hvd.synchronize(handle) is not None, kind
        hvd.synchronize(call())  # the name is free again
    alive()


def case_arguments():
    n = hvd.size()
    x = torch.ones(n)
    wrong = (
        (ValueError, lambda: hvd.allreduce(x, average=True, op=hvd.Sum)),
        (ValueError, lambda: hvd.allreduce(x, op=99)),
        (ValueError, lambda: hvd.allreduce(x, op="some")),
        (ValueError, lambda: hvd.reducescatter(torch.tensor(1.0))),
        (ValueError, lambda: hvd.reducescatter(x, op=None)),
        (RuntimeError, lambda: hvd.reducescatter(x, op=hvd.Adasum)),
        (ValueError, lambda: hvd.reducescatter_async(x, op=2)),
        (RuntimeError, lambda: ringcomm.reducescatter(x.numpy(), op=ringcomm.Adasum)),
        (ValueError, lambda: ringcomm.allreduce(x.numpy() * 1j, op=ringcomm.Max)),
        (ValueError, lambda: hvd.broadcast(x, n)),
        (ValueError, lambda: hvd.broadcast_(x, -1)),
        (ValueError, lambda: hvd.alltoall(torch.ones(n + 1))),
        (ValueError, lambda: hvd.alltoall(x, splits=[1] * (n + 1))),
        (ValueError, lambda: hvd.alltoall(x, splits=[2] * n)),
        (ValueError, lambda: hvd.alltoall(x, splits=[n + 1, -1, *[0] * (n - 2)])),
        (ValueError, lambda: hvd.alltoall(x, splits=torch.ones(n))),
        (ValueError, lambda: hvd.alltoall(x, splits=[[1] * n])),
        (ValueError, lambda: hvd.alltoall(torch.tensor(1.0))),
        (ValueError, lambda: hvd.sparse_allreduce_async(x, "dense", hvd.Sum)),
        (ValueError, lambda: hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "max", hvd.Max)),
        (ValueError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.complex64), op=hvd.Min)),
        (ValueError, lambda: hvd.broadcast_parameters({"a": 1}, 0)),
        (ValueError, lambda: hvd.broadcast_parameters("text", 0)),
        (ValueError, lambda: hvd.broadcast_parameters({torch.ones(1)}, 0)),
        (ValueError, lambda: hvd.broadcast_object(1, root_rank=n)),
        (TypeError, lambda: hvd.allreduce()),
    )
    for kind, call in wrong:
        raises(kind, call)
        alive()


def case_tensors_that_cannot_be_taken():
    for call in (
        hvd.allreduce,
        hvd.allreduce_,
        hvd.allgather,
        hvd.reducescatter,
        hvd.alltoall,
        lambda x: hvd.broadcast(x, 0),
        lambda x: hvd.broadcast_(x, 0),
        lambda x: hvd.grouped_allreduce([torch.ones(1), x]),
        lambda x: hvd.grouped_allgather([x]),
    ):
        assert "meta" in raises(ValueError, call, torch.empty(2, device="meta"))
        raises(ValueError, call, torch.eye(2).to_sparse())
        for wrong in ([1.0, 2.0], 3, None, "text"):
            raises(TypeError, call, wrong)
    alive()


def case_optimizers_disagree():
    for kind in ("shape", "number", "name", "dtype", "settings"):
        net = torch.nn.Linear(3, 4 if kind == "shape" and odd() else 2, bias=not (kind == "number" and odd()))
        net = net.double() if kind == "dtype" and odd() else net
        named = [(f"odd.{k}" if kind == "name" and odd() else k, p) for k, p in net.named_parameters()]
        op = hvd.Sum if kind == "settings" and odd() else hvd.Average
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), named, op=op)
        net(torch.ones(3, dtype=net.weight.dtype)).sum().backward()
        assert "rank" in raises(hvd.HorovodInternalError, optimizer.step)
        alive()


def case_a_rank_ends_the_step_otherwise():
    net = torch.nn.Linear(2, 2)
    hvd.broadcast_parameters(net.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    for step in range(3):  # from the third step on gradients are sent during backward
        net(torch.ones(2)).sum().backward()
        if step < 2:
            optimizer.step()
            optimizer.zero_grad()
    assert "dropped" in raises(hvd.HorovodInternalError, optimizer.zero_grad if odd() else optimizer.step)
    net.zero_grad()
    alive()
    net(torch.ones(2)).sum().backward()
    optimizer.step()
    alive()
