"""Adasum of tensors, and DistributedOptimizer(op=Adasum), which combines ranks' changes."""

import copy
import functools
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from training import batch, loss_of, model, plain, same_bits_everywhere, sgd, shard

import ringcomm.torch as hvd

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from adasum_reference import adasum


def tensor_of(rank, dtype=torch.float64, count=20):
    return torch.randn(count, generator=torch.Generator().manual_seed(rank), dtype=torch.float64).to(dtype)


def combined(tensors):
    """Returns Adasum by NumPy, with bfloat16 as float32, for a coarse comparison."""
    dtype = tensors[0].dtype
    arrays = [(t.float() if dtype == torch.bfloat16 else t).numpy() for t in tensors]
    return torch.from_numpy(np.asarray(adasum(arrays))).to(dtype)


def raises(kind, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind}")


# ---- tensors ---------------------------------------------------------------------------------------------------------
def case_every_form():
    for dtype, rtol in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
        everybody = [tensor_of(rank, dtype) for rank in range(hvd.size())]
        expected, mine = combined(everybody), everybody[hvd.rank()]
        close = functools.partial(torch.testing.assert_close, rtol=rtol, atol=rtol)
        close(hvd.allreduce(mine, op=hvd.Adasum), expected)
        close(hvd.allreduce_(mine.clone(), op=hvd.Adasum), expected)
        close(hvd.synchronize(hvd.allreduce_async(mine, op=hvd.Adasum, name="a")), expected)
        close(hvd.synchronize(hvd.allreduce_async_(mine.clone(), op=hvd.Adasum, name="a")), expected)
        close(hvd.allreduce(mine, op=hvd.Adasum, prescale_factor=0.5, postscale_factor=4.0), expected * 2)
        first = combined([one[:3] for one in everybody])
        for group in (
            hvd.grouped_allreduce([mine, mine[:3]], op=hvd.Adasum),
            hvd.grouped_allreduce_([mine.clone(), mine[:3].clone()], op=hvd.Adasum, name="g"),
        ):
            close(group[0], expected)
            close(group[1], first)
    narrow = hvd.allreduce(tensor_of(hvd.rank()), op=hvd.Adasum, compression=hvd.Compression.fp16)
    assert narrow.dtype == torch.float64
    torch.testing.assert_close(narrow, combined([tensor_of(r) for r in range(hvd.size())]), rtol=1e-2, atol=1e-2)


def case_gradient():
    x = tensor_of(hvd.rank()).requires_grad_()
    hvd.allreduce(x, op=hvd.Adasum).backward(tensor_of(hvd.rank() + 50))
    torch.testing.assert_close(x.grad, combined([tensor_of(r + 50) for r in range(hvd.size())]))


def case_refused():
    for dtype in (torch.int32, torch.uint8, torch.bool):
        for kind in (ValueError, NotImplementedError):
            assert "Adasum" in raises(kind, hvd.allreduce, torch.ones(3, dtype=dtype), op=hvd.Adasum)
    assert "Adasum" in raises(ValueError, hvd.reducescatter, torch.ones(4), op=hvd.Adasum)
    net = model()
    raises(ValueError, hvd.DistributedOptimizer, sgd(net.parameters()), op=hvd.Adasum, gradient_predivide_factor=2.0)


# ---- the optimizer ---------------------------------------------------------------------------------------------------
class Simulated:
    """Simulates all ranks in one process: a model and optimizer each, Adasum of changes."""

    def __init__(self, make_optimizer, ranks=None):
        self.ranks = list(range(hvd.size())) if ranks is None else ranks
        self.nets = [model() for _ in self.ranks]
        self.optimizers = [make_optimizer(net.parameters()) for net in self.nets]

    def step(self, run, absent=()):
        starts = [p.detach().clone() for p in self.nets[0].parameters()]
        for rank, net, optimizer in zip(self.ranks, self.nets, self.optimizers, strict=True):
            if rank not in absent:
                run(rank, net, optimizer)
        if len(self.ranks) == 1:
            return
        every = [[p.detach() - start for p, start in zip(net.parameters(), starts, strict=True)] for net in self.nets]
        for i, start in enumerate(starts):
            changed = start + combined([deltas[i] for deltas in every])
            for net in self.nets:
                list(net.parameters())[i].data.copy_(changed)


def parts(step, rank, count=1):
    data = [torch.tensor_split(tensor, hvd.size())[rank] for tensor in batch(step)]
    return list(zip(*(torch.tensor_split(tensor, count) for tensor in data), strict=True))


def equal(net, other, rtol=1e-9):
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=rtol, atol=1e-9)


def compare(make_optimizer, run, steps=5, rtol=1e-9, **options):
    simulated = Simulated(make_optimizer)
    net = model()
    optimizer = hvd.DistributedOptimizer(
        make_optimizer(net.parameters()), net.named_parameters(), op=hvd.Adasum, **options
    )
    for step in range(steps):
        simulated.step(lambda rank, *pair, step=step: run(step, rank, *pair))
        run(step, hvd.rank(), net, optimizer)
        equal(net, simulated.nets[0], rtol)
    same_bits_everywhere(net)
    return net, optimizer


def one_pass(step, rank, net, optimizer):
    optimizer.zero_grad()
    loss_of(net, parts(step, rank)[0]).backward()
    optimizer.step()


def case_optimizers():
    compare(sgd, one_pass)
    compare(functools.partial(torch.optim.Adam, lr=0.01), one_pass, rtol=1e-7)
    compare(functools.partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1, foreach=True), one_pass, rtol=1e-7)


def case_two_passes():
    def run(step, rank, net, optimizer):
        optimizer.zero_grad()
        for part in parts(step, rank, 2):
            loss_of(net, part).backward()
        optimizer.step()

    compare(sgd, run, backward_passes_per_step=2)
    net, optimizer = compare(sgd, one_pass, backward_passes_per_step=3)  # fewer passes than backward_passes_per_step
    optimizer.set_backward_passes_per_step(1)
    if hvd.size() > 1:
        optimizer.zero_grad()
        loss_of(net, parts(0, 0)[0]).backward()
        message = raises(AssertionError, lambda: loss_of(net, parts(0, 0)[0]).backward())
        assert "backward_passes_per_step" in message
    optimizer.zero_grad()
    loss_of(net, parts(0, hvd.rank())[0]).backward()
    optimizer.step()
    same_bits_everywhere(net)


def case_closures():
    def run(step, rank, net, optimizer):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(net, parts(step, rank)[0])
            loss.backward()
            return loss

        assert torch.is_tensor(optimizer.step(closure))

    compare(sgd, run)
    compare(functools.partial(torch.optim.LBFGS, lr=0.1, max_iter=4), run, steps=3, rtol=1e-6)


def case_clipping():
    def run(step, rank, net, optimizer):
        optimizer.zero_grad()
        loss_of(net, parts(step, rank)[0]).backward()
        if hasattr(optimizer, "synchronize"):
            optimizer.synchronize()  # no operation is pending
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()

    if hvd.size() > 1:
        _, optimizer = compare(sgd, run)
        assert "Adasum" in raises(AssertionError, lambda: optimizer.skip_synchronize().__enter__())


class Halving(hvd.Compression.none):
    @staticmethod
    def compress(tensor):
        return tensor / 2, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor * 2


def case_compression():
    compare(sgd, one_pass, compression=Halving)  # Adasum is homogeneous
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), op=hvd.Adasum, compression=hvd.Compression.fp16)
    simulated = Simulated(sgd)
    for step in range(3):
        simulated.step(lambda rank, *pair, step=step: one_pass(step, rank, *pair))
        one_pass(step, hvd.rank(), net, optimizer)
    for p, q in zip(net.parameters(), simulated.nets[0].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-2, atol=1e-2)
    same_bits_everywhere(net)


def case_is_the_optimizer():
    net = model()
    first = sgd(net.parameters())
    optimizer = hvd.DistributedOptimizer(first, net.named_parameters(), op=hvd.Adasum)
    assert isinstance(optimizer, torch.optim.SGD) and optimizer.state is first.state
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    plain(net, optimizer, [shard(batch(0))])
    scheduler.step()
    assert calls == ["pre", "post"] and optimizer.param_groups[0]["lr"] == 0.025
    hvd.broadcast_optimizer_state(optimizer, 0)
    again = hvd.DistributedOptimizer(sgd(net.parameters()), op=hvd.Adasum)
    again.load_state_dict(optimizer.state_dict())
    late = nn.Linear(2, 2).double()
    hvd.broadcast_parameters(late.state_dict(), 0)
    again.add_param_group({"params": list(late.parameters())})
    again.zero_grad()
    (loss_of(net, shard(batch(1))) + late(torch.full((1, 2), hvd.rank() + 1.0, dtype=torch.float64)).sum()).backward()
    again.step()
    same_bits_everywhere(net)
    same_bits_everywhere(late)


def case_gradients_that_some_ranks_lack():
    """A rank without a gradient contributes no change, and gets the other ranks' change."""
    net = nn.Linear(2, 2, bias=False).double()
    hvd.broadcast_parameters(net.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), op=hvd.Adasum)
    before = net.weight.detach().clone()
    if hvd.rank() == hvd.size() - 1:
        net(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(net.weight.detach(), before - 1)
    before = net.weight.detach().clone()
    optimizer.zero_grad()
    optimizer.step()  # no rank has a gradient
    assert torch.equal(net.weight.detach(), before)


def case_different_parameters():
    if hvd.size() == 1:
        return
    net = nn.Linear(2, 2 + (hvd.rank() == 1)).double()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), op=hvd.Adasum)
    net(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    before = copy.deepcopy(net.state_dict())
    assert "rank 0 has" in raises(hvd.HorovodInternalError, optimizer.step)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    compare(sgd, one_pass, steps=1)  # later steps succeed


def case_a_failing_closure():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), op=hvd.Adasum)
    before = copy.deepcopy(net.state_dict())

    def closure():
        raise ArithmeticError

    raises(ArithmeticError, optimizer.step, closure)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def case_process_set():
    if hvd.size() < 3:
        return
    part = hvd.add_process_set([1, 2])
    if part.included():
        simulated, net = Simulated(sgd, part.ranks), model()
        optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), op=hvd.Adasum, process_set=part)
        for step in range(3):
            simulated.step(lambda rank, *pair, step=step: one_pass(step, rank, *pair))
            one_pass(step, hvd.rank(), net, optimizer)
        equal(net, simulated.nets[0])
    hvd.remove_process_set(part)


def case_join():
    """A rank that has joined contributes no change."""
    simulated, net = Simulated(sgd), model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), op=hvd.Adasum)
    for step in range(hvd.rank() + 1):
        one_pass(step, hvd.rank(), net, optimizer)
    last = hvd.join()
    assert last == hvd.size() - 1
    hvd.broadcast_parameters(net.state_dict(), last)
    for step in range(hvd.size()):
        simulated.step(lambda rank, *pair, step=step: one_pass(step, rank, *pair), absent=range(step))
    equal(net, simulated.nets[0])
