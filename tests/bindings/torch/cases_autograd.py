"""Gradients through every blocking collective, compared with Horovod's documentation."""

import torch

import ringcomm.torch as hvd


def variable(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(hvd.rank())).requires_grad_()


def upstream(rank, *shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(50 + rank))


def mean_of(*shape):
    return sum(upstream(r, *shape) for r in range(hvd.size())) / hvd.size()


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def case_allreduce():
    for op, factor in ((hvd.Average, 1), (hvd.Sum, hvd.size())):
        x = variable(3, 4)
        hvd.allreduce(x, op=op).backward(upstream(hvd.rank(), 3, 4))
        close(x.grad, mean_of(3, 4) * factor)
    x = variable(3)
    hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0).backward(upstream(hvd.rank(), 3))
    close(x.grad, mean_of(3) * hvd.size() * 1.5)


def case_grouped_allreduce():
    xs = [variable(2), variable(3, 2)]
    a, b = hvd.grouped_allreduce(xs)
    ((a * upstream(hvd.rank(), 2)).sum() + (b * upstream(hvd.rank(), 3, 2)).sum()).backward()
    close(xs[0].grad, mean_of(2))
    close(xs[1].grad, mean_of(3, 2))


def case_allreduce_compressed():
    x = variable(4).detach().float().requires_grad_()
    hvd.allreduce(x, compression=hvd.Compression.fp16).backward(torch.ones(4))
    assert x.grad.dtype == torch.float32
    close(x.grad, torch.ones(4))


def case_horovods_names():
    """The classes of horovod.torch.mpi_ops take its arguments; gradients are the functions'."""
    ops, world, x = hvd.mpi_ops, hvd.global_process_set, variable(hvd.size(), 2)
    scales = (1.0, 1.0)
    pairs = (
        (ops.HorovodAllreduce.apply(x, None, "h", hvd.Sum, *scales, world), hvd.allreduce(x, op=hvd.Sum)),
        (ops.HorovodGroupedAllreduce.apply(None, "h", hvd.Sum, *scales, world, x)[0], hvd.allreduce(x, op=hvd.Sum)),
        (ops.HorovodAllgather.apply(x, "h", world), hvd.allgather(x)),
        (ops.HorovodGroupedAllgather.apply("h", world, x)[0], hvd.allgather(x)),
        (ops.HorovodBroadcast.apply(x, 0, "h", world), hvd.broadcast(x, 0)),
        (ops.HorovodAlltoall.apply(x, None, "h", world), hvd.alltoall(x)),
        (ops.HorovodReducescatter.apply(x, "h", hvd.Average, world, *scales), hvd.reducescatter(x)),
        (ops.HorovodGroupedReducescatter.apply("h", hvd.Average, world, *scales, x)[0], hvd.reducescatter(x)),
    )
    for theirs, ours in pairs:
        assert torch.equal(theirs, ours)
        gradients = [torch.autograd.grad(one.sum(), x)[0] for one in (theirs, ours)]
        assert torch.equal(*gradients)


def case_allgather():
    rows = [2 * r + 1 for r in range(hvd.size())]
    x = variable(rows[hvd.rank()], 2)
    hvd.allgather(x).backward(upstream(hvd.rank(), sum(rows), 2))
    first = sum(rows[: hvd.rank()])
    close(x.grad, mean_of(sum(rows), 2)[first : first + rows[hvd.rank()]])
    scalar = variable()
    hvd.allgather(scalar).backward(upstream(hvd.rank(), hvd.size()))
    close(scalar.grad, mean_of(hvd.size())[hvd.rank()])


def case_grouped_allgather():
    xs = [variable(hvd.rank() + 1), variable(2, 3)]
    a, b = hvd.grouped_allgather(xs)
    total = sum(range(1, hvd.size() + 1))
    ((a * upstream(hvd.rank(), total)).sum() + (b * upstream(hvd.rank(), 2 * hvd.size(), 3)).sum()).backward()
    first = sum(range(1, hvd.rank() + 1))
    close(xs[0].grad, mean_of(total)[first : first + hvd.rank() + 1])
    close(xs[1].grad, mean_of(2 * hvd.size(), 3)[2 * hvd.rank() : 2 * hvd.rank() + 2])


def case_broadcast():
    for root in range(hvd.size()):
        x = variable(3)
        hvd.broadcast(x, root).backward(upstream(hvd.rank(), 3))
        close(x.grad, mean_of(3) if hvd.rank() == root else torch.zeros(3, dtype=torch.float64))


def case_alltoall():
    size, rank = hvd.size(), hvd.rank()
    splits = [(rank + to) % 2 + 1 for to in range(size)]
    x = variable(sum(splits), 2)
    output, received = hvd.alltoall(x, splits=splits)
    assert not received.requires_grad
    (output * (rank + 1)).sum().backward()
    close(x.grad, torch.cat([torch.full((n, 2), to + 1.0, dtype=torch.float64) for to, n in enumerate(splits)]))
    y = variable(size)
    (hvd.alltoall(y) * (rank + 1)).sum().backward()
    close(y.grad, torch.arange(1, size + 1, dtype=torch.float64))


def case_reducescatter():
    size, rank = hvd.size(), hvd.rank()
    rows = 2 * size + 1
    for op, factor in ((hvd.Average, 1), (hvd.Sum, size)):
        x = variable(rows, 2)
        hvd.reducescatter(x, op=op, prescale_factor=2.0).backward(
            torch.full((3 if rank == 0 else 2, 2), rank + 1.0).double()
        )
        right = [torch.full((3 if r == 0 else 2, 2), 2.0 * factor * (r + 1), dtype=torch.float64) for r in range(size)]
        close(x.grad, torch.cat(right))
    xs = [variable(size), variable(2 * size, 2)]
    a, b = hvd.grouped_reducescatter(xs, op=hvd.Sum)
    (a.sum() + 2 * b.sum()).backward()
    close(xs[0].grad, torch.full((size,), float(size), dtype=torch.float64))
    close(xs[1].grad, torch.full((2 * size, 2), 2.0 * size, dtype=torch.float64))


def case_without_gradient():
    x = torch.ones(3)
    assert not hvd.allreduce(x).requires_grad
    with torch.no_grad():
        assert not hvd.allgather(variable(2)).requires_grad
