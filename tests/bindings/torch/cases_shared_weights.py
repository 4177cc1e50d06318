"""Weights in shared memory: Hogwild and asynchronous EASGD."""

import random
import time

import numpy as np
import relaxed_reference as reference
import torch
from cases_relaxed import agree, flat_of, gradient, parameters, raises, same_bits, start_weights, take, train
from cases_store import holder
from torch import nn

import ringcomm.torch as hvd


def case_hogwild():
    """Ranks add ones: the locked mode loses none, the racy mode few."""
    for update in ("locked", "racy"):
        p = nn.Parameter(torch.zeros(20000))
        other = nn.Parameter(torch.ones(3, 4, 2, 2).to(memory_format=torch.channels_last))
        optimizer = hvd.Hogwild(torch.optim.SGD([p, other], lr=1.0, foreach=False), update=update)
        assert other.stride()[1] == 1
        with optimizer:
            for _ in range(50):
                p.grad = -torch.ones(20000)
                optimizer.step()
        assert optimizer.updates == 50 * hvd.size()
        same_bits([p, other])
        if update == "locked":
            assert (p == 50 * hvd.size()).all()
        else:
            assert float(p.detach().mean()) > 0.5 * 50 * hvd.size()
        p.data.add_(hvd.rank())  # each rank has private weights again
        assert float(p.detach().max()) <= 50 * hvd.size() + hvd.rank()


def case_hogwild_trains_a_model():
    torch.manual_seed(hvd.rank())
    net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))

    def loss_of(x):
        return (net(x) - x[:, :1]).square().mean()

    many = torch.randn(1000, 6, generator=torch.Generator().manual_seed(0))
    before = float(loss_of(many))  # each rank's: a rank that is late finds weights that others have trained
    with hvd.Hogwild(torch.optim.Adam(net.parameters(), lr=0.01), model=net) as optimizer:
        for _ in range(60):
            optimizer.zero_grad()
            loss_of(torch.randn(16, 6)).backward()
            optimizer.step()
    assert float(loss_of(many)) < 0.8 * before
    same_bits([*net.parameters(), net[1].running_mean])


def case_easgd_without_rounds():
    """Only gradients change the sum of replicas and centre; round-robin equals a simulation."""
    for mode in ("async", "round_robin"):
        weights, optimizer = train(lambda o, mode=mode: hvd.EASGD(o, every=2, mode=mode), 8 + hvd.rank(), lr=0.0)
        agree(weights, start_weights())
        assert optimizer.updates == sum(8 + rank for rank in range(hvd.size()))
    weights, _ = train(lambda o: hvd.EASGD(o, every=2, mode="round_robin"), 8)
    size, x, c = hvd.size(), np.repeat(start_weights()[None], hvd.size(), axis=0), start_weights()
    alpha = 0.9 / size

    def pull(rank):
        d = alpha * (x[rank] - c)
        x[rank] -= d
        c[:] += d

    for step in range(8):
        for rank in range(size):
            g = gradient(rank, step, x[rank])
            if (step + 1) % 2 == 0:
                pull(rank)
            x[rank] -= 0.1 * g
    for rank in range(size):
        pull(rank)
    agree(weights, c)


def case_replay_of_asynchronous_easgd():
    """Recomputes the weights bit for bit from the order in which ranks accessed the centre.

    The learning rate is a power of two, so products are exact.
    """
    weights = parameters(torch.float32)
    optimizer = hvd.EASGD(torch.optim.SGD(weights, lr=0.125), every=3, mode="async")
    centre = optimizer._method._centre
    centre.log = []
    draw = random.Random(hvd.rank())
    with optimizer:
        for step in range(25):
            time.sleep(draw.random() * 0.001)
            take(optimizer, weights, step)
    mine = [(version, hvd.rank()) for shard, _, version in centre.log if shard == holder(centre)]
    log = [one for rows in hvd.allgather_object(mine) for one in rows]
    assert len(log) == 9 * hvd.size()
    start = start_weights().astype(np.float32)
    again = reference.easgd_replayed(start, in_float32, hvd.size(), 25, 3, 0.125, log)
    assert np.array_equal(again, flat_of(weights).astype(np.float32))


def in_float32(rank, step, x):
    """Computes the gradient as `take` does."""
    return gradient(rank, step, x.astype(np.float64)).astype(np.float32)


def case_looking_at_the_centre():
    weights = parameters()
    optimizer = hvd.EASGD(torch.optim.SGD(weights, lr=0.1), mode="async", every=2)
    for step in range(4):
        take(optimizer, weights, step)
        before = flat_of(weights)
        if hvd.rank() == 0:  # one rank computes alone
            with optimizer.global_weights():
                assert np.isfinite(flat_of(weights)).all()
            assert np.array_equal(flat_of(weights), before)
    optimizer.finish()
    same_bits(weights)


def case_refused():
    p = nn.Parameter(torch.ones(3))
    sgd = lambda: torch.optim.SGD([p], lr=0.1)  # noqa: E731
    raises(ValueError, "update=", lambda: hvd.Hogwild(sgd(), update="wild"))
    raises(ValueError, "mode=", lambda: hvd.EASGD(sgd(), mode="none"))
    raises(ValueError, "on_loss=", lambda: hvd.Hogwild(sgd(), on_loss="retry"))
