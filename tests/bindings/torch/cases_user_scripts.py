"""Usage patterns of optimizers in users' scripts: right, or one clear error on all ranks."""

import copy
import pickle
import threading

import torch
from torch import nn
from training import batch, equal_nets, loss_of, model, plain, same_bits_everywhere, sgd, shard

import ringcomm.torch as hvd
from ringcomm._src.base.errors import UnsupportedError


def mean():
    """Returns the mean of the ranks' gradients that `backward` computes."""
    return (hvd.size() + 1) / 2


def parameter(count=4):
    return nn.Parameter(torch.ones(count))


def optimizer_of(*parameters, make=None, **options):
    inner = make(parameters) if make else torch.optim.SGD(parameters, 0.1)
    return inner, hvd.DistributedOptimizer(inner, [(f"p{i}", p) for i, p in enumerate(parameters)], **options)


def backward(*parameters, factor=1):
    sum((p * (hvd.rank() + 1) * factor).sum() for p in parameters).backward()


def steps(optimizer, *parameters, count=3):
    """Makes enough steps that gradients are sent during backward."""
    for _ in range(count):
        optimizer.zero_grad()
        backward(*parameters)
        optimizer.step()


def refuses(error, act, *words):
    try:
        act()
    except error as raised:
        assert all(word in str(raised) for word in words), raised
    else:
        raise AssertionError(f"{act} was accepted")


def equal_everywhere(*parameters):
    for p in parameters:
        rows = hvd.allgather(p.detach()[None])
        assert torch.equal(rows, p.detach().expand_as(rows)), rows


# ---- steps on gradients of this rank alone ---------------------------------------------------------------------------
def case_inner_optimizer_steps():
    if hvd.size() == 1:
        return
    for options in ({}, {"op": hvd.Adasum}, {"backward_passes_per_step": 2}):
        p = parameter()
        inner, optimizer = optimizer_of(p, **options)
        for _ in range(4):
            optimizer.zero_grad()
            backward(p)
            refuses(AssertionError, inner.step, "p0", "DistributedOptimizer")
            refuses(AssertionError, torch.optim.Adam([p]).step, "p0")
            optimizer.step()
        equal_everywhere(p)
    p = parameter()
    inner, optimizer = optimizer_of(p)
    backward(p)
    refuses(AssertionError, lambda: torch.optim.SGD.step(optimizer), "p0")
    optimizer.synchronize()
    inner.step()
    assert torch.allclose(p, torch.ones(4) - 0.1 * mean())


def case_skipping_without_synchronize():
    if hvd.size() == 1:
        return
    p = parameter()
    _, optimizer = optimizer_of(p)
    backward(p)
    with optimizer.skip_synchronize():
        refuses(AssertionError, optimizer.step, "synchronize()")
        optimizer.zero_grad()
        refuses(AssertionError, lambda: optimizer.step(lambda: backward(p)), "synchronize()")
    equal_everywhere(p)


def case_inner_of_relaxed_steps():
    p = parameter()
    inner = torch.optim.SGD([p], 0.1)
    with hvd.LocalSGD(inner, every=2) as optimizer:
        backward(p)
        refuses(AssertionError, inner.step, "exchanged")
        optimizer.step()
        inner.param_groups[0]["params"].append(parameter())
        refuses(UnsupportedError, optimizer.step, "parameters")
        inner.param_groups[0]["params"].pop()


class OuterOptimizer(torch.optim.Optimizer):
    """An optimizer that holds the stepping optimizer, as Lookahead and similar ones do."""

    def __init__(self, optimizer):
        super().__init__(optimizer.param_groups, {})
        self.optimizer = optimizer

    def step(self, closure=None):
        return self.optimizer.step(closure)


def case_optimizer_around():
    p = parameter()
    outer = OuterOptimizer(optimizer_of(p)[1])
    steps(outer, p)
    assert torch.allclose(p, torch.ones(4) - 0.3 * mean())


class StepsFirst(torch.optim.Optimizer):
    """An optimizer that uses existing gradients before the closure, as sharpness-aware ones."""

    def __init__(self, parameters):
        super().__init__(parameters, {})
        self.used = []

    @torch.no_grad()
    def step(self, closure=None):
        for used in (0, 1):
            if used and closure is not None:
                with torch.enable_grad():
                    closure()
            for p in self.param_groups[0]["params"]:
                self.used.append(None if p.grad is None else p.grad.clone())


def case_closures():
    for late in (0, 3):
        for op in (hvd.Average, hvd.Sum):
            total = torch.full((4,), mean() * (1 if op == hvd.Average or hvd.size() == 1 else hvd.size()))
            p = parameter()
            _, optimizer = optimizer_of(p, make=StepsFirst, op=op)
            steps(optimizer, p, count=late)
            optimizer.used.clear()
            optimizer.zero_grad()
            backward(p)
            optimizer.step(lambda: None)  # no backward pass
            assert all(torch.allclose(one, total) for one in optimizer.used), optimizer.used

            def closure(p=p, optimizer=optimizer):
                optimizer.zero_grad()
                backward(p, factor=3)

            optimizer.used.clear()
            optimizer.zero_grad()
            backward(p)
            optimizer.step(closure)
            assert torch.allclose(torch.stack(optimizer.used), torch.stack([total, 3 * total]))
    p = parameter()
    for _, optimizer in (optimizer_of(p, make=StepsFirst), optimizer_of(p, make=StepsFirst, op=hvd.Adasum)):
        optimizer.zero_grad()
        refuses(TypeError, lambda o=optimizer: o.step((p * 1).sum()), "closure")


def case_closure_after_backward_on_one_rank():
    p = parameter()
    _, optimizer = optimizer_of(p, make=StepsFirst)
    if hvd.rank() == 0:
        backward(p)

    def closure():
        optimizer.zero_grad()
        backward(p, factor=2)

    optimizer.step(closure)
    first, second = optimizer.used
    assert torch.allclose(first, torch.full((4,), 1 / hvd.size())) and torch.allclose(
        second, torch.full((4,), 2 * mean())
    )


# ---- groups that change ----------------------------------------------------------------------------------------------
def case_groups_are_edited():
    for options in ({}, {"op": hvd.Sum}, {"compression": hvd.Compression.fp16}):
        for edit in (
            lambda inner, optimizer, new: inner.add_param_group({"params": [new]}),
            lambda inner, optimizer, new: optimizer.add_param_group({"params": [new]}),
            lambda inner, optimizer, new: inner.param_groups[0]["params"].append(new),
            lambda inner, optimizer, new: optimizer.param_groups[0]["params"].__setitem__(0, new),
            lambda inner, optimizer, new: setattr(inner, "param_groups", [{**inner.param_groups[0], "params": [new]}]),
            lambda inner, optimizer, new: setattr(
                optimizer, "param_groups", [{**inner.param_groups[0], "params": [new]}]
            ),
        ):
            p, q, new = parameter(), parameter(3), parameter(5)
            inner, optimizer = optimizer_of(p, q, **options)
            steps(optimizer, p, q)
            edit(inner, optimizer, new)
            equal_everywhere(p, q)
            steps(optimizer, p, q, new, count=4)
            scale = hvd.size() if "op" in options else 1
            assert torch.allclose(new, 1 - 0.4 * mean() * torch.full((5,), float(scale))), new
            equal_everywhere(p, q, new)
            assert optimizer.param_groups is inner.param_groups


def case_parameters_that_left_are_free():
    """Gradients of a parameter that is no longer in any group are ignored."""
    p, q = parameter(), parameter()
    inner, optimizer = optimizer_of(p, q)
    steps(optimizer, p, q)
    inner.param_groups[0]["params"] = [p]
    steps(optimizer, p, count=1)
    for _ in range(4):
        backward(q)
    torch.optim.SGD([q], 0.1).step()
    steps(optimizer, p)
    equal_everywhere(p)


def case_groups_that_differ_between_ranks():
    if hvd.size() == 1:
        return
    p, new = parameter(), parameter()
    inner, optimizer = optimizer_of(p)
    steps(optimizer, p)
    if hvd.rank() == 0:
        inner.add_param_group({"params": [new]})
    optimizer.zero_grad()
    backward(p, new)
    refuses(hvd.HorovodInternalError, optimizer.step, "parameters")


def case_states_are_shared():
    p = parameter()
    inner, optimizer = optimizer_of(p, make=lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(inner, 0.5)
    steps(optimizer, p)
    for one in (optimizer, inner):
        one.load_state_dict(one.state_dict())
        assert inner.param_groups is optimizer.param_groups and inner.state is optimizer.state
        rate = optimizer.param_groups[0]["lr"]
        inner.param_groups[0]["lr"] = rate / 2
        assert optimizer.param_groups[0]["lr"] == rate / 2
    steps(optimizer, p)
    scheduler.step()
    equal_everywhere(p)


def case_copies():
    p = parameter()
    for optimizer in (optimizer_of(p)[1], hvd.LocalSGD(torch.optim.SGD([p], 0.1), every=2)):
        for act in (copy.deepcopy, copy.copy, pickle.dumps):
            refuses(TypeError, lambda act=act, o=optimizer: act(o), "state_dict()")
    optimizer.finish()


# ---- autograd.grad and alternating optimizers ------------------------------------------------------------------------
def case_autograd_grad_between():
    """autograd.grad leaves .grad unchanged: the optimizer counts no backward pass."""
    net, reference = model(), model()
    optimizer, alone = (
        hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters()),
        sgd(reference.parameters()),
    )
    for step in range(6):
        optimizer.zero_grad()
        loss_of(net, shard(batch(step))).backward()
        torch.autograd.grad(loss_of(net, shard(batch(step))), list(net.parameters()))
        optimizer.step()
        plain(reference, alone, [batch(step)])
    equal_nets(net, reference)
    same_bits_everywhere(net)


def case_one_of_two_rests():
    """Two optimizers over the same parameters take turns of any length."""
    for op in (hvd.Average, hvd.Adasum):
        net = model()
        named = list(net.named_parameters())
        two = [
            hvd.DistributedOptimizer(torch.optim.Adam(net.parameters(), 0.01), named),
            hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.01), named, op=op),
        ]
        other = model()
        alone = torch.optim.Adam(other.parameters(), 0.01), torch.optim.SGD(other.parameters(), 0.01)
        for step, turn in enumerate((0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0)):
            two[turn].zero_grad()
            loss_of(net, shard(batch(step))).backward()
            two[turn].step()
            plain(other, alone[turn], [batch(step)])
        if op == hvd.Average:
            equal_nets(net, other)
        same_bits_everywhere(net)


def case_optimizer_made_during_a_step():
    if hvd.size() == 1:
        return
    p = parameter()
    _, first = optimizer_of(p)
    steps(first, p)
    first.zero_grad()
    backward(p)
    _, second = optimizer_of(p)
    refuses(AssertionError, second.step, "before backward()")
    first.step()
    steps(second, p)
    equal_everywhere(p)


def case_threads():
    """Two threads create one optimizer each and train, in a different order on each rank."""
    errors, gate = [], threading.Barrier(2)
    parameters = [parameter(4), parameter(5)]

    def train(turn, p):
        try:
            for now in (0, 1):
                if now == turn:
                    _, optimizer = optimizer_of(p)
                gate.wait()
            steps(optimizer, p, count=6)
        except BaseException as error:
            errors.append(error)
            gate.abort()

    turns = (0, 1) if hvd.rank() == 0 else (1, 0)
    threads = [threading.Thread(target=train, args=pair) for pair in zip(turns, parameters, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    for p in parameters:
        assert torch.allclose(p, 1 - 0.6 * mean() * torch.ones(len(p)))


# ---- facts -----------------------------------------------------------------------------------------------------------
def case_dtypes_change():
    net, reference = model(torch.float32), model(torch.float32)
    optimizer, alone = (
        hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters()),
        sgd(reference.parameters()),
    )
    for step, dtype in enumerate((torch.float32,) * 4 + (torch.float64,) * 5 + (torch.float32,) * 2):
        for one, its, cut in ((net, optimizer, shard), (reference, alone, list)):
            one.to(dtype)
            for state in its.state.values():
                state["momentum_buffer"] = state["momentum_buffer"].to(dtype)
            plain(one, its, [cut(batch(step, dtype))])
    equal_nets(net, reference, rtol=1e-4, atol=1e-5)
    same_bits_everywhere(net)


def case_dtype_changes_after_backward():
    """A change before the step works, or raises one error on every rank; training continues."""
    net = model(torch.float32)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), net.named_parameters())
    for step in range(8):
        dtype = torch.float32 if step < 4 else torch.float64
        optimizer.zero_grad()
        loss_of(net, shard(batch(step, next(net.parameters()).dtype))).backward()
        net.to(dtype)
        try:
            optimizer.step()
        except hvd.HorovodInternalError:
            assert step == 4
    same_bits_everywhere(net)


def case_shapes_change():
    p = parameter(4)
    _, optimizer = optimizer_of(p)
    steps(optimizer, p)
    p.grad, p.data = None, torch.ones(2, 3)
    steps(optimizer, p)
    assert torch.allclose(p, torch.full((2, 3), 1 - 0.3 * mean()))


def case_gradients_of_another_dtype():
    p = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    if not hasattr(p, "grad_dtype"):
        return
    p.grad_dtype = torch.float32
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], 0.0), [("p", p)])
    for _ in range(4):
        optimizer.zero_grad()
        (p.float() * (1 + hvd.rank() / 1024)).sum().backward()
        optimizer.step()
        assert p.grad.dtype == torch.float32
        exact = torch.ones(4, dtype=torch.bfloat16).requires_grad_()
        exact.grad_dtype = torch.float32
        (exact.float() * (1 + hvd.rank() / 1024)).sum().backward()
        torch.testing.assert_close(p.grad, hvd.allreduce(exact.grad), rtol=1e-6, atol=0)
