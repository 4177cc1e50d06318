"""DistributedOptimizer on p ranks with shards equals one process with the global batch."""

import functools
import re
import warnings

import torch
from torch import nn
from training import (
    alone,
    batch,
    compare,
    equal_nets,
    loss_of,
    model,
    plain,
    same_bits_everywhere,
    sgd,
    shard,
    together,
)

import ringcomm.torch as hvd
from ringcomm._src.observe.events import Listener

PLANNED = re.compile(r"plan/.*/\d+$")  # a bucket of a plan, in the trace


def case_optimizers():
    kinds = {
        "SGD": {"lr": 0.1},
        "Adam": {"lr": 0.01},
        "AdamW": {"lr": 0.01, "weight_decay": 0.1},
        "Adagrad": {"lr": 0.05},
        "RMSprop": {"lr": 0.01, "momentum": 0.5},
        "Adadelta": {"lr": 1.0},
        "NAdam": {"lr": 0.01},
        "RAdam": {"lr": 0.01},
        "Adamax": {"lr": 0.01},
        "ASGD": {"lr": 0.05},
        "Rprop": {"lr": 0.01},
    }
    for name, options in kinds.items():
        compare(functools.partial(getattr(torch.optim, name), **options), rtol=1e-7 if name == "Rprop" else 1e-9)


def case_is_the_optimizer():
    net = model()
    first = sgd(net.parameters())
    scheduler_before = torch.optim.lr_scheduler.StepLR(first, 1, 0.5)
    optimizer = hvd.DistributedOptimizer(first, named_parameters=net.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
    assert optimizer.param_groups is first.param_groups and optimizer.state is first.state
    assert optimizer.defaults == first.defaults
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    plain(net, optimizer, [shard(batch(0))])
    scheduler.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first optimizer itself never stepped
        scheduler_before.step()
    assert optimizer.param_groups[0]["lr"] == 0.05 * 0.25
    copy = hvd.DistributedOptimizer(sgd(net.parameters()))
    copy.load_state_dict(optimizer.state_dict())
    assert copy.param_groups[0]["lr"] == 0.05 * 0.25


def case_fused_and_foreach():
    compare(functools.partial(torch.optim.Adam, lr=0.01, foreach=True))
    if torch.__version__ >= "2.4":  # this compares versions; older ones have no fused steps on CPUs
        compare(functools.partial(torch.optim.AdamW, lr=0.01, fused=True))


def case_zero_grad_kinds():
    for zero in (
        lambda net, optimizer: optimizer.zero_grad(set_to_none=False),
        lambda net, optimizer: optimizer.zero_grad(set_to_none=True),
        lambda net, optimizer: net.zero_grad(),
        lambda net, optimizer: [setattr(p, "grad", torch.zeros_like(p)) for p in net.parameters()],
        lambda net, optimizer: (
            [setattr(p, "grad", None) for p in list(net.parameters())[::2]]
            + [p.grad.zero_() for p in list(net.parameters())[1::2] if p.grad is not None]
        ),
    ):

        def train(net, optimizer, batches, zero=zero):
            for data in batches:
                zero(net, optimizer)
                loss_of(net, data).backward()
                optimizer.step()

        compare(sgd, train)


def case_accumulation():
    def passes(net, optimizer, batches):
        for data in batches:
            optimizer.zero_grad()
            for part in zip(*(torch.tensor_split(tensor, 2) for tensor in data), strict=True):
                (loss_of(net, part) / 2).backward()
            optimizer.step()

    compare(sgd, passes, backward_passes_per_step=2)
    # Without zero_grad, gradients continue to accumulate, as in one process.

    def never_cleared(net, optimizer, batches):
        for data in batches:
            loss_of(net, data).backward()
            optimizer.step()

    compare(functools.partial(torch.optim.SGD, lr=0.01), never_cleared)


def case_fewer_passes_than_announced():
    """step() reduces the passes that there are, and the count restarts."""
    compare(sgd, plain, backward_passes_per_step=3)


def case_too_many_passes():
    if hvd.size() == 1:
        return
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()))
    for warm_up in range(4):
        optimizer.zero_grad()
        loss_of(net, shard(batch(warm_up))).backward()
        try:
            loss_of(net, shard(batch(1))).backward()
        except AssertionError as error:
            assert "backward_passes_per_step" in str(error)
        else:
            raise AssertionError("a second backward without step passed")
        optimizer.step()


def case_clipping_and_skip():
    def train(net, optimizer, batches):
        for data in batches:
            optimizer.zero_grad()
            loss_of(net, data).backward()
            if hasattr(optimizer, "synchronize"):
                optimizer.synchronize()
                nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                optimizer.step()

    compare(sgd, train)


def case_warns_after_synchronize():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()))
    loss_of(net, shard(batch(0))).backward()
    optimizer.synchronize()
    before = [p.grad.clone() for p in net.parameters()]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(w.message) for w in seen)
    for p, right in zip(net.parameters(), before, strict=True):
        torch.testing.assert_close(p.grad, right, rtol=1e-12, atol=0)


def case_loss_scaling():
    def train(net, optimizer, batches):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2)
        for step, data in enumerate(batches):
            optimizer.zero_grad()
            loss = loss_of(net, data)
            if step == 2:
                loss = loss * float("inf")  # overflow: every rank must skip this step
            scaler.scale(loss).backward()
            if hasattr(optimizer, "synchronize"):
                optimizer.synchronize()
                scaler.unscale_(optimizer)
                with optimizer.skip_synchronize():
                    scaler.step(optimizer)
            else:
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
            scaler.update()

    if torch.__version__ >= "2.3":  # the first with a GradScaler for CPUs
        compare(sgd, train)


def case_predivide_sum_and_compression():
    compare(sgd, gradient_predivide_factor=2.0)

    def scaled(net, optimizer, batches):
        for data in batches:
            optimizer.zero_grad()
            (loss_of(net, data) / hvd.size()).backward()
            optimizer.step()

    compare(sgd, scaled, reference=plain, op=hvd.Sum)
    for compression, rtol in ((hvd.Compression.fp16, 2e-2), (hvd.Compression.bf16, 1e-1)):
        net = together(sgd, 4, plain, compression=compression)
        equal_nets(net, alone(sgd, 4, plain), rtol=rtol, atol=1e-2)
        same_bits_everywhere(net)


def case_averages_are_quotients():
    """A plan divides the sum by the number of ranks, whatever the dtype in transfer."""
    size = hvd.size()
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        weight = nn.Parameter(torch.zeros(40))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), compression=compression)
        (weight * torch.arange(40.0).add(hvd.rank())).sum().backward()
        optimizer.step()
        total = sum(torch.arange(40.0).add(rank) for rank in range(size))
        assert torch.equal(-weight.detach(), total / size), (compression, weight)


class Halving(hvd.Compression.none):
    """A user's compressor: sends half the gradient, as float32."""

    @staticmethod
    def compress(tensor):
        return (tensor / 2).float(), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx) * 2


def case_users_compressor():
    compare(sgd, compression=Halving, rtol=1e-4)


def case_groups():
    compare(sgd, groups=2)
    compare(sgd, groups=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compare(sgd, num_groups=3)
    net = model(seed=0)
    parameters = list(net.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(parameters), groups=[[parameters[0], parameters[3]], [parameters[1]]])
    plain(net, optimizer, [shard(batch(step)) for step in range(4)])
    equal_nets(net, alone(sgd, 4, plain))


def case_refused_arguments():
    net = model()
    named = list(net.named_parameters())
    for wrong in (
        {"named_parameters": list(net.parameters())},
        {"named_parameters": named + named[:1]},
        {"named_parameters": named[1:]},
        {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
        {"groups": 0},
        {"groups": [[1]]},
        {"groups": [[named[0][1]], [named[0][1]]]},
    ):
        try:
            hvd.DistributedOptimizer(sgd(net.parameters()), **wrong)
        except ValueError:
            continue
        raise AssertionError(f"{wrong} was accepted")


def case_algorithm():
    """Every bucket uses the algorithm; an unknown or different one is an error on all ranks."""
    with Listener() as listener:
        for algorithm in (None, "ring", "tree"):
            compare(sgd, steps=4, algorithm=algorithm)
            ran = {event.detail for event in listener.take() if event.category == "run" and PLANNED.match(event.name)}
            assert hvd.size() == 1 or (algorithm in ran if algorithm else ran), (algorithm, ran)
            assert algorithm is None or ran <= {algorithm}, (algorithm, ran)
    net = model()
    for wrong, op in (("nosuch", hvd.Average), ("ring", hvd.Adasum)):
        try:
            hvd.DistributedOptimizer(sgd(net.parameters()), algorithm=wrong, op=op)
        except ValueError as error:
            assert wrong in str(error) and (op == hvd.Adasum or "butterfly" in str(error))
        else:
            raise AssertionError(f"algorithm={wrong!r}, op={op!r} was accepted")
    if hvd.size() > 1:
        optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), algorithm="ring" if hvd.rank() else "tree")
        loss_of(net, shard(batch(0))).backward()
        try:
            optimizer.step()
        except hvd.HorovodInternalError as error:
            assert "algorithm ring" in str(error) and "algorithm tree" in str(error)
        else:
            raise AssertionError("ranks with different algorithms trained")


def case_wrapped_again():
    """Refuses a second wrapping, also with Adasum and for a class derived from a wrapped one."""
    for op in (hvd.Average, hvd.Adasum):
        net = model()
        wrapped = hvd.DistributedOptimizer(sgd(net.parameters()), op=op)
        derived = type("Derived", (type(wrapped),), {})
        inherited = object.__new__(derived)
        inherited.__dict__.update(vars(wrapped))
        for already in (wrapped, inherited):
            try:
                hvd.DistributedOptimizer(already, named_parameters=net.named_parameters())
            except ValueError as error:
                assert "distributed already" in str(error)
            else:
                raise AssertionError(f"wrapping a {type(already).__name__} again was accepted")


def case_closure():
    def train(net, optimizer, batches):
        for data in batches:

            def closure(data=data):
                optimizer.zero_grad()
                loss = loss_of(net, data)
                loss.backward()
                return loss

            optimizer.step(closure)

    compare(sgd, train)
    for search in (None, "strong_wolfe"):
        compare(
            functools.partial(torch.optim.LBFGS, lr=0.1, max_iter=5, line_search_fn=search), train, steps=4, rtol=1e-6
        )


def case_step_hooks_run_once():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()))
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    loss_of(net, shard(batch(0))).backward()
    optimizer.step()
    assert calls == ["pre", "post"]


def case_float32_and_mixed_dtypes():
    net = nn.Sequential(nn.Linear(4, 8).double(), nn.Linear(4, 8).float(), nn.Linear(4, 8).to(torch.bfloat16))
    hvd.broadcast_parameters(net.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.5), compression=hvd.Compression.bf16)
    for _ in range(4):
        optimizer.zero_grad()
        sum(
            (layer(torch.full((1, 4), float(hvd.rank()), dtype=layer.weight.dtype)).sum().double()) for layer in net
        ).backward()
        optimizer.step()
        mean = sum(range(hvd.size())) / hvd.size()
        for layer in net:
            torch.testing.assert_close(layer.weight.grad, torch.full_like(layer.weight, mean), rtol=1e-2, atol=1e-2)
    same_bits_everywhere(net)
