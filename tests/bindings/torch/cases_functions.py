"""Broadcasts of models' and optimizers' states and of objects; tensors in shared memory."""

import functools

import torch
from torch import nn
from training import batch, equal_nets, loss_of, model, plain, same_bits_everywhere, sgd, shard

import ringcomm.torch as hvd
from ringcomm._src.named import runtime
from ringcomm._src.torch.tensors import DTYPES


def differing():
    return model(seed=10 + hvd.rank())


def case_broadcast_parameters():
    ways = (
        lambda net: net.state_dict(),
        lambda net: net.named_parameters(),
        lambda net: list(net.named_parameters()),
        lambda net: list(net.parameters()),
        lambda net: net.parameters(),
        lambda net: {"nested": {"model": net.state_dict(), "nothing": None}},
    )
    for root, way in zip([0, hvd.size() - 1] * 3, ways, strict=True):
        net = differing()
        hvd.broadcast_parameters(way(net), root_rank=root)
        equal_nets(net, model(seed=10 + root), rtol=0, atol=0)


def case_buffers_and_tied_weights():
    torch.manual_seed(hvd.rank())
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4))
    net[2].weight = net[1].weight
    net[0].running_mean.fill_(hvd.rank() + 1.0)
    net[0].num_batches_tracked.fill_(hvd.rank() + 5)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    assert (net[0].running_mean == 1).all() and net[0].num_batches_tracked == 5
    same_bits_everywhere(net)


def case_refused():
    for wrong in ("text", 3, torch.ones(2), {"a": 1}, [("a", "b")]):
        try:
            hvd.broadcast_parameters(wrong, 0)
        except ValueError:
            continue
        raise AssertionError(f"{wrong!r} was accepted")


def case_objects():
    for root in range(hvd.size()):
        thing = {"rank": root, "list": [1, (2, "three")], "tensor": torch.arange(3), "big": b"x" * 100_000}
        got = hvd.broadcast_object(thing if hvd.rank() == root else None, root_rank=root)
        assert got["rank"] == root and got["list"] == thing["list"] and torch.equal(got["tensor"], thing["tensor"])
        assert got["big"] == thing["big"]
    everybody = hvd.allgather_object({"rank": hvd.rank(), "pad": "y" * hvd.rank()}, name="objects")
    assert everybody == [{"rank": r, "pad": "y" * r} for r in range(hvd.size())]


OPTIMIZERS = {
    "SGD": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "plain SGD": functools.partial(torch.optim.SGD, lr=0.1),
    "AMSGrad": functools.partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "capturable": functools.partial(torch.optim.Adam, lr=torch.tensor(0.01), foreach=False),
    "LBFGS": functools.partial(torch.optim.LBFGS, lr=0.1, max_iter=3),
    **{
        name: getattr(torch.optim, name)
        for name in ("Adam", "AdamW", "Adamax", "Adagrad", "Adadelta", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
    },
}


def step_once(net, optimizer, data):
    def closure():
        net.zero_grad()
        loss = loss_of(net, data)
        loss.backward()
        return loss

    optimizer.step(closure)


def case_optimizer_state():
    """Only the root has trained, or only the other ranks; afterwards all continue identically."""
    for make in OPTIMIZERS.values():
        for others_trained in (False, True):
            net = model()
            optimizer = make(net.parameters())
            if hvd.rank() == 0 or others_trained:
                for step in range(3):
                    step_once(net, optimizer, batch(step + 10 * hvd.rank()))
                optimizer.param_groups[0]["lr"] *= 0.5 + hvd.rank()
            before = [p.detach().clone() for p in net.parameters()]
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
            hvd.broadcast_parameters(net.state_dict(), root_rank=0)
            step_once(net, optimizer, batch(99))
            same_bits_everywhere(net)
            states = hvd.allgather_object(optimizer.state_dict()["param_groups"])
            assert all(str(state) == str(states[0]) for state in states)


def case_untrained_state_leaves_parameters_alone():
    for make in OPTIMIZERS.values():
        net = model()
        optimizer = hvd.DistributedOptimizer(make(net.parameters()))
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        equal_nets(net, model(), rtol=0, atol=0)
        assert all(p.grad is None for p in net.parameters())


def case_several_groups():
    net = model()
    groups = [
        {"params": net[0].parameters(), "lr": 0.1 * (hvd.rank() + 1)},
        {"params": net[3].parameters(), "weight_decay": float(hvd.rank())},
    ]
    optimizer = torch.optim.Adam(groups)
    hvd.broadcast_optimizer_state(optimizer, root_rank=hvd.size() - 1)
    assert optimizer.param_groups[0]["lr"] == 0.1 * hvd.size()
    assert optimizer.param_groups[1]["weight_decay"] == float(hvd.size() - 1)


def case_resume():
    """A run that resumes from a checkpoint of rank 0 equals a run without interruption."""
    whole = model()
    optimizer = hvd.DistributedOptimizer(sgd(whole.parameters()))
    plain(whole, optimizer, [shard(batch(step)) for step in range(6)])

    net = model()
    first = hvd.DistributedOptimizer(sgd(net.parameters()))
    plain(net, first, [shard(batch(step)) for step in range(3)])
    saved = (net.state_dict(), first.state_dict()) if hvd.rank() == 0 else None
    again = model(seed=20 + hvd.rank())
    second = hvd.DistributedOptimizer(sgd(again.parameters()), named_parameters=again.named_parameters())
    if saved:
        again.load_state_dict(saved[0])
        second.load_state_dict(saved[1])
    hvd.broadcast_parameters(again.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(second, root_rank=0)
    plain(again, second, [shard(batch(step)) for step in range(3, 6)])
    equal_nets(again, whole)


def case_shared_tensors():
    """Tensors are torch.empty's, shared if ranks share memory, and work in all operations."""
    node = runtime.session().comm._node
    for dtype in (*DTYPES, torch.complex32):
        for size in ((), (0,), (3, 0), (1,), (5, 3), ((2, 3),), (torch.Size([4]),)):
            tensor = hvd.empty(*size, dtype=dtype)
            like = torch.empty(*(size or [()]), dtype=dtype)
            assert (tensor.shape, tensor.dtype, tensor.stride()) == (like.shape, dtype, like.stride())
            assert tensor.device.type == "cpu" and tensor.data_ptr() % 64 == 0
            if node is not None and tensor.numel():
                assert node.offset_of(tensor.data_ptr(), tensor.nbytes) is not None
            if dtype in DTYPES:
                tensor.fill_(1)
                address = tensor.data_ptr()
                assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor and tensor.data_ptr() == address
                want = torch.full_like(like, True if dtype == torch.bool else hvd.size())
                assert torch.equal(tensor, want), (dtype, size)
    assert hvd.empty(3).dtype == torch.get_default_dtype()
    parameter = nn.Parameter(hvd.empty(8).fill_(2.0))
    parameter.square().sum().backward()
    assert torch.equal(parameter.grad, torch.full((8,), 4.0))


def case_shared_tensors_refused():
    for wrong, error in ((("a",), TypeError), ((2.5,), TypeError), ((-1,), RuntimeError), (([2], 3), TypeError)):
        try:
            hvd.empty(*wrong)
        except error:
            continue
        raise AssertionError(f"{wrong!r} was accepted")


def case_shared_memory_outlives_its_tensor():
    base = hvd.empty(1000, dtype=torch.int64).fill_(7)
    view = base[10:20]
    del base
    others = [hvd.empty(1000, dtype=torch.int64).zero_() for _ in range(8)]
    assert (view == 7).all() and all((one == 0).all() for one in others)
