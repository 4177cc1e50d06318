"""Tensors of process groups in memory that the ranks of a host share."""

import copy

import torch
import torch.distributed as dist

from ringcomm._src.torch.distributed import world


def given(rank: int, step: int) -> torch.Tensor:
    return torch.randn(step + 1, 200, generator=torch.Generator().manual_seed(10 * rank + step))


def case_buckets_lie_in_shared_memory():
    """Final buckets, and gradients that are views of them, are in shared memory."""
    rank, size = dist.get_rank(), dist.get_world_size()
    shared = world.shared_tensors()
    torch.manual_seed(3)
    net = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(4)))
    alone = copy.deepcopy(net)
    wrapped = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.2, gradient_as_bucket_view=True)
    for step in range(4):
        x = torch.stack([given(one, step) for one in range(size)])
        for module, rows in ((wrapped, x[rank]), (alone, x.flatten(0, 1))):
            module.zero_grad()
            module(rows).square().mean().backward()
        for one, wanted in zip(net.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one.grad, wanted.grad)
    if shared is not None:
        assert all(shared.is_in_place(one.grad) for one in net.parameters())


def case_tensors_of_a_size_that_is_met_lie_in_shared_memory():
    shared = world.shared_tensors()
    if shared is None:
        return
    rank, size = dist.get_rank(), dist.get_world_size()
    for _ in range(3):
        part = torch.full((size, 30_011), float(rank))
        dist.reduce_scatter_tensor(torch.empty(30_011), part.flatten())
    assert shared.is_in_place(torch.empty(size, 30_011))
