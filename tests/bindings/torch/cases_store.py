"""ParameterServer and ParameterStore against references, with and without shared memory."""

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
    """If all ranks push the same gradients synchronously, the result equals that of one rank."""
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
    """Each group has separate options."""
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
    """No rank is more than the bound ahead, whatever a step takes; SSP(0) keeps ranks in step."""
    for bound in (0, 2):
        p = nn.Parameter(torch.zeros(3))
        optimizer = hvd.ParameterServer(torch.optim.SGD([p], lr=0.1), consistency=hvd.SSP(bound))
        clocks = optimizer._method.workers.clocks_at(hvd.rank())
        draw = random.Random(hvd.rank())
        with optimizer:
            for step in range(25):
                others = [clocks.of(rank) for rank in range(hvd.size())]
                assert all(one is None or one >= step - bound for one in others), (step, others)
                p.grad = torch.ones(3)
                time.sleep(draw.random() * 0.002)
                optimizer.step()


def case_replay():
    """Recomputes an asynchronous run bit for bit from what each push read and wrote."""
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
    # One shard holds all weights; the other shards are empty.
    ours = [(version, rank, step, read) for shard, version, rank, step, read in everybody if shard == owner_of(store)]
    assert len(ours) == 40 * hvd.size()
    computed = lambda rank, step, at: gradient(rank, step, at).astype(everything)  # noqa: E731
    again = reference.replayed(start, computed, ours, 0.05, 0.25)
    assert np.array_equal(again, x["w"])


def owner_of(store):
    """Returns the shard that holds the weights: they are few enough for one stripe."""
    return holder(store._method.shards[0])


def holder(shards):
    return next(number for number, _, part in shards if part.stop > part.start)


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


def case_looking_at_the_store():
    weights = parameters()
    optimizer = hvd.ParameterServer(torch.optim.SGD(weights, lr=0.1))
    for step in range(4):
        take(optimizer, weights, step)
        before = flat_of(weights)
        if hvd.rank() == 0:  # one rank computes alone
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
    raises(ValueError, "than the store has", lambda: hvd.ParameterServer(sgd(), consistency=hvd.SoftSync(99)))
    raises(ValueError, "scale=", lambda: hvd.ParameterServer(sgd(), scale="half"))
    raises(ValueError, "compensate", lambda: hvd.ParameterServer(sgd(), hvd.Sync(), compensate=-1))
    if hvd.size() > 2 and hvd.rank() == 0:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer = hvd.ParameterServer(sgd(momentum=0.9))
        assert any("momentum" in str(one.message) for one in caught)
    else:
        optimizer = quietly(lambda: hvd.ParameterServer(sgd(momentum=0.9)))
    optimizer.finish()


def case_dedicated_servers():
    """Some ranks only serve: synchronous steps use the gradients of the other ranks only."""
    size = hvd.size()
    for servers in ([0], [size - 1]) if size > 1 else ():
        weights = parameters()
        optimizer = hvd.ParameterServer(torch.optim.SGD(weights, lr=0.1), servers=servers, consistency=hvd.Sync())
        workers = [rank for rank in range(size) if rank not in servers]
        if hvd.rank() in servers:
            optimizer.serve()
        else:
            with optimizer:
                for step in range(5):
                    take(optimizer, weights, step)
        x = start_weights()
        for step in range(5):
            x -= 0.1 * np.mean([gradient(rank, step, x) for rank in workers], axis=0)
        agree(weights, x)


def case_any_optimizer_at_dedicated_servers():
    """Servers step in Python, as one process does with the mean of the workers' gradients."""
    size = hvd.size()
    for many in {1, size - 1} if size > 1 else ():
        workers = range(many, size)
        runs = []
        for make in (torch.optim.Adadelta, torch.optim.NAdam, functools.partial(torch.optim.Adam, amsgrad=True)):
            alone, weights = [parameters() for _ in range(2)]
            for p in alone:
                p.data -= hvd.rank()  # now equal to the first rank's
            plain = make(alone, lr=0.05)
            optimizer = quietly(
                lambda make=make, weights=weights, many=many: hvd.ParameterServer(
                    make(weights, lr=0.05), servers=many, consistency=hvd.Sync()
                )
            )
            if hvd.rank() < many:
                raises(ValueError, "serve", optimizer.step)
                optimizer.serve()
            else:
                with optimizer:
                    for step in range(6):
                        take(optimizer, weights, step)
            for step in range(6):
                x = flat_of(alone)
                mean, at = np.mean([gradient(rank, step, x) for rank in workers], axis=0), 0
                for p in alone:
                    p.grad = torch.from_numpy(mean[at : at + p.numel()].reshape(p.shape)).to(p.dtype)
                    at += p.numel()
                plain.step()
            agree(weights, flat_of(alone))
            runs.append(flat_of(weights))
        assert not np.allclose(runs[0], runs[1])


def case_any_optimizer_without_waiting():
    if hvd.size() == 1:
        return
    for consistency in (hvd.Async(), hvd.SSP(1), hvd.SoftSync(2), hvd.Backup(1)):
        p, q = nn.Parameter(torch.zeros(300)), nn.Parameter(torch.zeros(5000))
        optimizer = quietly(
            lambda c=consistency, p=p, q=q: hvd.ParameterServer(
                torch.optim.Rprop([{"params": [p]}, {"params": [q], "lr": 0.5}], lr=0.1), servers=1, consistency=c
            )
        )
        if hvd.rank() == 0:
            optimizer.serve()
        else:
            with optimizer:
                for _ in range(3 + hvd.rank()):
                    p.grad, q.grad = torch.ones_like(p), torch.ones_like(q)
                    optimizer.step()
        same_bits([p, q])
        assert float(p.detach().max()) < 0 and float(q.detach().max()) < float(p.detach().min())


def case_rows():
    """Only rows that a rank pushes change; a row that occurs twice gets the sum."""
    size, rank = hvd.size(), hvd.rank()
    for dtype in (np.float32, np.float64):
        arrays = {"bias": np.zeros(7, dtype), "table": np.zeros((3000, 9), dtype), "one": np.zeros(40, dtype)}
        with ringcomm.ParameterStore(arrays, ringcomm.updates.SGD(1.0)) as store:
            rows = store.rows("table")
            mine = np.array([[rank, 2900 + rank], [1500, rank]])
            rows.push(mine, -np.ones((2, 2, 9)))
            seen = rows.pull(mine)
            assert (seen[0, 0] == 2).all() and (seen[0, 1] == 1).all() and (seen[1, 1] == 2).all()
            assert rows.pull([]).shape == (0, 9)
            store.rows("one").push([3], [-1.0])
            raises(IndexError, "has 3000 rows", lambda rows=rows: rows.pull([3000]))
            raises(IndexError, "has 3000 rows", lambda rows=rows: rows.push([-1], np.zeros((1, 9))))
            raises(ValueError, "no weights named", lambda store=store: store.rows("x"))
        expected = np.zeros((3000, 9))
        expected[:size] = 2
        expected[2900 : 2900 + size] = 1
        expected[1500] = size
        np.testing.assert_array_equal(arrays["table"], expected)
        assert (arrays["bias"] == 0).all() and arrays["one"][3] == size and arrays["one"].sum() == size


def case_pushes_that_are_not_waited_for():
    """Several pushes are pending at the same time, and all of them take effect."""
    w = np.zeros(300_000, np.float32)
    with ringcomm.ParameterStore({"w": w}, ringcomm.updates.SGD(1.0)) as store:
        for _ in range(7):
            store.push({"w": -np.ones_like(w)})
        store.pull()
        assert w.min() >= 7
    assert (w == 7 * hvd.size()).all()
