"""Eager-SGD and WAGMA: against their references with ranks that take turns, and what holds whoever is late."""

import itertools
import random
import time

import numpy as np
import relaxed_reference as reference
import torch
from cases_relaxed import flat_of, gradient, parameters, raises, same_bits, start_weights, take
from torch import nn

import ringcomm.torch as hvd
from ringcomm.topology import groups


def in_turns(make, momentum=0.0):
    """Ranks step one after another, in an order drawn: whoever is not at its turn waits, and its worker stands in."""
    turns = random.Random(7).choices(range(hvd.size()), k=24)
    weights = parameters()
    optimizer = make(torch.optim.SGD(weights, lr=0.1, momentum=momentum))
    step = 0
    for rank in turns:
        if rank == hvd.rank():
            take(optimizer, weights, step)
            step += 1
        for one in optimizer._method._reductions:  # behind a round, on all ranks that are in it
            hvd.barrier(process_set=one._set)
        hvd.barrier()
    return turns, weights, optimizer


def case_eager_in_turns():
    for momentum in (0.0, 0.5):
        make = lambda o: hvd.Eager(o, quorum="solo", resync=0)  # noqa: E731
        turns, weights, optimizer = in_turns(make, momentum)
        x = reference.eager(start_weights(), gradient, hvd.size(), turns, lr=0.1, momentum=momentum)
        np.testing.assert_allclose(flat_of(weights), x[hvd.rank()], rtol=0, atol=1e-12)
        assert turns[0] != hvd.rank() or optimizer.updates > 0
        optimizer.finish()
        same_bits(weights)
        assert optimizer.updates == len(turns)


def case_groups_in_turns():
    size = hvd.size()
    for group in dict.fromkeys((None, 2, max(2, size))):
        make = lambda o, group=group: hvd.GroupAverage(o, group=group, resync=0)  # noqa: E731
        turns, weights, optimizer = in_turns(make)
        graph = groups(group)
        matrices = [graph.matrix(size, number) for number in range(graph.period(size))]
        x = reference.group_average(start_weights(), gradient, matrices, turns, lr=0.1)
        np.testing.assert_allclose(flat_of(weights), x[hvd.rank()], rtol=0, atol=1e-12)
        with optimizer.global_weights():
            np.testing.assert_allclose(flat_of(weights), x.mean(axis=0), rtol=0, atol=1e-12)
        optimizer.finish()
        same_bits(weights)


def case_nothing_is_lost():
    """With ones for gradients and no momentum all ranks have moved by the number of steps, over that of ranks."""
    size, draw = hvd.size(), random.Random(hvd.rank())
    for quorum in ("solo", "majority", max(1, size - 1), size):
        p = nn.Parameter(torch.zeros(5000, dtype=torch.float64))
        optimizer = hvd.Eager(torch.optim.SGD([p], lr=1.0), quorum=quorum, resync=0)
        steps = 12 + 7 * hvd.rank()
        for _ in range(steps):
            p.grad = torch.ones_like(p)
            time.sleep(draw.random() * 0.001)
            optimizer.step()
        total = sum(12 + 7 * rank for rank in range(size))
        # What others still have under way is not in it yet; what this rank gave is.
        assert -total / size - 1e-9 <= float(p.detach()[0]) <= -(steps - 1) / size + 1e-9
        optimizer.finish()
        same_bits([p])
        assert optimizer.updates == total


def case_means_of_all_after_so_many_rounds():
    """Every rank comes to the same ones."""
    size, draw = hvd.size(), random.Random(hvd.rank())
    for make in (
        lambda o: hvd.Eager(o, quorum="solo", resync=3),
        lambda o: hvd.Eager(o, quorum="majority", resync=2),
        lambda o: hvd.GroupAverage(o, resync=3),
    ):
        weights = parameters()
        optimizer = make(torch.optim.SGD(weights, lr=0.1, momentum=0.5))
        for step in range(30):
            time.sleep(draw.random() * (0.003 if hvd.rank() == 0 else 0.0005))
            take(optimizer, weights, step)
        optimizer.finish()
        same_bits(weights)
        means = hvd.allgather(torch.tensor([optimizer._method.rounds]), name="quorum.means").tolist()
        assert len(set(means)) == 1 and (size > 1 or means[0] >= 10), means


def case_groups_leave_no_process_sets():
    """Those that were made for groups go when nobody uses them any more; a program's own stay."""
    size = hvd.size()
    own = [hvd.add_process_set([0, 1])] if size > 2 else []
    made = []
    for _ in range(2):
        weights = parameters()
        made.append((hvd.GroupAverage(torch.optim.SGD(weights, lr=0.1), group=2), weights))
    for optimizer, weights in made:
        for step in range(4):
            take(optimizer, weights, step)
        optimizer.finish()
        same_bits(weights)
    for ranks in itertools.combinations(range(size), 2):
        if size > 2 and ranks != (0, 1):
            hvd.remove_process_set(hvd.add_process_set(ranks))
    assert all(hvd.remove_process_set(one) for one in own)


def case_looking_while_others_step():
    """All ranks look after as many steps of their own, at which none is at the same round."""
    draw = random.Random(hvd.rank())
    for make in (
        lambda o: hvd.Eager(o, quorum="majority", resync=5),
        lambda o: hvd.Eager(o, quorum=max(1, hvd.size() - 1)),
        lambda o: hvd.GroupAverage(o, resync=4),
    ):
        weights = parameters()
        optimizer = make(torch.optim.SGD(weights, lr=0.1))
        for step in range(12):
            time.sleep(draw.random() * 0.001)
            take(optimizer, weights, step)
            if step % 4 == 1:
                before, method = flat_of(weights), optimizer._method
                means = method.rounds
                with optimizer.global_weights():
                    same_bits(weights)
                # Others may have come to a mean of all meanwhile, and then so has this rank.
                assert method.rounds > means or np.array_equal(flat_of(weights), before)
            if step % 4 == 3:
                optimizer.exchange_now()
                same_bits(weights)
        optimizer.finish()
        optimizer.finish()


def case_overflow_and_clipping_of_eager():
    p = nn.Parameter(torch.ones(4))
    optimizer = hvd.Eager(torch.optim.SGD([p], lr=1.0), quorum=hvd.size())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with optimizer:
        scaler.scale((p * (float("inf") if hvd.rank() == 0 else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.allclose(p, torch.full((4,), 1 / hvd.size()))
        optimizer.zero_grad()
        (p * 100.0).sum().backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_value_([p], 0.5)
        with optimizer.skip_synchronize():
            optimizer.step()
        assert torch.allclose(p, torch.full((4,), 1 / hvd.size() - 0.5))


def case_refused_by_quorums():
    p = nn.Parameter(torch.ones(3))
    sgd = lambda: torch.optim.SGD([p], lr=0.1)  # noqa: E731
    for quorum in ("few", 0, hvd.size() + 1, True, 1.5):
        raises(ValueError, "quorum=", lambda quorum=quorum: hvd.Eager(sgd(), quorum=quorum))
    raises(ValueError, "resync=", lambda: hvd.Eager(sgd(), resync=-1))
    raises(ValueError, "resync=", lambda: hvd.GroupAverage(sgd(), resync=1.5))
    raises(ValueError, "group=", lambda: hvd.GroupAverage(sgd(), group=1))
