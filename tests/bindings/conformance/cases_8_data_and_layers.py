"""SyncBatchNorm, compared with ordinary batch normalisation of the global batch; ElasticSampler."""

import copy

import torch
from expected import alive, my_sets, raises
from torch import nn

import ringcomm.torch as hvd

SHAPES = {1: (6, 3), 2: (5, 3, 4, 2), 3: (4, 3, 2, 2, 3)}


def batches(ranks, shape, dtype=torch.float64, rows=None):
    """Returns every rank's batch; the sizes differ."""
    made = {}
    for rank in ranks:
        generator = torch.Generator().manual_seed(rank)
        count = shape[0] + rank if rows is None else rows(rank)
        made[rank] = (3 + torch.randn(count, *shape[1:], generator=generator, dtype=torch.float64)).to(dtype)
    return made


def close(a, b, tolerance=1e-9):
    torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


def compare(one, shape, dtype=torch.float64, rows=None, tolerance=1e-9, **options):
    """Compares output, running statistics and all gradients; the loss is the sum over ranks."""
    torch.manual_seed(0)
    ordinary = {2: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)](shape[1], **options).double()
    if ordinary.affine:
        nn.init.normal_(ordinary.weight)
        nn.init.normal_(ordinary.bias)
    layer = hvd.SyncBatchNorm(shape[1], process_set=one, **options)
    layer = layer.float() if dtype == torch.bfloat16 else layer.to(dtype)
    layer.load_state_dict(ordinary.state_dict())
    for step in range(3):
        given = batches(one.ranks, shape, dtype, rows)
        whole = torch.cat([given[r].double() + step for r in one.ranks]).requires_grad_()
        mine = (given[hvd.rank()].double() + step).to(dtype).requires_grad_()
        right, result = ordinary(whole), layer(mine)
        sizes = [len(given[r]) for r in one.ranks]
        assert result.dtype == dtype
        close(result, right.split(sizes)[one.rank()], tolerance)
        factors = torch.arange(whole.numel(), dtype=torch.float64).view_as(whole).sin()
        (right * factors).sum().backward()
        (result * factors.split(sizes)[one.rank()].to(dtype)).sum().backward()
        close(mine.grad, whole.grad.split(sizes)[one.rank()], tolerance)
        if ordinary.affine:
            for p, q in ((layer.weight, ordinary.weight), (layer.bias, ordinary.bias)):
                close(hvd.allreduce(p.grad, op=hvd.Sum, process_set=one), q.grad, tolerance * 10)
                p.grad = q.grad = None
        if ordinary.track_running_stats:
            close(layer.running_mean, ordinary.running_mean, tolerance)
            close(layer.running_var, ordinary.running_var, tolerance)
            assert layer.num_batches_tracked == ordinary.num_batches_tracked
    if ordinary.track_running_stats:
        layer.eval()
        ordinary.eval()
        close(layer(mine.detach()), ordinary(mine.detach().double()), tolerance)


def case_batch_norm():
    for one in my_sets():
        for shape in SHAPES.values():
            compare(one, shape)
        compare(one, SHAPES[2], dtype=torch.float32, tolerance=1e-4)
        compare(one, SHAPES[2], dtype=torch.bfloat16, tolerance=0.2)
        compare(one, SHAPES[1], momentum=None)
        compare(one, SHAPES[1], affine=False)
        compare(one, SHAPES[1], track_running_stats=False)
        compare(one, SHAPES[2], eps=0.1, momentum=0.7)


def case_batch_norm_of_unequal_batches():
    """A rank without data, and ranks with one row."""
    world = hvd.global_process_set
    compare(world, SHAPES[2], rows=lambda rank: 0 if rank == 0 else 3)
    compare(world, SHAPES[1], rows=lambda rank: 1)


def case_batch_norm_far_from_zero():
    """The variance of large values: it would be lost in a sum of squares."""
    world = hvd.global_process_set
    layer = hvd.SyncBatchNorm(2)
    given = (
        torch.stack([torch.full((4,), 1e4), torch.zeros(4)], 1)
        + batches([hvd.rank()], (4, 2), torch.float32)[hvd.rank()][:4]
    )
    layer(given)
    whole = hvd.allgather(given, process_set=world).double()
    close(layer.running_var - 0.9, 0.1 * whole.var(0), 1e-3)


def case_batch_norm_in_training():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), hvd.SyncBatchNorm(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)).double()
    other = copy.deepcopy(net)
    other[1] = nn.BatchNorm2d(4).double()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    reference = torch.optim.SGD(other.parameters(), lr=0.1)
    for step in range(5):
        x = torch.randn(12, 1, 6, 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        for one, trainer, data in ((net, optimizer, x.tensor_split(hvd.size())[hvd.rank()]), (other, reference, x)):
            trainer.zero_grad()
            (one(data) ** 2).mean().backward()
            trainer.step()
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        close(p, q)


def case_batch_norm_refuses():
    raises(ValueError, hvd.SyncBatchNorm(3), torch.ones(3))
    one_value = torch.ones(1 if hvd.rank() == 0 else 0, 3)
    raises(ValueError, hvd.SyncBatchNorm(3), one_value)
    alive()


# ---- ElasticSampler --------------------------------------------------------------------------------------------------
def everybody(sampler):
    return [index for part in hvd.allgather_object(list(sampler)) for index in part]


def case_sampler_deals_out_all():
    for count, shuffle in ((0, True), (1, True), (2, False), (10, True), (23, False)):
        sampler = hvd.elastic.ElasticSampler(range(count), shuffle=shuffle, seed=5)
        orders = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            dealt = everybody(sampler)
            assert len(sampler) == len(list(sampler)) == -(-count // hvd.size())
            assert set(dealt) == set(range(count)) and len(dealt) - count < hvd.size()
            orders.append(tuple(dealt))
        assert count < 10 or (len(set(orders)) > 1) == shuffle


def case_sampler_goes_on_in_the_middle():
    sampler = hvd.elastic.ElasticSampler(range(40), seed=1)
    sampler.set_epoch(2)
    loader = torch.utils.data.DataLoader(list(range(40)), batch_size=3, sampler=sampler)
    done = []
    for number, data in enumerate(loader):
        done += [x for part in hvd.allgather_object(data.tolist()) for x in part]
        sampler.record_batch(number, 3)
        if number == 1:
            break
    state = sampler.state_dict()
    assert state == {"epoch": 2, "processed_num": 6 * hvd.size()}
    again = hvd.elastic.ElasticSampler(range(40), seed=1)
    again.load_state_dict(copy.deepcopy(state))
    left = everybody(again)
    assert not set(left) & set(done) and set(left) | set(done) == set(range(40))
    again.set_epoch(3)
    assert set(everybody(again)) == set(range(40))


def case_sampler_of_recorded_indices():
    sampler = hvd.elastic.ElasticSampler(range(20), shuffle=False)
    sampler.record_indices([3, 4, 19])
    state = sampler.state_dict()
    assert state["processed_indices"] == [3, 4, 19]
    sampler.load_state_dict(state)
    assert set(everybody(sampler)) == set(range(20)) - {3, 4, 19}
    sampler.reset()
    assert len(sampler.remaining_indices) == 17
    sampler.set_epoch(1)
    assert set(everybody(sampler)) == set(range(20))
