"""Models and loops that the optimizer's cases share.

Results of p ranks with shards must equal those of one process with the global batch.
"""

import torch
from torch import nn

import ringcomm.torch as hvd

BATCH = 12  # divides by 1, 2, 3, 4


def model(dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 16, 20), nn.Tanh(), nn.Linear(20, 5)
    ).to(dtype)


def batch(step, dtype=torch.float64):
    generator = torch.Generator().manual_seed(step)
    return (
        torch.randn(BATCH, 1, 6, 6, generator=generator, dtype=torch.float64).to(dtype),
        torch.randn(BATCH, 5, generator=generator, dtype=torch.float64).to(dtype),
    )


def shard(tensors):
    return [torch.tensor_split(tensor, hvd.size())[hvd.rank()] for tensor in tensors]


def loss_of(net, data):
    x, y = data
    return ((net(x) - y) ** 2).mean()


def alone(make_optimizer, steps, train):
    """Trains the reference in one process, on global batches: `train(net, optimizer, batches)`."""
    net = model()
    train(net, make_optimizer(net.parameters()), [batch(step) for step in range(steps)])
    return net


def together(make_optimizer, steps, train, **options):
    net = model(seed=hvd.rank())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        make_optimizer(net.parameters()), named_parameters=net.named_parameters(), **options
    )
    train(net, optimizer, [shard(batch(step)) for step in range(steps)])
    return net


def plain(net, optimizer, batches):
    for data in batches:
        optimizer.zero_grad()
        loss_of(net, data).backward()
        optimizer.step()


def equal_nets(a, b, rtol=1e-9, atol=1e-12):
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


def same_bits_everywhere(net):
    for name, p in net.named_parameters():
        everybody = hvd.allgather(p.detach()[None], name=f"bits.{name}")
        assert all(torch.equal(one, everybody[0]) for one in everybody), name


def compare(make_optimizer, train=plain, steps=6, reference=None, rtol=1e-9, **options):
    """Trains in both ways and compares; ``reference`` replaces the one-process training."""
    distributed = together(make_optimizer, steps, train, **options)
    equal_nets(distributed, alone(make_optimizer, steps, reference or train), rtol=rtol)
    same_bits_everywhere(distributed)
    return distributed


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
