"""Every relaxed method with different numbers of steps per rank (also none) and random pauses.

All ranks finish, with identical bits.
"""

import random
import time

import torch
from cases_relaxed import same_bits
from torch import nn

import ringcomm.torch as hvd

SECONDS = 1.5


def methods():
    size = hvd.size()
    made = [
        lambda o: hvd.LocalSGD(o, every=3),
        lambda o: hvd.LocalSGD(o, every="3ms"),
        lambda o: hvd.LocalSGD(o, every=2, start=3),
        lambda o: hvd.LocalSGD(o, every=2, overlap=True),
        lambda o: hvd.LocalSGD(o, groups={1: "host", 4: "all"}, momentum="reset"),
        lambda o: hvd.DiLoCo(o, every=5),
        lambda o: hvd.DiLoCo(o, every=6, fragments=2, delay=2),
        lambda o: hvd.EASGD(o, every=2),
        lambda o: hvd.Gossip(o),
        lambda o: hvd.Gossip(o, topology="exponential", resync=4),
        lambda o: hvd.Gossip(o, topology="torus", order="combine_while_adapt", every=2),
        lambda o: hvd.Gossip(o, topology="ring", compression=hvd.Compression.int8),
        lambda o: hvd.GradientSharing(o),
    ]
    if size == 1 or hvd.global_process_set.node is not None:  # all ranks share memory
        made += [
            lambda o: hvd.Hogwild(o),
            lambda o: hvd.Hogwild(o, update="locked"),
            lambda o: hvd.EASGD(o, every=2, mode="async"),
            lambda o: hvd.EASGD(o, every=2, mode="round_robin"),
            lambda o: hvd.Gossip(o, mode="async"),
        ]
    many = {1, max(1, size - 1), size}
    rules = [hvd.Async(), hvd.Sync(), hvd.SSP(0), hvd.SSP(2), *map(hvd.SoftSync, many), *map(hvd.Backup, many)]
    return made + [lambda o, rule=rule: hvd.ParameterServer(o, consistency=rule) for rule in rules] * 2


def case_random_ends():
    ours, common = random.Random(hvd.rank()), random.Random(1)
    since, rounds = time.monotonic(), 0
    while True:
        make, size = common.choice(methods()), common.choice([2, 3000, 30000])
        weights = [nn.Parameter(torch.zeros(size)), nn.Parameter(torch.ones(3))]
        optimizer = make(torch.optim.SGD(weights, lr=0.1))
        with optimizer:
            for _ in range(ours.choice([0, 1, ours.randrange(20)])):
                for p in weights:
                    p.grad = torch.ones_like(p)
                if ours.random() < 0.3:
                    time.sleep(ours.random() * 0.001)
                optimizer.step()
        same_bits(weights)
        rounds += 1
        left = hvd.allreduce(torch.tensor(SECONDS - (time.monotonic() - since)), op=hvd.Min, name="relaxed.left")
        if left.item() < 0:
            break
    assert rounds > 0  # between hosts some rounds take a second
