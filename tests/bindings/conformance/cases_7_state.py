"""Broadcast of models, optimizers and objects: all optimizers of torch, trained or not."""

import inspect
import warnings

import torch
from expected import alive, raises
from torch import nn
from training import batch, equal_nets, loss_of, model, same_bits_everywhere

import ringcomm.torch as hvd

OPTIMIZERS = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
)

# These options differ between ranks before the broadcast.
OPTIONS = {
    "lr": (0.02, 0.01),
    "momentum": (0.8, 0.9),
    "weight_decay": (0.2, 0.1),
    "betas": ((0.8, 0.9), (0.7, 0.99)),
    "alpha": (0.9, 0.8),
    "rho": (0.8, 0.9),
    "lambd": (1e-3, 1e-4),
    "etas": ((0.5, 1.2), (0.4, 1.3)),
    "step_sizes": ((1e-6, 50), (1e-5, 40)),
    "amsgrad": (True, False),
    "centered": (True, False),
    "nesterov": (True, False),
    "maximize": (True, False),
    "history_size": (5, 7),
}


def make(name, parameters, place):
    kind = getattr(torch.optim, name)
    accepted = inspect.signature(kind).parameters
    options = {key: both[place] for key, both in OPTIONS.items() if key in accepted}
    if name == "Muon":  # accepts matrices only
        parameters = [p for p in parameters if p.dim() == 2]
    return kind(parameters, **options)


def train(name, net, optimizer, seed):
    """Makes one step; SparseAdam needs sparse gradients."""

    def closure():
        optimizer.zero_grad()
        loss = loss_of(net, batch(seed, torch.float32))
        loss.backward()
        if name == "SparseAdam":
            for p in net.parameters():
                p.grad = p.grad.to_sparse()
        return loss

    if name == "LBFGS":
        optimizer.step(closure)
    else:
        closure()
        optimizer.step()


def plain_state(optimizer):
    """Returns all values of a state_dict in comparable form."""

    def flat(value):
        if isinstance(value, torch.Tensor):
            return (str(value.dtype), tuple(value.shape), value.tolist())
        if isinstance(value, dict):
            return {key: flat(one) for key, one in value.items()}
        return [flat(one) for one in value] if isinstance(value, list | tuple) else repr(value)

    return flat(optimizer.state_dict())


def case_every_optimizer():
    """Either only the root has trained, or all ranks, or none."""
    assert {"SGD", "Adam", "Muon", "Adafactor", "SparseAdam", "LBFGS"} <= set(OPTIMIZERS)
    for number, name in enumerate(OPTIMIZERS):
        root = number % hvd.size()
        for others in ("new", "trained", "none"):
            net = model(torch.float32)
            optimizer = make(name, net.parameters(), int(hvd.rank() != root))
            if others == "trained" or (others == "new" and hvd.rank() == root):
                for step in range(2):
                    train(name, net, optimizer, step + 10 * hvd.rank())
            before = [p.detach().clone() for p in net.parameters()]
            hvd.broadcast_optimizer_state(optimizer, root_rank=root, model=net)
            assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
            states = hvd.allgather_object(plain_state(optimizer))
            assert all(state == states[0] for state in states), name
            group = optimizer.param_groups[0]
            assert all(group[key] == both[0] for key, both in OPTIONS.items() if key in group), name
            hvd.broadcast_parameters(net.state_dict(), root_rank=root)
            train(name, net, optimizer, 99)
            same_bits_everywhere(net)


def case_distributed_optimizers_too():
    for name in ("SGD", "Adam", "Adagrad", "LBFGS"):
        net = model(torch.float32, seed=hvd.rank())
        optimizer = hvd.DistributedOptimizer(make(name, net.parameters(), int(hvd.rank() > 0)), net.named_parameters())
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        train(name, net, optimizer, 1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=hvd.size() - 1)
        train(name, net, optimizer, 2)
        same_bits_everywhere(net)


def case_groups_and_frozen_parameters():
    net = model(torch.float32)
    net[0].requires_grad_(False)
    groups = [
        {"params": list(net[0].parameters()), "lr": 0.1 * (hvd.rank() + 1)},
        {"params": list(net[3].parameters()), "note": f"of rank {hvd.rank()}"},
    ]
    optimizer = torch.optim.Adam(groups)
    train("Adam", net, optimizer, 0)
    hvd.broadcast_optimizer_state(optimizer, hvd.size() - 1)
    assert optimizer.param_groups[0]["lr"] == 0.1 * hvd.size()
    assert optimizer.param_groups[1]["note"] == f"of rank {hvd.size() - 1}"
    assert all(p not in optimizer.state for p in net[0].parameters())


def case_other_groups_are_an_error_there():
    last = hvd.rank() == hvd.size() - 1
    net = nn.Linear(2, 2, bias=not last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if last:
        raises(ValueError, hvd.broadcast_optimizer_state, optimizer, 0)
    else:
        hvd.broadcast_optimizer_state(optimizer, 0)
    alive()


def case_parameters_in_all_forms():
    root = hvd.size() - 1
    forms = (
        lambda net: net.state_dict(),
        lambda net: dict(net.named_parameters()),
        lambda net: net.state_dict().items(),
        lambda net: net.named_parameters(),
        lambda net: list(net.named_parameters()),
        lambda net: tuple(net.named_parameters()),
        lambda net: net.parameters(),
        lambda net: list(net.parameters()),
        lambda net: {"a": {"deep": net.state_dict()}, "none": None},
        lambda net: (one for one in net.named_parameters()),
    )
    for form in forms:
        net = model(seed=3 + hvd.rank())
        hvd.broadcast_parameters(form(net), root_rank=root)
        equal_nets(net, model(seed=3 + root), rtol=0, atol=0)
    hvd.broadcast_parameters([], root_rank=0)
    hvd.broadcast_parameters({}, 0)


def case_buffers_ties_and_dtypes():
    torch.manual_seed(hvd.rank())
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(3, 3)).half()
    net[2].weight = net[1].weight
    net.register_buffer("whole", torch.tensor([hvd.rank()]))
    net.register_buffer("scalar", torch.tensor(float(hvd.rank())))
    net.register_buffer("mask", torch.tensor([hvd.rank() == 0]))
    net.register_buffer("empty", torch.empty(0, 2))
    net.register_buffer("turned", torch.full((2, 3), float(hvd.rank())).t())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    assert net.whole.item() == 0 and net.scalar.item() == 0 and net.mask.item() and (net.turned == 0).all()
    same_bits_everywhere(net)


def case_objects():
    thing = {"rank": hvd.rank(), 3: [1, (2, None)], "tensor": torch.arange(3), "big": b"x" * 300_000}
    for root in range(hvd.size()):
        got = hvd.broadcast_object(thing if hvd.rank() == root else None, root_rank=root)
        assert (got is thing) == (hvd.rank() == root)
        assert got["rank"] == root and got[3] == thing[3] and torch.equal(got["tensor"], thing["tensor"])
    scale = 3
    assert hvd.broadcast_object(lambda x: x * scale if hvd.rank() >= 0 else 0, name="function")(2) == 6
    everybody = hvd.allgather_object({"r": hvd.rank(), "pad": "y" * hvd.rank() * 1000}, name="objects")
    assert everybody == [{"r": r, "pad": "y" * r * 1000} for r in range(hvd.size())]
    assert hvd.allgather_object(None) == [None] * hvd.size()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hvd.broadcast_object(b"") == b""
