"""Shared weights: ParameterServer, Hogwild and asynchronous EASGD, against one process and against their references."""

import functools
import random
import time
import warnings

import numpy as np
import relaxed_reference as reference
import torch
from cases_relaxed import agree, flat_of, gradient, parameters, raises, same_bits, start_weights, take, train
from torch import nn

import ringcomm
import ringcomm.torch as hvd

RULES = [
    functools.partial(torch.optim.SGD, lr=0.05),
    functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.1),
    functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, maximize=True),
    functools.partial(torch.optim.Adam, lr=0.01, weight_decay=0.1),
    functools.partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1, betas=(0.8, 0.99)),
    functools.partial(torch.optim.Adagrad, lr=0.1, lr_decay=0.01, weight_decay=0.1),
    functools.partial(torch.optim.RMSprop, lr=0.01, alpha=0.9),
    functools.partial(torch.optim.RMSprop, lr=0.01, momentum=0.5, weight_decay=0.1),
]


def quietly(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def case_rules_are_torchs():
    """Ranks that all give the same gradients, synchronously: as one rank would have come out."""
    for make in RULES:
        for dtype, tolerance in ((torch.float32, 2e-6), (torch.float64, 1e-14)):
            alone, shared = (nn.Parameter(torch.linspace(-1, 1, 5000).to(dtype)) for _ in range(2))
            plain = make([alone])
            optimizer = hvd.ParameterServer(make([shared]), consistency=hvd.Sync())
            scheduler = [torch.optim.lr_scheduler.ExponentialLR(one, 0.9) for one in (plain, optimizer)]
            for step in range(5):
                generator = torch.Generator().manual_seed(step)
                alone.grad = torch.randn(5000, generator=generator, dtype=dtype)
                shared.grad = alone.grad.clone()
                plain.step()
                optimizer.step()
                for one in scheduler:
                    one.step()
            optimizer.finish()
            torch.testing.assert_close(shared, alone, rtol=tolerance, atol=tolerance)


def case_groups_of_parameters():
    """Each has options of its own."""
    torch.manual_seed(0)
    values = [torch.randn(4, 3), torch.randn(6000), torch.randn(2)]
    nets = [[nn.Parameter(one.clone()) for one in values] for _ in range(2)]
    made = []
    for net in nets:
        groups = [{"params": net[:1], "lr": 0.5}, {"params": net[1:], "weight_decay": 0.2, "momentum": 0.3}]
        made.append(torch.optim.SGD(groups, lr=0.1))
    made[1] = hvd.ParameterServer(made[1], consistency=hvd.Sync())
    for _ in range(3):
        for net, optimizer in zip(nets, made, strict=True):
            for p in net:
                p.grad = torch.ones_like(p)
            optimizer.step()
    made[1].finish()
    for one, other in zip(*nets, strict=True):
        torch.testing.assert_close(other, one)


def case_synchronous():
    for consistency in (hvd.Sync(), hvd.Backup(hvd.size()), hvd.SSP(0) if hvd.size() == 1 else hvd.Sync()):
        make = lambda o, consistency=consistency: hvd.ParameterServer(o, consistency=consistency)  # noqa: E731
        weights, optimizer = quietly(lambda make=make: train(make, 9, momentum=0.5))
        agree(weights, reference.synchronous(start_weights(), gradient, hvd.size(), 9, 0.1, 0.5))
        assert optimizer.updates == 9 and optimizer.stats()["dropped"] == 0


def case_uneven_steps_of_every_consistency():
    size = hvd.size()
    steps = [7 + 4 * rank for rank in range(size)]
    for consistency in (hvd.Async(), hvd.SSP(1), hvd.SoftSync(size), hvd.Sync(), hvd.Backup(max(1, size - 1))):
        make = lambda o, consistency=consistency: hvd.ParameterServer(o, consistency=consistency)  # noqa: E731
        weights, optimizer = train(make, steps[hvd.rank()])
        same_bits(weights)
        if consistency.name == "Async()" or consistency.staleness is not None:
            assert optimizer.updates == sum(steps)
        elif consistency.name == "Sync()":
            assert optimizer.updates == max(steps)


def case_bounded_staleness():
    """Nobody is ever more than so many steps ahead, whatever each step takes; SSP(0) is in step."""
    for bound in (0, 2):
        p = nn.Parameter(torch.zeros(3))
        optimizer = hvd.ParameterServer(torch.optim.SGD([p], lr=0.1), consistency=hvd.SSP(bound))
        clocks = optimizer._method.store.workers.clocks
        draw = random.Random(hvd.rank())
        with optimizer:
            for step in range(25):
                others = [clocks.of(rank) for rank in range(hvd.size())]
                assert all(one is None or one >= step - bound for one in others), (step, others)
                p.grad = torch.ones(3)
                time.sleep(draw.random() * 0.002)
                optimizer.step()


def case_replay():
    """An asynchronous run is computed anew from what each push has read and made, bit for bit."""
    everything = np.float32
    x = {"w": start_weights().astype(everything)}
    rule = ringcomm.updates.SGD(0.05, momentum=0.25)
    with ringcomm.ParameterStore(x, rule) as store:
        (records,) = store.record()
        draw = random.Random(hvd.rank())
        for step in range(40):
            time.sleep(draw.random() * 0.001)
            store.push_pull({"w": gradient(hvd.rank(), step, x["w"]).astype(everything)})
    by_step = len(records) // 40
    log = [(records[i][0], records[i][2], hvd.rank(), i // by_step, records[i][1]) for i in range(len(records))]
    everybody = [one for rows in hvd.allgather_object(log) for one in rows]
    start = start_weights().astype(everything)
    # All of it is one shard's: the others are empty.
    ours = [(version, rank, step, read) for shard, version, rank, step, read in everybody if shard == owner_of(store)]
    assert len(ours) == 40 * hvd.size()
    computed = lambda rank, step, at: gradient(rank, step, at).astype(everything)  # noqa: E731
    again = reference.replayed(start, computed, ours, 0.05, 0.25)
    assert np.array_equal(again, x["w"])


def owner_of(store):
    """The shard that holds something: so few weights are one stripe."""
    return holder(store._store._shards[0])


def holder(shards):
    return next(number for number, _, part in shards if part.stop > part.start)


def case_replay_of_asynchronous_easgd():
    """Likewise, from the order in which ranks came to the centre. The rate is a power of two: products are exact."""
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
    """As `take` has it."""
    return gradient(rank, step, x.astype(np.float64)).astype(np.float32)


def case_staleness_scales():
    p = nn.Parameter(torch.zeros(8))
    optimizer = hvd.ParameterServer(torch.optim.SGD([p], lr=1.0), scale="inverse")
    with optimizer:
        for _ in range(10):
            p.grad = torch.ones(8)
            optimizer.step()
    same_bits([p])
    least = 10 * hvd.size() / (2 * hvd.size())
    assert -10 * hvd.size() <= float(p.detach()[0]) <= -least
    for scale in (lambda stale: 0.5, "inverse"):
        q = nn.Parameter(torch.zeros(8))
        with hvd.ParameterServer(torch.optim.SGD([q], lr=1.0), scale=scale, compensate=0.04) as optimizer:
            q.grad = torch.ones(8)
            optimizer.step()
        assert float(q.detach()[0]) < 0


def case_overflow_leaves_out_one_rank():
    for consistency in (hvd.Async(), hvd.Sync()):
        p = nn.Parameter(torch.ones(4))
        optimizer = hvd.ParameterServer(torch.optim.SGD([p], lr=1.0), consistency=consistency)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with optimizer:
            optimizer.zero_grad()
            factor = float("inf") if hvd.rank() == 0 else 1.0
            scaler.scale((p * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        pushes = hvd.size() - 1
        expected = 1 - (pushes if consistency.gather == 0 else pushes / hvd.size())
        np.testing.assert_allclose(flat_of([p]), expected, atol=1e-6)


def case_state_of_the_store():
    def run(steps, state=None):
        weights = parameters()
        optimizer = hvd.ParameterServer(torch.optim.Adam(weights, lr=0.05), consistency=hvd.Sync())
        if state is not None:
            optimizer.load_state_dict(state)
        for step in steps:
            take(optimizer, weights, step)
        saved = optimizer.state_dict()
        optimizer.finish()
        return weights, saved

    whole, _ = run(range(8))
    _, state = run(range(5))
    second, _ = run(range(5, 8), state)
    assert np.array_equal(flat_of(second), flat_of(whole))


def case_servers():
    for servers in (1, [hvd.size() - 1], "all"):
        make = lambda o, servers=servers: hvd.ParameterServer(o, servers=servers, consistency=hvd.Sync())  # noqa: E731
        weights, _ = train(make, 4)
        agree(weights, reference.synchronous(start_weights(), gradient, hvd.size(), 4, 0.1, 0.0))


def case_hogwild():
    """Of adding ones, locked loses none, and racy few."""
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
        p.data.add_(hvd.rank())  # each has its own again
        assert float(p.detach().max()) <= 50 * hvd.size() + hvd.rank()


def case_hogwild_trains_a_model():
    torch.manual_seed(hvd.rank())
    net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))
    with hvd.Hogwild(torch.optim.Adam(net.parameters(), lr=0.01), model=net) as optimizer:
        losses = []
        for _ in range(60):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            loss = (net(x) - x[:, :1]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    same_bits([*net.parameters(), net[1].running_mean])


def case_easgd_without_rounds():
    """Replicas and centre keep their sum but for the gradients; in turns it is computed anew."""
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


def case_looking_at_the_store():
    for make in (hvd.ParameterServer, lambda o: hvd.EASGD(o, mode="async", every=2)):
        weights = parameters()
        optimizer = make(torch.optim.SGD(weights, lr=0.1))
        for step in range(4):
            take(optimizer, weights, step)
            before = flat_of(weights)
            if hvd.rank() == 0:  # alone
                with optimizer.global_weights():
                    assert np.isfinite(flat_of(weights)).all()
                assert np.array_equal(flat_of(weights), before)
        optimizer.finish()
        same_bits(weights)


def case_numpy_store():
    arrays = {"w": np.full((3, 4), float(hvd.rank())), "b": np.zeros(5)}
    with ringcomm.ParameterStore(arrays, ringcomm.updates.SGD(0.5), ringcomm.Sync()) as store:
        assert (arrays["w"] == 0).all()
        store.push({"w": np.ones((3, 4))})
        store.pull()
        store.push_pull({"b": np.ones(5)}, lr=1.0)
        raises(ValueError, "no weights named c", lambda: store.push_pull({"c": 1}))
    np.testing.assert_allclose(arrays["w"], -0.5)
    np.testing.assert_allclose(arrays["b"], -1.0)
    assert store.updates == 2


def case_refused_by_the_store():
    p = nn.Parameter(torch.ones(3))
    sgd = lambda **options: torch.optim.SGD([p], lr=0.1, **options)  # noqa: E731
    raises(ValueError, "Adadelta", lambda: hvd.ParameterServer(torch.optim.Adadelta([p])))
    raises(ValueError, "amsgrad", lambda: hvd.ParameterServer(torch.optim.Adam([p], amsgrad=True)))
    raises(ValueError, "centered", lambda: hvd.ParameterServer(torch.optim.RMSprop([p], centered=True)))
    raises(ValueError, "servers=", lambda: hvd.ParameterServer(sgd(), servers=99))
    raises(ValueError, "workers only", lambda: hvd.ParameterServer(sgd(), consistency=hvd.SoftSync(99)))
    raises(ValueError, "scale=", lambda: hvd.ParameterServer(sgd(), scale="half"))
    raises(ValueError, "compensate", lambda: hvd.ParameterServer(sgd(), hvd.Sync(), compensate=-1))
    raises(ValueError, "update=", lambda: hvd.Hogwild(sgd(), update="wild"))
    raises(ValueError, "mode=", lambda: hvd.EASGD(sgd(), mode="none"))
    raises(ValueError, "on_loss=", lambda: hvd.Hogwild(sgd(), on_loss="retry"))
    if hvd.size() > 2 and hvd.rank() == 0:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer = hvd.ParameterServer(sgd(momentum=0.9))
        assert any("momentum" in str(one.message) for one in caught)
    else:
        optimizer = quietly(lambda: hvd.ParameterServer(sgd(momentum=0.9)))
    optimizer.finish()
