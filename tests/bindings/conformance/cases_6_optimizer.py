"""DistributedOptimizer with each of its arguments, compared with one process on all data."""

import copy
import functools
import itertools
import warnings

import torch
from expected import alive, raises, reduced, value
from torch import nn
from training import alone, batch, compare, equal_nets, loss_of, model, plain, same_bits_everywhere, sgd, shard

import ringcomm.torch as hvd


def wrap(net, make=sgd, **options):
    return hvd.DistributedOptimizer(make(net.parameters()), named_parameters=net.named_parameters(), **options)


def case_arguments_together():
    groups = (None, 1, 3, "lists")
    options = (
        {},
        {"gradient_predivide_factor": 4.0},
        {"backward_passes_per_step": 2},
        {"sparse_as_dense": True, "compression": hvd.Compression.fp16},
        {"compression": hvd.Compression.bf16},
    )
    for group, option in itertools.product(groups, options):
        net = model()
        parameters = list(net.parameters())
        lists = [[parameters[0], parameters[-1]], [parameters[2]]]  # each other parameter is a separate group
        optimizer = wrap(net, groups=lists if group == "lists" else group, **option)
        rough = option.get("compression", hvd.Compression.none) is not hvd.Compression.none
        plain(net, optimizer, [shard(batch(step)) for step in range(4)])
        equal_nets(net, alone(sgd, 4, plain), rtol=1e-1 if rough else 1e-9, atol=1e-2 if rough else 1e-12)
        same_bits_everywhere(net)


def case_num_groups_is_deprecated():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        compare(sgd, steps=3, num_groups=2)
    assert [w.category for w in seen if "num_groups" in str(w.message)] == [DeprecationWarning]


def case_ops():
    for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
        net = nn.Linear(3, 1, bias=False).double()
        optimizer = wrap(net, functools.partial(torch.optim.SGD, lr=0.1), op=op)
        for step in range(4):
            optimizer.zero_grad()
            net(value(hvd.rank(), (1, 3), torch.float64, step)).sum().backward()
            optimizer.synchronize()
            torch.testing.assert_close(net.weight.grad, reduced(op, (1, 3), torch.float64, step))
            with optimizer.skip_synchronize():
                optimizer.step()


def case_names():
    net = model()
    for names in (None, net.named_parameters(), list(net.named_parameters()), list(net.named_parameters())[::-1]):
        optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), names)
        plain(net, optimizer, [shard(batch(0))])
    part = list(net.named_parameters())
    # names of more parameters than it has
    more = hvd.DistributedOptimizer(sgd(net[0].parameters()), named_parameters=part)
    plain(net, more, [shard(batch(1))])
    for wrong in (list(net.parameters()), part + part[:1], part[1:], [(part[0][0], p) for _, p in part]):
        raises(ValueError, hvd.DistributedOptimizer, sgd(net.parameters()), wrong)
    alive()


def case_refused_arguments():
    net = model()
    parameters = list(net.parameters())
    for wrong in (
        {"backward_passes_per_step": 0},
        {"backward_passes_per_step": -1},
        {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
        {"groups": 0},
        {"groups": -2},
        {"groups": [[1]]},
        {"groups": [["name"]]},
        {"groups": [[parameters[0]], [parameters[0]]]},
    ):
        raises(ValueError, wrap, net, **wrong)
    raises(ValueError, wrap, nn.Linear(2, 2, device="meta"))
    alive()


def case_accumulation():
    def train(net, optimizer, batches):
        for data in batches:
            optimizer.zero_grad()
            for part in zip(*(torch.tensor_split(tensor, 3) for tensor in data), strict=True):
                (loss_of(net, part) * (len(part[0]) / len(data[0]))).backward()
            optimizer.step()

    compare(sgd, train, backward_passes_per_step=3)
    net = model()
    optimizer = wrap(net)
    optimizer.set_backward_passes_per_step(3)
    train(net, optimizer, [shard(batch(step)) for step in range(5)])
    optimizer.set_backward_passes_per_step(1)
    plain(net, optimizer, [shard(batch(step)) for step in range(5, 7)])
    right = model()
    reference = sgd(right.parameters())
    train(right, reference, [batch(step) for step in range(5)])
    plain(right, reference, [batch(step) for step in range(5, 7)])
    equal_nets(net, right)


def case_synchronize_and_step():
    net = model()
    optimizer = wrap(net)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(net, shard(batch(step))).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        clipped = [p.grad.clone() for p in net.parameters()]
        if step % 2:
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                optimizer.step()
            (one,) = seen
            assert "optimizer.step() called without optimizer.skip_synchronize()" in str(one.message)
        for p, right in zip(net.parameters(), clipped, strict=True):
            torch.testing.assert_close(p.grad, right)
    same_bits_everywhere(net)


def case_closures():
    def train(net, optimizer, batches):
        for data in batches:

            def closure(data=data):
                optimizer.zero_grad()
                loss = loss_of(net, data)
                loss.backward()
                return loss

            optimizer.step(closure)

    compare(sgd, train, steps=5)
    for search in (None, "strong_wolfe"):
        make = functools.partial(torch.optim.LBFGS, lr=0.1, max_iter=4, line_search_fn=search)
        compare(make, train, steps=3, rtol=1e-6)


def case_parameters_without_gradients():
    """Parameters that are unused on all ranks, unused on this rank, frozen, or not floating-point."""
    net = nn.ModuleDict({name: nn.Linear(3, 2).double() for name in ("used", "unused", "mine", "frozen")})
    hvd.broadcast_parameters(net.state_dict(), 0)
    net.register_parameter("count", nn.Parameter(torch.tensor([1, 2]), requires_grad=False))
    net["frozen"].requires_grad_(False)
    optimizer = wrap(net, functools.partial(torch.optim.SGD, lr=0.1, weight_decay=0.5))
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    x = torch.ones(1, 3, dtype=torch.float64)
    for step in range(4):
        optimizer.zero_grad()
        loss = net["used"](net["frozen"](x)[:, :1].expand(1, 3)).sum()
        if hvd.rank() == step % hvd.size():
            loss = loss + net["mine"](x).sum()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(net["mine"].weight.grad, torch.full((2, 3), 1 / hvd.size(), dtype=torch.float64))
    for name, p in net.named_parameters():
        assert torch.equal(p, before[name]) == name.startswith(("unused", "frozen", "count")), name
    same_bits_everywhere(net)


def case_schedulers_and_checkpoints():
    net = model()
    optimizer = wrap(net, functools.partial(torch.optim.Adam, lr=0.01))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    for epoch in range(3):
        plain(net, optimizer, [shard(batch(epoch))])
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.01 / 4
    again = model(seed=9)
    other = wrap(again, functools.partial(torch.optim.Adam, lr=0.5))
    again.load_state_dict(net.state_dict())
    # a copy, because the optimizers would share their moments
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert other.param_groups[0]["lr"] == 0.01 / 4
    for one, trainer in ((net, optimizer), (again, other)):
        plain(one, trainer, [shard(batch(7))])
    equal_nets(net, again, rtol=0, atol=0)


def case_gradients_of_gradients_are_refused():
    if hvd.size() > 1:
        net = model()
        optimizer = wrap(net)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch also warns about it
            raises(AssertionError, loss_of(net, shard(batch(0))).backward, create_graph=True)
        net.zero_grad()
        optimizer.zero_grad()
        plain(net, optimizer, [shard(batch(1))])
        same_bits_everywhere(net)
