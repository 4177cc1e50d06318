"""DistributedOptimizer on process sets."""

import pytest
import torch
from torch import nn
from training import batch, model, plain, sgd, shard

import ringcomm.torch as hvd


def case_on_a_set_that_is_removed():
    """Ranks outside of the set train alone.

    A set with an optimizer can be removed; then the optimizer raises an error.
    """
    if hvd.size() < 3:
        return
    pair = hvd.add_process_set([0, hvd.size() - 1])
    net = nn.Linear(2, 1, bias=False).double()
    nn.init.ones_(net.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), process_set=pair)
    included = pair.included()

    def step():
        optimizer.zero_grad()
        net(torch.full((2,), float(hvd.rank()), dtype=torch.float64)).sum().backward()
        optimizer.step()

    for _ in range(4):
        step()
    mean = (hvd.size() - 1) / 2 if included else float(hvd.rank())
    torch.testing.assert_close(net.weight, torch.full((1, 2), 1 - 4 * mean, dtype=torch.float64))
    assert hvd.remove_process_set(pair)
    if included:
        with pytest.raises(ValueError, match="has not been added"):
            step()


def case_sets_that_follow_one_another():
    """A set's ranks number optimizers identically, also after an earlier set of that number."""
    for missing in range(3 if hvd.size() > 2 else 0):
        part = hvd.add_process_set([rank for rank in range(hvd.size()) if rank != missing])
        if part.included():
            net = model()
            plain(
                net,
                hvd.DistributedOptimizer(sgd(net.parameters()), process_set=part),
                [shard(batch(step)) for step in range(4)],
            )
            weights = hvd.allgather(torch.cat([p.detach().flatten() for p in net.parameters()])[None], process_set=part)
            assert (weights == weights[0]).all()
        hvd.shutdown()
        hvd.init()
