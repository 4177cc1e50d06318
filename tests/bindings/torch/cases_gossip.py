"""Gossip on any graph equals W x; compression, pairs and threshold sharing keep invariants."""

import random
import time

import numpy as np
import relaxed_reference as reference
import torch
from cases_relaxed import flat_of, gradient, parameters, raises, same_bits, start_weights, take, train
from cases_shared_weights import in_float32
from torch import nn

import ringcomm
import ringcomm.torch as hvd
from ringcomm._src.decentralized.topology import topologies, topology
from ringcomm._src.named import runtime


def case_rounds():
    size = hvd.size()
    for graph in topologies():
        if graph.name not in ringcomm._src.decentralized.topology.BUILT_IN:
            continue
        matrices = [graph.matrix(size, t) for t in range(graph.period(size))]
        for options in (
            {},
            {"every": 2},
            {"order": "combine_while_adapt"},
            {"resync": 3},
            {"resync": 4, "order": "combine_while_adapt"},
        ):
            make = lambda o, graph=graph, options=options: hvd.Gossip(o, topology=graph.name, **options)  # noqa: E731
            weights, _ = train(make, 7)
            how = {"every": options.get("every", 1), "resync": options.get("resync", 0), "ahead": "order" in options}
            x = reference.gossip(start_weights(), gradient, matrices, 7, lr=0.1, **how)
            np.testing.assert_allclose(flat_of(weights), x.mean(axis=0), rtol=0, atol=1e-12, err_msg=graph.name)
            same_bits(weights)


def case_replicas_are_those_of_the_formula():
    """Replicas equal the formula before they are averaged at the end."""
    size, graph = hvd.size(), topology("ring")
    weights = parameters()
    optimizer = hvd.Gossip(torch.optim.SGD(weights, lr=0.1), topology="ring")
    for step in range(5):
        take(optimizer, weights, step)
    x = reference.gossip(start_weights(), gradient, [graph.matrix(size)], 5, every=1, lr=0.1)
    np.testing.assert_allclose(flat_of(weights), x[hvd.rank()], rtol=0, atol=1e-12)
    with optimizer.global_weights():
        np.testing.assert_allclose(flat_of(weights), x.mean(axis=0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(flat_of(weights), x[hvd.rank()], rtol=0, atol=1e-12)
    optimizer.finish()


def on_one_host():
    return hvd.size() == hvd.local_size()


def case_uneven_steps():
    for options in (
        {},
        {"topology": "ring", "order": "combine_while_adapt"},
        {"topology": "star", "resync": 3},
        {"mode": "async"},
        {"topology": "torus", "mode": "async"},
    ):
        if "async" in options.values() and not on_one_host():
            continue
        make = lambda o, options=options: hvd.Gossip(o, **options)  # noqa: E731
        weights, optimizer = train(make, 6 + 9 * hvd.rank())
        same_bits(weights)
        assert np.abs(flat_of(weights)).max() < 10, options
        assert optimizer.updates == sum(6 + 9 * rank for rank in range(hvd.size()))


def case_compressed():
    """With few changed elements the encoding is lossless; gamma 1 then equals plain gossip.

    Lossy encodings converge to the same point.
    """
    runs = []
    for options in ({}, {"compression": hvd.Compression.topk(0.2), "gamma": 1.0}):
        p = nn.Parameter(torch.zeros(40))
        optimizer = hvd.Gossip(torch.optim.SGD([p], lr=0.5), topology="ring", **options)
        p.grad = torch.zeros(40)
        p.grad[3] = 2.0 * hvd.rank()
        for _ in range(4):
            optimizer.step()
        runs.append(p.detach().clone())
        optimizer.finish()
    exact = hvd.size() in (1, 2)
    torch.testing.assert_close(*runs, rtol=0, atol=1e-6 if exact else 0.1)
    for compression in (hvd.Compression.int8, hvd.Compression.topk(0.3), hvd.Compression.onebit):
        make = lambda o, compression=compression: hvd.Gossip(o, topology="ring", compression=compression)  # noqa: E731
        weights, optimizer = train(make, 30, dtype=torch.float32)
        same_bits(weights)
        assert np.abs(flat_of(weights)).max() < 3
        if hvd.size() > 1:
            assert optimizer.stats()["distance"] < 1.0


def case_pairs_keep_the_sum():
    """Without gradients, averaging pairs moves the ranks' values, but keeps their mean."""
    if not on_one_host():
        sgd = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1)
        raises(TypeError, "share no memory", lambda: hvd.Gossip(sgd, mode="async"))
        return
    p = nn.Parameter(torch.zeros(9000, dtype=torch.float64))
    optimizer = hvd.Gossip(torch.optim.SGD([p], lr=1.0), mode="async")
    p.grad = torch.full((9000,), -float(hvd.rank()), dtype=torch.float64)
    optimizer.step()
    p.grad = torch.zeros_like(p)
    for _ in range(20):
        optimizer.step()
    optimizer.finish()
    np.testing.assert_allclose(flat_of([p]), (hvd.size() - 1) / 2, atol=1e-9)
    same_bits([p])


def case_replay_of_pairs():
    """Recomputes an asynchronous run bit for bit from the log of which ranks met at which versions."""
    if not on_one_host():
        return
    weights = parameters(torch.float32)
    optimizer = hvd.Gossip(torch.optim.SGD(weights, lr=0.125), topology="complete", mode="async")
    optimizer._method.log = []
    draw = random.Random(hvd.rank())
    for step in range(25):
        time.sleep(draw.random() * 0.001)
        take(optimizer, weights, step)
    optimizer.finish()
    logs = hvd.allgather_object(optimizer._method.log[:26])  # the method checks once more after that
    start = start_weights().astype(np.float32)
    again = reference.pairs_replayed(start, in_float32, 0.125, logs)
    assert np.array_equal(again, flat_of(weights).astype(np.float32))


def case_threshold_sharing():
    """The sum of sent values and residuals equals the sum of the changes of all optimizers."""
    size = hvd.size()
    p = nn.Parameter(torch.zeros(5000, dtype=torch.float64))
    optimizer = hvd.GradientSharing(torch.optim.SGD([p], lr=0.1), threshold=0.02, adaptive=False)
    draw = torch.Generator().manual_seed(hvd.rank())
    changed = torch.zeros(5000, dtype=torch.float64)
    for step in range(4):  # residuals are clipped after that
        spread = 0.05 if step % 2 else 1.0  # few elements exceed the threshold, or many
        p.grad = torch.randn(5000, generator=draw, dtype=torch.float64) * spread
        changed += 0.1 * p.grad / size
        optimizer.step()
        same_bits([p])
    held = torch.from_numpy(optimizer._method.residual.copy())
    total = hvd.allreduce(changed, op=hvd.Sum, name="sharing.changed")
    left = hvd.allreduce(held, op=hvd.Sum, name="sharing.held")
    torch.testing.assert_close(-p.detach(), total - left, rtol=0, atol=1e-7)
    optimizer.finish()


def case_threshold_sharing_learns():
    torch.manual_seed(hvd.rank())
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(64, 6)
    losses = []
    with hvd.GradientSharing(torch.optim.SGD(net.parameters(), lr=0.3)) as optimizer:
        for _ in range(80 + 20 * hvd.rank()):
            optimizer.zero_grad()
            loss = (net(x) - x[:, :1]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    same_bits(list(net.parameters()))


def case_refused_by_gossip():
    """Refused optimizers leave no handler that would warn of unsent steps at the end."""
    at_end = list(runtime.session().at_end)
    p = nn.Parameter(torch.ones(3))
    sgd = lambda: torch.optim.SGD([p], lr=0.1)  # noqa: E731
    raises(ValueError, "topology=", lambda: hvd.Gossip(sgd(), topology="mesh"))
    raises(ValueError, "mode=", lambda: hvd.Gossip(sgd(), mode="late"))
    ringcomm.register_topology("funnel", lambda r, p, t: [0, (r + 1) % p] if r else [1 % p])
    if hvd.size() > 2:
        raises(ValueError, "would not preserve the mean", lambda: hvd.Gossip(sgd(), topology="funnel"))
        raises(ValueError, "constant neighbours", lambda: hvd.Gossip(sgd(), compression=hvd.Compression.int8))
    raises(ValueError, "order=", lambda: hvd.Gossip(sgd(), order="any"))
    raises(ValueError, "no rounds", lambda: hvd.Gossip(sgd(), mode="async", resync=3))
    raises(ValueError, "compression=", lambda: hvd.Gossip(sgd(), compression="int8"))
    raises(ValueError, "threshold=", lambda: hvd.GradientSharing(sgd(), threshold=0))
    raises(ValueError, "built in", lambda: ringcomm.register_topology("ring", lambda r, p, t: []))
    assert runtime.session().at_end == at_end
