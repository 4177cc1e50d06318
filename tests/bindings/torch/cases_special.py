"""Methods that coincide in special cases give identical bits, on integer values."""

import ctypes
import random
import time
from unittest import mock

import torch
from torch import nn

import ringcomm.torch as hvd
from ringcomm._src.core import _core

STEPS = 5


def whole(make, unit, lr=1.0, meet=lambda optimizer: None):
    """Trains, and returns the weights before finish().

    Gradients are multiples of `unit`, which stay integers when means divide them.
    """
    p = nn.Parameter(torch.zeros(64))
    optimizer = make(torch.optim.SGD([p], lr=lr))
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(10 * hvd.rank() + step)
        p.grad = torch.randint(-8, 9, (64,), generator=generator).float() * unit
        optimizer.step()
        meet(optimizer)
    before = p.detach().clone()
    if hasattr(optimizer, "finish"):
        optimizer.finish()
    assert bool(before.any())
    return before


def case_means_in_every_step():
    """LocalSGD(1), complete gossip, DistributedOptimizer, and methods that are equal to them."""
    unit = hvd.size() ** STEPS
    mean = whole(lambda o: hvd.LocalSGD(o, every=1), unit)
    assert torch.equal(whole(lambda o: hvd.Gossip(o, topology="complete"), unit), mean)
    plain = whole(with_hooks, unit)
    assert torch.equal(plain, mean)
    assert torch.equal(whole(lambda o: with_hooks(o, delay=0), unit), mean)
    assert torch.equal(whole(lambda o: hvd.ParameterServer(o, consistency=hvd.Sync()), unit), mean)


def with_hooks(optimizer, **options):
    """Returns a DistributedOptimizer that takes gradients from `p.grad`, by a backward pass."""
    made = hvd.DistributedOptimizer(optimizer, **options)
    (p,) = made.param_groups[0]["params"]
    step = made.step

    def from_backward():
        given, p.grad = p.grad, None
        (p * given).sum().backward()
        step()

    made.step = from_backward
    return made


def case_an_outer_optimizer_that_does_nothing():
    unit = hvd.size() ** STEPS
    outer = whole(lambda o: hvd.DiLoCo(o, every=2, outer_lr=1.0, outer_momentum=0.0), unit)
    assert torch.equal(outer, whole(lambda o: hvd.LocalSGD(o, every=2), unit))


class Identity:
    """A lossless codec."""

    def __init__(self, code, dtype, feedback): ...

    def capacity(self, count):
        return 4 * count

    def encode(self, source, count, target):
        ctypes.memmove(target, source, 4 * count)
        return 4 * count

    def decode(self, source, nbytes, target, count, adding):
        ctypes.memmove(target, source, nbytes)


def case_compression_that_keeps_all_is_gossip():
    unit = hvd.size() ** STEPS
    plain = whole(lambda o: hvd.Gossip(o, topology="complete"), unit)
    with mock.patch.object(_core, "Codec", Identity):
        make = lambda o: hvd.Gossip(o, topology="complete", compression=hvd.Compression.int8, gamma=1.0)  # noqa: E731
        assert torch.equal(whole(make, unit), plain)


def on_one_host():
    return hvd.size() == hvd.local_size()


def case_no_staleness_is_in_step():
    """SSP(0) applies each gradient on its arrival, Sync the mean of all.

    With a learning rate multiplied by the number of ranks, and ranks that meet before the next
    push, the weights are equal.
    """
    if not on_one_host():
        return
    size = hvd.size()
    stale = whole(lambda o: hvd.ParameterServer(o, consistency=hvd.SSP(0)), size, 1.0, lambda o: hvd.barrier())
    assert torch.equal(stale, whole(lambda o: hvd.ParameterServer(o, consistency=hvd.Sync()), size, float(size)))


def case_softsync_of_one_is_asynchronous():
    """Ranks step in turns, with momentum and arbitrary floating-point numbers."""
    if not on_one_host():
        return
    runs = []
    for consistency in (hvd.Async(), hvd.SoftSync(1)):
        p = nn.Parameter(torch.linspace(-1, 1, 50))
        optimizer = hvd.ParameterServer(torch.optim.SGD([p], lr=0.05, momentum=0.3), consistency=consistency)
        for turn in random.Random(3).choices(range(hvd.size()), k=20):
            if turn == hvd.rank():
                p.grad = torch.sin(p.detach() * (turn + 1)) / 3
                optimizer.step()
            hvd.barrier()
        optimizer.finish()
        runs.append(p.detach().clone())
    assert torch.equal(*runs)


def case_synchronous_training_is_the_same_in_every_run():
    """Arbitrary gradients are added in the order of ranks, not of arrival."""
    if not on_one_host():
        return
    draw, runs = random.Random(), []
    for _ in range(4):
        p = nn.Parameter(torch.zeros(5000))
        optimizer = hvd.ParameterServer(torch.optim.SGD([p], lr=0.1, momentum=0.5), consistency=hvd.Sync())
        for step in range(6):
            generator = torch.Generator().manual_seed(10 * hvd.rank() + step)
            p.grad = torch.randn(5000, generator=generator) * 10.0 ** (step % 3)
            time.sleep(draw.random() * 0.002)
            optimizer.step()
        optimizer.finish()
        runs.append(p.detach().clone())
    assert all(torch.equal(one, runs[0]) for one in runs)
