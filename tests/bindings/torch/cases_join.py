"""Unequal batches per rank: training and collectives while some ranks have joined."""

import functools
import warnings

import torch
from torch import nn
from training import model, same_bits_everywhere, sgd

import ringcomm.torch as hvd


def data_of(rank, step, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return (
        torch.randn(2, 1, 6, 6, generator=generator, dtype=torch.float64).to(dtype),
        torch.randn(2, 5, generator=generator, dtype=torch.float64).to(dtype),
    )


def loss_of(net, data):
    x, y = data
    return ((net(x) - y) ** 2).mean()


def batches_in(epoch, rank):
    """Returns the number of batches: none on rank 0 at first; the most on another rank."""
    return [(rank * 2) % 5, (rank + 1) % 3 + 1, 3, 4 - rank % 4][epoch]


def reference_step(net, optimizer, step, epoch):
    """Makes the step of all ranks: the mean over them; ranks without data count as zeros."""
    optimizer.zero_grad()
    for rank in range(hvd.size()):
        if batches_in(epoch, rank) > step:
            (loss_of(net, data_of(rank, step)) / hvd.size()).backward()
    optimizer.step()


def train(make_optimizer=sgd, epochs=4, prepare=lambda net: None, **options):
    """Trains with join, and broadcasts the last rank's model; the reference is one process."""
    net, alone = model(), model()
    prepare(net)
    prepare(alone)
    optimizer = hvd.DistributedOptimizer(make_optimizer(net.parameters()), net.named_parameters(), **options)
    reference = make_optimizer(alone.parameters())
    for epoch in range(epochs):
        for step in range(batches_in(epoch, hvd.rank())):
            optimizer.zero_grad()
            loss_of(net, data_of(hvd.rank(), step)).backward()
            optimizer.step()
        last = hvd.join()
        most = max(batches_in(epoch, rank) for rank in range(hvd.size()))
        assert batches_in(epoch, last) == most
        hvd.broadcast_parameters(net.state_dict(), last)
        hvd.broadcast_optimizer_state(optimizer, last)
        for step in range(most):
            reference_step(alone, reference, step, epoch)
    same_bits_everywhere(net)
    return net, alone


def equal(net, alone, rtol=1e-9, atol=1e-12):
    for p, q in zip(net.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=rtol, atol=atol)


def case_training():
    equal(*train())
    equal(*train(functools.partial(torch.optim.Adam, lr=0.01)), rtol=1e-7)


def case_groups_and_predivide():
    equal(*train(groups=2, gradient_predivide_factor=2.0))


def case_compression():
    equal(*train(compression=hvd.Compression.bf16), rtol=1e-1, atol=1e-1)


class Halving(hvd.Compression.none):
    """A user's compressor; with it, gradients are sent as named operations."""

    @staticmethod
    def compress(tensor):
        return tensor / 2, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor * 2


def case_users_compressor():
    equal(*train(compression=Halving))


def case_unused_parameters():
    def prepare(net):
        torch.manual_seed(7)
        net.extra = nn.Linear(3, 3).double()  # has no gradient on any rank
        net[0].bias.requires_grad_(False)
        used = list(net.children())[:-1]
        net.forward = lambda x: functools.reduce(lambda y, layer: layer(y), used, x)

    net, alone = train(prepare=prepare)
    equal(net, alone)
    assert net.extra.weight.grad is None


def case_a_plan_is_made_when_all_are_back():
    """A rank without a first batch has no plan; parameters added later enter a later plan."""
    first, second = nn.Linear(3, 3).double(), nn.Linear(3, 3).double()
    hvd.broadcast_parameters([*first.parameters(), *second.parameters()], 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(first.parameters(), lr=0.1))
    plans = []
    for epoch in range(3):
        if epoch == 1:
            optimizer.add_param_group({"params": list(second.parameters())})
        for _ in range(3 if hvd.rank() else epoch):
            optimizer.zero_grad()
            second(first(torch.full((1, 3), float(hvd.rank() + 1), dtype=torch.float64))).sum().backward()
            optimizer.step()
            if optimizer._reducer is not None:
                plans.append(optimizer._reducer._plan is not None)
        hvd.broadcast_parameters([*first.parameters(), *second.parameters()], hvd.join())
    same_bits_everywhere(first)
    same_bits_everywhere(second)
    if plans:
        assert plans[-1] and plans[0] == (hvd.rank() == 0)


def case_sparse():
    for as_dense in (False, True):
        tables = [nn.Embedding(6, 2, sparse=True).double() for _ in range(2)]
        for table in tables:
            hvd.broadcast_parameters(table.state_dict(), 0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([*tables[0].parameters(), *tables[1].parameters()], lr=1.0), sparse_as_dense=as_dense
        )
        expected = [table.weight.detach().clone() for table in tables]
        for step in range(hvd.rank() + 1):
            optimizer.zero_grad()
            tables[0](torch.tensor([step, hvd.rank()])).sum().backward()
            if hvd.rank() == hvd.size() - 1:
                tables[1](torch.tensor([1])).sum().backward()
            optimizer.step()
        hvd.join()
        for step in range(hvd.size()):
            for rank in range(step, hvd.size()):
                expected[0].index_add_(
                    0, torch.tensor([step, rank]), torch.full((2, 2), -1.0 / hvd.size(), dtype=torch.float64)
                )
            expected[1][1] -= 1.0 / hvd.size()
        if hvd.rank() == hvd.size() - 1:
            for table, right in zip(tables, expected, strict=True):
                torch.testing.assert_close(table.weight.detach(), right)


def case_gradients_flow():
    """Gradients of every collective while rank 0 has joined: equal to those without it."""
    size, rank = hvd.size(), hvd.rank()
    if rank == 0 and size > 1:
        hvd.join()
        return
    active = list(range(min(1, size - 1), size))
    mean = len(active) / size

    def variable(rows):
        return torch.arange(2.0 * rows).reshape(rows, 2).requires_grad_()

    def upstream(like):
        return torch.arange(1.0, like.numel() + 1).reshape(like.shape)

    x = variable(rank + 1)
    y = hvd.allgather(x)
    y.backward(upstream(y))
    first = sum(r + 1 for r in active if r < rank)
    torch.testing.assert_close(x.grad, upstream(y)[first : first + rank + 1] * mean)

    x = variable(2 * size + 1)
    y = hvd.reducescatter(x, op=hvd.Average)
    y.backward(torch.full_like(y, rank + 1.0))
    expected = [torch.full((2 + (r == 0), 2), r + 1.0 if r in active else 0.0) for r in range(size)]
    torch.testing.assert_close(x.grad, torch.cat(expected))

    for splits in (None, [1] * size):
        x = variable(size)
        y = hvd.alltoall(x, splits) if splits is None else hvd.alltoall(x, splits)[0]
        assert y.shape[0] == len(active)
        y.backward(torch.full_like(y, rank + 1.0))
        torch.testing.assert_close(x.grad, torch.tensor([[r + 1.0 if r in active else 0.0] * 2 for r in range(size)]))

    x = variable(2)
    y = hvd.broadcast(x, size - 1)
    y.backward(upstream(y))
    torch.testing.assert_close(x.grad, upstream(y) * mean if rank == size - 1 else torch.zeros(2, 2))
    assert hvd.allgather_object(rank) == active
    hvd.join()


def case_process_sets():
    if hvd.size() < 3:
        return
    last = hvd.size() - 1
    part = hvd.add_process_set([0, last])
    net, alone = model(), model()
    if part.included():
        optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters(), process_set=part)
        reference = sgd(alone.parameters())
        for step in range(4 if part.rank() else 2):
            optimizer.zero_grad()
            loss_of(net, data_of(hvd.rank(), step)).backward()
            optimizer.step()
        for step in range(4):
            reference.zero_grad()
            for rank in (0, last):
                if rank == last or step < 2:
                    (loss_of(alone, data_of(rank, step)) / 2).backward()
            reference.step()
    assert hvd.join() >= 0  # joining the world also joins every set
    if part.included() and part.rank():
        equal(net, alone)
    assert hvd.remove_process_set(part)


def case_join_in_the_middle_of_a_step():
    """Join is refused while gradients in transfer wait for a step; the step can still be taken."""
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(net, data_of(hvd.rank(), 0)).backward()
        optimizer.step()
    if hvd.size() > 1:
        optimizer.zero_grad()
        loss_of(net, data_of(hvd.rank(), 1)).backward()
        try:
            hvd.join()
        except ValueError as error:
            assert "is in progress" in str(error)
        else:
            raise AssertionError("joined")
        optimizer.step()
    hvd.join()
    same_bits_everywhere(net)


def case_accumulation_with_a_rest():
    """Without the second of two accumulated passes, nothing of the first pass has been sent."""
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters(), backward_passes_per_step=2)
    for epoch in range(3):
        for step in range(5 + hvd.rank() % 2):
            loss_of(net, data_of(hvd.rank(), step)).backward()
            if step % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()
        hvd.broadcast_parameters(net.state_dict(), hvd.join())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.zero_grad()
        assert epoch < 3
    same_bits_everywhere(net)
