"""Derivatives of every order through every collective, compared with one process.

Horovod's rules (sums or means over ranks) define the first derivative. Therefore the product of the
second derivative with a vector is the change of all ranks' first derivatives along that vector.
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ringcomm.torch as hvd
from ringcomm._src.base.errors import UnsupportedError

STEP = 1e-5
WEIGHTS = torch.tensor([0.5, -1.5, 2.0, 1.25, 0.75, -0.25], dtype=torch.float64)


def own(*shape):
    """Returns this rank's values, all between 0.5 and 1.5 and pairwise different."""
    generator = torch.Generator().manual_seed(7 + hvd.rank())
    return torch.rand(shape, dtype=torch.float64, generator=generator) + 0.5


def loss_of(tensor):
    """Returns a nonlinear loss that differs by rank."""
    flat = tensor.flatten()
    return ((flat**3) * WEIGHTS.repeat(len(flat))[: len(flat)] * (1 + hvd.rank())).sum()


def collectives():
    size, rank = hvd.size(), hvd.rank()
    splits = [(rank + to) % 2 + 1 for to in range(size)]
    yield "average", own(3, 2), hvd.allreduce
    for op in (hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
        yield f"allreduce {op}", own(3, 2), lambda x, op=op: hvd.allreduce(x, op=op)
        yield (
            f"allreduce {op} with factors",
            own(3, 2),
            lambda x, op=op: hvd.allreduce(x, op=op, prescale_factor=-0.5, postscale_factor=3.0),
        )
    for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
        yield f"reducescatter {op}", own(size + 1, 2), lambda x, op=op: hvd.reducescatter(x, op=op)
    yield "grouped", own(4), lambda x: torch.cat(hvd.grouped_allreduce([x[:1] ** 2, x[1:]]))
    yield "allgather", own(rank + 1, 2), hvd.allgather
    yield "grouped_allgather", own(rank + 2), lambda x: torch.cat(hvd.grouped_allgather([x[:1], x[1:] ** 2]))
    yield "broadcast", own(3), lambda x: hvd.broadcast(x, size - 1)
    yield "alltoall", own(size * (rank + 1), 2), hvd.alltoall
    yield "alltoall with splits", own(sum(splits) + 1, 2), lambda x: hvd.alltoall(x, splits)[0]
    yield "twice", own(3), lambda x: hvd.allreduce(hvd.allgather(x) ** 2, op=hvd.Sum)


def gradient_at(collective, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(loss_of(collective(x)), x)[0]


def case_second_derivatives():
    for name, x, collective in collectives():
        along = own(*x.shape).flip(0) - 1
        _, found = torch.autograd.functional.hvp(lambda t, do=collective: loss_of(do(t)), x, along)
        ahead, behind = (gradient_at(collective, x + step * along) for step in (STEP, -STEP))
        difference = (ahead - behind) / (2 * STEP)
        torch.testing.assert_close(
            found, difference, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def case_hessian_by_the_table():
    """A user's example: the second derivative of the cube of an average is 6."""
    ones = torch.ones(3)
    _, product = torch.autograd.functional.hvp(lambda t: (hvd.allreduce(t) ** 3).sum(), ones, ones)
    assert torch.equal(product, torch.full((3,), 6.0))


def case_gradients_of_extremes_and_products():
    """Compares with autograd in one process that has all ranks' tensors and sums all ranks' losses."""
    size, rank = hvd.size(), hvd.rank()
    rows = torch.tensor([[1.0, 5.0, 2.0, 0.0, 3.0], [4.0, 5.0, -2.0, 6.0, 0.0], [4.0, 1.0, 7.0, 0.0, 0.0]]).double()
    rows = rows.repeat(-(-size // 3), 1)[:size]
    upstream = torch.arange(1.0, 6.0).double()
    for op, alone in ((hvd.Max, torch.amax), (hvd.Min, torch.amin), (hvd.Product, torch.prod)):
        whole = rows.clone().requires_grad_()
        (alone(whole, 0) * upstream * sum(range(1, size + 1))).sum().backward()
        mine = rows[rank].clone().requires_grad_()
        (hvd.allreduce(mine, op=op) * upstream * (rank + 1)).sum().backward()
        torch.testing.assert_close(mine.grad, whole.grad[rank], msg=lambda text, op=op: f"{op}: {text}")
    lost = torch.tensor([float("nan") if rank == 0 else 1.0, 2.0 + rank]).requires_grad_()
    hvd.allreduce(lost, op=hvd.Max).sum().backward()
    assert lost.grad.tolist() == [size * (rank == 0), size * (rank == size - 1)]


def case_integers_beside():
    x = torch.ones(2).requires_grad_()
    a, b = hvd.grouped_allreduce([x, torch.ones(3, dtype=torch.int64)], op=hvd.Sum)
    (a**2).sum().backward()
    assert b.tolist() == [hvd.size()] * 3 and x.grad.tolist() == [2.0 * hvd.size() ** 2] * 2


def case_gradient_penalty():
    """backward() through the gradient of SyncBatchNorm equals one process on the batch."""
    size, rank = hvd.size(), hvd.rank()
    torch.manual_seed(3)
    whole, noise = torch.randn(4 * size, 3, dtype=torch.float64), torch.randn(4 * size, 3, dtype=torch.float64)
    results = []
    for layer, rows in ((hvd.SyncBatchNorm(3), slice(4 * rank, 4 * rank + 4)), (nn.BatchNorm1d(3), slice(None))):
        layer = layer.double()
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([0.5, 1.5, -1.0]))
        x = whole[rows].clone().requires_grad_()
        (first,) = torch.autograd.grad((layer(x) ** 3 * noise[rows]).sum(), x, create_graph=True)
        (first**2).sum().backward()
        results.append((first.detach(), x.grad, layer.weight.grad))
    (first, second, weight), (all_first, all_second, all_weight) = results
    torch.testing.assert_close(first, all_first[4 * rank : 4 * rank + 4])
    torch.testing.assert_close(second, all_second[4 * rank : 4 * rank + 4])
    torch.testing.assert_close(hvd.allreduce(weight, op=hvd.Sum), all_weight)
    layer, x = hvd.SyncBatchNorm(3, track_running_stats=False).double(), whole[4 * rank : 4 * rank + 4]
    named = {name: p.detach() * 2 for name, p in layer.named_parameters()}
    slopes = torch.func.grad(lambda named: (torch.func.functional_call(layer, named, x) ** 3).sum())(named)
    layer.load_state_dict(named)
    (layer(x) ** 3).sum().backward()
    for name, p in layer.named_parameters():
        torch.testing.assert_close(slopes[name], p.grad)


def case_transforms_of_functions():
    """torch.func computes derivatives of any order, and refuses to vectorize."""
    ones = torch.ones(3)

    def loss(t):
        return (hvd.allreduce(t) ** 3).sum() + (hvd.allgather(t) ** 2).sum()

    assert torch.equal(torch.func.grad(loss)(ones), torch.full((3,), 5.0))
    _, pullback = torch.func.vjp(torch.func.grad(loss), ones)
    assert torch.equal(pullback(ones)[0], torch.full((3,), 8.0))
    try:
        torch.func.vmap(hvd.allreduce)(torch.ones(2, 3))
    except RuntimeError as error:
        assert "vmap" in str(error)
    else:
        raise AssertionError("a collective was vectorised")


def case_checkpoint():
    for reentrant in (True, False):
        x = own(3).requires_grad_()
        loss_of(checkpoint(lambda t: hvd.allgather(hvd.allreduce(t) ** 2), x, use_reentrant=reentrant)).backward()
        y = x.detach().clone().requires_grad_()
        loss_of(hvd.allgather(hvd.allreduce(y) ** 2)).backward()
        torch.testing.assert_close(x.grad, y.grad)


def case_adasum_has_first_derivatives_only():
    x = own(3).requires_grad_()
    (first,) = torch.autograd.grad(hvd.allreduce(x, op=hvd.Adasum).sum(), x)
    assert torch.isfinite(first).all()
    try:
        torch.autograd.grad(hvd.allreduce(x, op=hvd.Adasum).sum(), x, create_graph=True)
    except UnsupportedError as error:
        assert "create_graph" in str(error)
    else:
        raise AssertionError("a second derivative of Adasum was made up")
