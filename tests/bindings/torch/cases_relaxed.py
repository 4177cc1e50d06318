"""LocalSGD, DiLoCo, EASGD and delayed gradients: references, ends, states, refusals."""

import copy
import itertools
import logging
import time

import numpy as np
import relaxed_reference as reference
import torch
from torch import nn

import ringcomm.torch as hvd

SHAPES = ((3, 5), (7,), (2, 2, 2))
COUNT = sum(int(np.prod(shape)) for shape in SHAPES)


def target(rank, step):
    return np.random.default_rng(1000 * rank + step).standard_normal(COUNT)


def gradient(rank, step, x):
    """Returns the gradient of a quadratic whose minimum differs by rank and step."""
    return (x - target(rank, step)) * 0.5


def start_weights():
    return np.random.default_rng(0).standard_normal(COUNT)


def cut_up(flat):
    parts = np.split(flat, np.cumsum([int(np.prod(shape)) for shape in SHAPES])[:-1])
    return [torch.from_numpy(part.reshape(shape).copy()) for part, shape in zip(parts, SHAPES, strict=True)]


def parameters(dtype=torch.float64):
    """Returns parameters that differ by rank; the optimizer must use the first rank's."""
    flat = start_weights() + hvd.rank()
    return [nn.Parameter(part.to(dtype)) for part in cut_up(flat)]


def flat_of(tensors):
    return torch.cat([one.detach().double().flatten() for one in tensors]).numpy()


def take(optimizer, weights, step):
    for p, g in zip(weights, cut_up(gradient(hvd.rank(), step, flat_of(weights))), strict=True):
        p.grad = g.to(p.dtype)
    optimizer.step()


def train(make, steps, lr=0.1, momentum=0.0, dtype=torch.float64):
    weights = parameters(dtype)
    optimizer = make(torch.optim.SGD(weights, lr=lr, momentum=momentum))
    with optimizer:
        for step in range(steps):
            take(optimizer, weights, step)
    return weights, optimizer


def agree(weights, expected, tolerance=1e-12):
    mine = flat_of(weights)
    np.testing.assert_allclose(mine, expected, rtol=0, atol=tolerance)
    same_bits(weights)


def same_bits(weights):
    everybody = hvd.allgather(torch.from_numpy(flat_of(weights))[None], name="relaxed.bits")
    assert torch.equal(everybody, everybody[:1].expand_as(everybody))


def case_local_sgd():
    p = hvd.size()
    for options in (
        {"every": 1},
        {"every": 4},
        {"every": 4, "momentum": "average"},
        {"every": 4, "momentum": "reset"},
        {"every": 3, "start": 5},
        {"every": 3, "overlap": True},
    ):
        weights, _ = train(lambda o, options=options: hvd.LocalSGD(o, **options), 14, momentum=0.5)
        how = {"state": options.get("momentum", "local"), "every": options["every"]}
        how |= {key: options[key] for key in ("start", "overlap") if key in options}
        _, model = reference.local_sgd(start_weights(), gradient, [14] * p, lr=0.1, momentum=0.5, **how)
        agree(weights, model)


def case_local_sgd_with_uneven_data():
    steps = [9 + 5 * rank for rank in range(hvd.size())]
    weights, optimizer = train(lambda o: hvd.LocalSGD(o, every=4), steps[hvd.rank()])
    _, model = reference.local_sgd(start_weights(), gradient, steps, every=4, lr=0.1)
    agree(weights, model)
    assert optimizer.updates == sum(steps)


def case_hierarchical():
    """All ranks are on one host here: there is one level, and every round has all ranks."""
    plain, _ = train(lambda o: hvd.LocalSGD(o, every=2), 12)
    levels, optimizer = train(lambda o: hvd.LocalSGD(o, groups={2: "host", 6: "all"}), 12)
    if hvd.size() == hvd.local_size():
        assert np.array_equal(flat_of(plain), flat_of(levels))
    same_bits(levels)
    assert optimizer.stats()["exchanges"] >= 4


def case_groups_of_ranks():
    """Pairs average in every second step, all ranks in every fourth."""
    size, rank = hvd.size(), hvd.rank()
    if size < 3:
        return
    halves = [list(range(0, size, 2)), list(range(1, size, 2))]
    made = [hvd.add_process_set(one) for one in halves]
    mine = next(one for one in made if rank in one.ranks)
    weights, _ = train(lambda o: hvd.LocalSGD(o, groups={2: mine, 4: "all"}), 10 + rank)
    same_bits(weights)
    for one in made:
        hvd.remove_process_set(one)


def case_by_time():
    """A rank may make a tenth of the other ranks' steps; all ranks meet in the same rounds."""
    weights = parameters()
    optimizer = hvd.LocalSGD(torch.optim.SGD(weights, lr=0.1), every="20ms")
    steps = 5 if hvd.rank() == 0 else 50
    with optimizer:
        for step in range(steps):
            take(optimizer, weights, step)
            time.sleep(0.02 if hvd.rank() == 0 else 0.002)
    same_bits(weights)
    assert optimizer.updates == 5 + 50 * (hvd.size() - 1)
    rounds = hvd.allgather(torch.tensor([optimizer.stats()["exchanges"]]), name="relaxed.rounds").tolist()
    assert len(set(rounds)) == 1


def case_diloco():
    p = hvd.size()
    for options in (
        {"every": 4},
        {"every": 4, "outer_lr": 1.0, "outer_momentum": 0.5, "nesterov": False},
        {"every": 6, "fragments": 3},
        {"every": 6, "fragments": 2, "delay": 2},
        {"every": 5, "fragments": 2, "delay": 1, "blend": 0.0},
    ):
        outer = {"outer_lr": 0.7, "outer_momentum": 0.9, "nesterov": True} | options
        fragments = outer.pop("fragments", 1)
        weights, _ = train(lambda o, options=options: hvd.DiLoCo(o, **options), 15)
        bounds = {1: [0, 30], 2: [0, 15, 30], 3: [0, 15, 22, 30]}[fragments]
        cuts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        _, model = reference.diloco(start_weights(), gradient, p, 15, lr=0.1, cuts=cuts, **outer)
        agree(weights, model)


def case_diloco_compressed():
    """On one host nothing is compressed; else results are finite, identical on all ranks."""
    for wire in (hvd.Compression.int8, hvd.Compression.int4, "bfloat16"):
        make = lambda o, wire=wire: hvd.DiLoCo(o, every=3, fragments=2, wire=wire)  # noqa: E731
        weights, _ = train(make, 12, dtype=torch.float32)
        same_bits(weights)
        assert np.isfinite(flat_of(weights)).all()


def case_easgd():
    for overlap in (False, True):
        weights, _ = train(lambda o, overlap=overlap: hvd.EASGD(o, every=3, overlap=overlap), 13)
        _, centre = reference.easgd(
            start_weights(), gradient, hvd.size(), 13, every=3, lr=0.1, beta=0.9, overlap=overlap
        )
        agree(weights, centre)


def case_late_gradients():
    for steps in ([11] * hvd.size(), [6 + 3 * rank for rank in range(hvd.size())]):
        weights = [nn.Parameter(part) for part in cut_up(start_weights())]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.1, momentum=0.5), delay=1)
        with optimizer:
            for step in range(steps[hvd.rank()]):
                take(optimizer, weights, step)
        agree(weights, reference.late(start_weights(), gradient, steps, lr=0.1, momentum=0.5))


def case_late_gradients_that_only_some_have():
    used, unused, never = (nn.Parameter(torch.ones(3)) for _ in range(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([used, unused, never], lr=1.0, weight_decay=0.1), delay=1)
    with optimizer:
        for _ in range(3):
            optimizer.zero_grad()
            loss = used.sum() + (unused.sum() if hvd.rank() == 0 else 0)
            loss.backward()
            optimizer.step()
    assert torch.equal(never, torch.ones(3))
    assert (unused < 1).all()
    same_bits([used, unused])


def case_global_weights():
    weights = parameters()
    optimizer = hvd.LocalSGD(torch.optim.SGD(weights, lr=0.1), every=100)
    for step in range(3):
        take(optimizer, weights, step)
    before = flat_of(weights)
    rows = hvd.allgather(torch.from_numpy(before)[None], name="relaxed.rows").numpy()
    with optimizer.global_weights():
        np.testing.assert_allclose(flat_of(weights), rows.mean(axis=0), atol=1e-14)
        same_bits(weights)
    assert np.array_equal(flat_of(weights), before)
    optimizer.exchange_now()
    same_bits(weights)
    optimizer.finish()
    optimizer.finish()


def case_global_weights_beside_one_that_has_finished():
    weights = parameters()
    optimizer = hvd.LocalSGD(torch.optim.SGD(weights, lr=0.1), every=2)
    if hvd.rank() > 0 or hvd.size() == 1:
        for step in range(8):
            take(optimizer, weights, step)
            if step == 5:
                with optimizer.global_weights():
                    pass
    optimizer.finish()
    same_bits(weights)


def case_state():
    """Continues bit for bit as if there had been no interruption."""
    for make in (
        lambda o: hvd.LocalSGD(o, every=4, momentum="average"),
        lambda o: hvd.DiLoCo(o, every=6, fragments=3),
        lambda o: hvd.EASGD(o, every=3, overlap=False),
        lambda o: hvd.DistributedOptimizer(o, delay=1),
    ):
        whole, _ = train(make, 12, momentum=0.5)
        first = parameters()
        optimizer = make(torch.optim.SGD(first, lr=0.1, momentum=0.5))
        late = hasattr(optimizer, "skip_synchronize")
        if late:
            hvd.broadcast_parameters(dict(enumerate(first)), root_rank=0)
            whole = [nn.Parameter(part) for part in cut_up(start_weights())]
            with make(torch.optim.SGD(whole, lr=0.1, momentum=0.5)) as reference_run:
                for step in range(12):
                    take(reference_run, whole, step)
        for step in range(7):
            take(optimizer, first, step)
        saved = copy.deepcopy((optimizer.state_dict(), [p.detach() for p in first]))
        optimizer.finish()
        second = [nn.Parameter(p.clone()) for p in saved[1]]
        optimizer = make(torch.optim.SGD(second, lr=0.1, momentum=0.5))
        with torch.no_grad():
            for p, value in zip(second, saved[1], strict=True):
                p.copy_(value)
        optimizer.load_state_dict(saved[0])
        for step in range(7, 12):
            take(optimizer, second, step)
        optimizer.finish()
        assert np.array_equal(flat_of(second), flat_of(whole)), make


def case_statistics_and_dtypes():
    torch.manual_seed(hvd.rank())
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    net[0].to(torch.bfloat16)
    optimizer = hvd.LocalSGD(torch.optim.AdamW(net.parameters(), lr=0.01), every=3, model=net)
    with optimizer:
        for _ in range(7):
            optimizer.zero_grad()
            x = net[0](torch.randn(8, 4, dtype=torch.bfloat16)).float()
            net[2](net[1](x)).square().mean().backward()
            optimizer.step()
    same_bits([*net.parameters(), net[1].running_mean, net[1].running_var])


def case_complex_and_strided():
    p = nn.Parameter(torch.full((2, 3), 1 + 2j * hvd.rank(), dtype=torch.complex64))
    q = nn.Parameter(torch.full((2, 3, 4, 4), float(hvd.rank())).to(memory_format=torch.channels_last))
    optimizer = hvd.LocalSGD(torch.optim.SGD([p, q], lr=0.1), every=1)
    assert torch.equal(p, torch.ones(2, 3, dtype=torch.complex64)) and q.stride()[1] == 1
    with torch.no_grad():
        p += hvd.rank()
        q += hvd.rank()
    p.grad, q.grad = torch.zeros_like(p), torch.zeros_like(q)
    optimizer.step()
    middle = (hvd.size() - 1) / 2
    assert torch.allclose(p, torch.full((2, 3), 1 + middle + 0j)) and torch.allclose(q, torch.full_like(q, middle))
    optimizer.finish()


def case_scaler_and_scheduler():
    """An overflow on one rank skips only that rank's step, and no exchange."""
    weights = [nn.Parameter(torch.ones(4))]
    optimizer = hvd.LocalSGD(torch.optim.SGD(weights, lr=0.5), every=2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(4):
        optimizer.zero_grad()
        factor = float("inf") if step == 1 and hvd.rank() == 0 else 1.0
        scaler.scale((weights[0] * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
    optimizer.finish()
    assert optimizer.stats()["steps"] == 4
    same_bits(weights)
    expected = 1 - 0.5 * (2 - 1 / hvd.size()) - 0.25 * 2
    np.testing.assert_allclose(flat_of(weights), expected, rtol=1e-6)


def case_closure():
    weights = [nn.Parameter(torch.ones(4))]
    for make in (lambda o: hvd.LocalSGD(o, every=2, start=1), lambda o: hvd.DistributedOptimizer(o, delay=1)):
        optimizer = make(torch.optim.SGD(weights, lr=0.1))

        def closure(optimizer=optimizer):
            optimizer.zero_grad()
            loss = weights[0].sum()
            loss.backward()
            return loss

        assert all(optimizer.step(closure).item() != 0 for _ in range(3))
        optimizer.finish()
    same_bits(weights)


def raises(kind, text, act):
    try:
        act()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"nothing was raised: {text}")


def case_refused():
    p = nn.Parameter(torch.ones(3))
    sgd = lambda: torch.optim.SGD([p], lr=0.1)  # noqa: E731
    raises(ValueError, "every=0", lambda: hvd.LocalSGD(sgd(), every=0))
    raises(ValueError, "200ms", lambda: hvd.LocalSGD(sgd(), every="5 hours"))
    raises(ValueError, "momentum=", lambda: hvd.LocalSGD(sgd(), momentum="none"))
    raises(ValueError, "divide", lambda: hvd.LocalSGD(sgd(), groups={4: "host", 6: "all"}))
    raises(ValueError, "fragments=2", lambda: hvd.DiLoCo(sgd(), fragments=2))
    raises(ValueError, "delay=9", lambda: hvd.DiLoCo(sgd(), every=9, delay=9))
    raises(ValueError, "beta=2", lambda: hvd.EASGD(sgd(), beta=2))
    raises(ValueError, "wire=", lambda: hvd.LocalSGD(sgd(), wire="int7"))
    raises(ValueError, "LBFGS", lambda: hvd.LocalSGD(torch.optim.LBFGS([p])))
    raises(ValueError, "algorithm", lambda: hvd.DistributedOptimizer(sgd(), delay=1, algorithm="ring"))
    wrapped = hvd.LocalSGD(sgd())
    raises(ValueError, "already", lambda: hvd.DiLoCo(wrapped))
    raises(TypeError, "before it is wrapped", lambda: wrapped.add_param_group({"params": [nn.Parameter(p.clone())]}))
    wrapped.finish()


def case_ranks_that_differ():
    if hvd.size() == 1:
        return
    p = nn.Parameter(torch.ones(3 + hvd.rank() // (hvd.size() - 1)))
    raises(hvd_error(), "LocalSGD: rank 0", lambda: hvd.LocalSGD(torch.optim.SGD([p], lr=0.1)))
    q = nn.Parameter(torch.ones(3))
    every = 4 + (hvd.rank() == 1)
    raises(hvd_error(), "every 4", lambda: hvd.LocalSGD(torch.optim.SGD([q], lr=0.1), every=every))


def hvd_error():
    import ringcomm

    return ringcomm.MismatchError


def case_not_finished():
    """A missing finish() is reported at the end, and no rank hangs."""
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("ringcomm").addHandler(handler)
    optimizer = hvd.LocalSGD(torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1))
    optimizer.zero_grad()
    optimizer.step()
    hvd.barrier()
    hvd.shutdown()
    logging.getLogger("ringcomm").removeHandler(handler)
    hvd.init()
    assert any("finish()" in record.getMessage() for record in records)
