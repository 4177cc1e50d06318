"""Gradients that a script writes to between backward and step, or keeps from step to step."""

import copy
import io

import numpy as np
import pytest
import torch
from cases_changes import Halving
from torch import nn

import ringcomm.torch as hvd

STEPS = 7
LATE = 4  # a step in which gradients are sent during backward
SIZES = {"small": (5, 3), "big": (200, 120)}  # small: shares a bucket; big: autograd allocates it in shared memory


def pair(size, **options):
    torch.manual_seed(2)
    weights = [nn.Parameter(torch.randn(SIZES[size])), nn.Parameter(torch.randn(7))]
    names = [("weight", weights[0]), ("bias", weights[1])]
    return weights, hvd.DistributedOptimizer(torch.optim.SGD(weights, 0.1), names, **options)


def backward(weights, step):
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    sum((w * torch.randn(w.shape, generator=generator)).sum() for w in weights).backward()


def gradients_of(weights, step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [torch.randn(w.shape, generator=generator) for w in weights]


def mean_of(weights, step, change=lambda gradient: None):
    of_all = [gradients_of(weights, step, rank) for rank in range(hvd.size())]
    for gradients in of_all:
        change(gradients[0])
    return [sum(parts) / hvd.size() for parts in zip(*of_all, strict=True)]


def equal_everywhere(weights):
    for w in weights:
        rows = hvd.allgather(w.detach()[None])
        assert torch.equal(rows, w.detach().expand_as(rows))


def times(gradient, factor=0.5):
    gradient[:] = gradient * factor


WRITES = {
    ".data.clamp_": (lambda g: g.data.clamp_(-0.5, 0.5), lambda g: g.clamp_(-0.5, 0.5)),
    ".data.mul_": (lambda g: g.data.mul_(0.5), times),
    ".numpy()": (lambda g: times(g.numpy()), times),
    "np.asarray": (lambda g: times(np.asarray(g)), times),
    ".detach().numpy()": (lambda g: times(g.detach().numpy()), times),
    "from_dlpack": (lambda g: torch.from_dlpack(g).mul_(0.5), times),
    "mul_": (lambda g: g.mul_(0.5), times),
}


# ---- writes between backward and step --------------------------------------------------------------------------------
def case_writes_from_the_first_step():
    """Writes take effect identically on all ranks, by whichever method they are made."""
    for size in SIZES:
        for name, (write, right) in WRITES.items():
            weights, optimizer = pair(size)
            for step in range(STEPS):
                optimizer.zero_grad()
                backward(weights, step)
                write(weights[0].grad)
                optimizer.step()
                for w, mean in zip(weights, mean_of(weights, step, right), strict=True):
                    assert torch.allclose(w.grad, mean, atol=1e-6), (size, name, step)
                    assert type(w.grad) is torch.Tensor
            equal_everywhere(weights)


def case_writes_that_begin_late():
    """Changing gradients that were sent raises one error on every rank; the job continues."""
    if hvd.size() == 1:
        return
    for size in SIZES:
        for name, (write, right) in WRITES.items():
            weights, optimizer = pair(size)
            for step in range(STEPS):
                optimizer.zero_grad()
                backward(weights, step)
                if step >= LATE and (step > LATE or hvd.rank() == 0):
                    write(weights[0].grad)
                try:
                    optimizer.step()
                    assert step != LATE, (size, name)
                except hvd.HorovodInternalError as error:
                    assert step == LATE and "synchronize()" in str(error), (size, name, step)
                    continue
                means = mean_of(weights, step, right if step > LATE else lambda gradient: None)
                for w, mean in zip(weights, means, strict=True):
                    assert torch.allclose(w.grad, mean, atol=1e-6), (size, name, step)
            equal_everywhere(weights)


def case_reading_is_free():
    """Gradients that are read between backward and step are still sent during backward."""
    for size in SIZES:
        weights, optimizer = pair(size)
        for step in range(STEPS):
            optimizer.zero_grad()
            backward(weights, step)
            for w in weights:
                (w.grad.data.norm(), w.grad.numpy().sum(), w.grad.detach().abs().max(), repr(w.grad), w.grad + 1)
                assert type(copy.deepcopy(w.grad)) is torch.Tensor
                file = io.BytesIO()
                torch.save(w.grad, file)
                file.seek(0)
                assert type(torch.load(file)) is torch.Tensor
            optimizer.step()
            for w, mean in zip(weights, mean_of(weights, step), strict=True):
                assert torch.allclose(w.grad, mean, atol=1e-6)
        if optimizer._reducer is not None:
            assert optimizer._reducer._send_early
        equal_everywhere(weights)


def case_memory_given_away_before():
    """Gradients are never None, and the script writes to them by references that it took earlier."""
    for by_alias in (False, True):
        weights, optimizer = pair("small")
        backward(weights, 0)
        optimizer.step()
        aliases = [w.grad.data for w in weights]
        for step in range(1, STEPS):
            optimizer.zero_grad(set_to_none=False) if not by_alias else [alias.zero_() for alias in aliases]
            backward(weights, step)
            aliases[0].mul_(0.5)
            optimizer.step()
            for w, mean, alias in zip(weights, mean_of(weights, step, times), aliases, strict=True):
                assert torch.allclose(w.grad, mean, atol=1e-6), step
                assert torch.equal(alias, w.grad)
        equal_everywhere(weights)


def case_memory_on_its_way_is_kept():
    """Memory in transfer stays alive if a script replaces it, which all ranks report."""
    weights, optimizer = pair("big")
    for step in range(3):
        optimizer.zero_grad()
        backward(weights, step)
        optimizer.step()
    optimizer.zero_grad()
    backward(weights, 3)
    if hvd.size() == 1:
        return
    before = weights[0].grad.data_ptr()
    weights[0].grad.data = torch.ones_like(weights[0])
    plan = optimizer._reducer._plan
    if plan.overlaps:
        on_their_way = [slot.slice.memory_in_use() for slot in plan.slots]
        on_their_way += [flat.tensor for bucket in plan._buckets for flat in bucket.flats]
        assert any(0 <= before - memory.data_ptr() < memory.nbytes for memory in on_their_way)
    with pytest.raises(hvd.HorovodInternalError, match="changed gradients"):
        optimizer.step()


# ---- kept gradients --------------------------------------------------------------------------------------------------
KEEPS = {
    "the tensor": lambda gradient: gradient,
    ".data": lambda gradient: gradient.data,
    "detach()": lambda gradient: gradient.detach(),
    "a view": lambda gradient: gradient.view(-1).view(gradient.shape),
    "an array": lambda gradient: gradient.numpy(),
}


def case_kept_gradients():
    for size in SIZES:
        for name, keep in KEEPS.items():
            weights, optimizer = pair(size)
            kept = []
            for step in range(STEPS):
                optimizer.zero_grad()
                backward(weights, step)
                optimizer.step()
                kept.append([keep(w.grad) for w in weights])
            for step, gradients in enumerate(kept):
                for gradient, mean in zip(gradients, mean_of(weights, step), strict=True):
                    assert torch.allclose(torch.as_tensor(gradient), mean, atol=1e-6), (size, name, step)


def case_gradients_kept_from_before_the_step():
    """A gradient taken before step() is the reduced one after it: same object and memory."""
    for size in SIZES:
        for name, keep in KEEPS.items():
            for late in (False, True):
                if name == "a view" or (late and name != "the tensor"):
                    continue
                weights, optimizer = pair(size)
                for step in range(STEPS):
                    optimizer.zero_grad()
                    backward(weights, step)
                    if late:
                        weights[0].grad.mul_(0.5)
                    kept = [keep(w.grad) for w in weights]
                    optimizer.step()
                    for w, one in zip(weights, kept, strict=True):
                        assert name != "the tensor" or one is w.grad, (size, step, late)
                        assert torch.equal(torch.as_tensor(one), w.grad), (size, name, step, late)
                equal_everywhere(weights)


def case_kept_gradients_of_one_memory():
    """Autograd gives two parameters gradients that share memory, on one rank only."""
    for step in range(3):
        a, b = (torch.nn.Parameter(torch.ones(3, 40)) for _ in range(2))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([a, b], lr=0.1), [("a", a), ("b", b)])
        for _ in range(step + 1):
            optimizer.zero_grad()
            if hvd.rank() == 0:
                ((a.view(-1) + b.view(-1)) * torch.arange(120.0)).sum().backward()
            else:
                ((a.view(-1) + 3 * b.view(-1)) * torch.arange(120.0)).sum().backward()
            kept = a.grad, b.grad
            if hvd.rank() == 0 and hvd.size() == 1:
                assert len({one.untyped_storage().data_ptr() for one in kept}) == 1
            optimizer.step()
        mean = torch.arange(120.0).view(3, 40)
        assert torch.allclose(a.grad, mean)
        assert torch.allclose(b.grad, mean * (1 + 3 * (hvd.size() - 1)) / hvd.size()), kept


def case_gradients_in_a_buffer_of_the_script():
    """Gradients are views of buffers, which the script clears and scales. They remain there."""
    for size in SIZES:
        for options, together in (({}, True), ({}, False), ({"compression": Halving}, True)):
            weights, optimizer = pair(size, **options)
            counts = [w.numel() for w in weights]
            parts = torch.zeros(sum(counts)).split(counts) if together else [torch.zeros(n) for n in counts]
            for w, part in zip(weights, parts, strict=True):
                w.grad = part.view(w.shape)
            for step in range(STEPS):
                torch._foreach_zero_(parts)
                idle = step == LATE and hvd.rank() > 0
                if not idle:
                    backward(weights, step)
                before = [w.detach().clone() for w in weights]
                optimizer.synchronize()
                torch._foreach_mul_(parts, 0.5)
                with optimizer.skip_synchronize():
                    optimizer.step()
                means = mean_of(weights, step)
                if step == LATE:
                    means = [gradient / hvd.size() for gradient in gradients_of(weights, step, 0)]
                for w, start, mean in zip(weights, before, means, strict=True):
                    assert torch.allclose(w.grad, 0.5 * mean, atol=1e-6), (size, options, step)
                    assert torch.allclose(w, start - 0.05 * mean, atol=1e-6), (size, options, step)
                assert all(torch.equal(w.grad.flatten(), part) for w, part in zip(weights, parts, strict=True))
            equal_everywhere(weights)


def case_assigned_gradients_that_overlap():
    """Assigned views that overlap each other (on rank 0), or themselves, are separate gradients."""
    weights = [nn.Parameter(torch.zeros(6)) for _ in range(3)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, 1.0), [(f"{n}", w) for n, w in enumerate(weights)])
    means = torch.arange(6.0), torch.arange(2.0, 8.0) / hvd.size(), torch.ones(6)
    for _ in range(STEPS):
        buffer = torch.arange(8.0)
        weights[0].grad, weights[1].grad = buffer[:6], buffer[2:] if hvd.rank() == 0 else torch.zeros(6)
        weights[2].grad = torch.tensor(1.0).expand(6)
        optimizer.step()
        assert all(torch.allclose(w.grad, mean) for w, mean in zip(weights, means, strict=True))
    equal_everywhere(weights)


def case_kept_gradient_that_does_not_fit():
    """A gradient whose layout differs from its parameter's is sent from a copy."""
    weights, optimizer = pair("big")
    kept = []
    for step in range(STEPS):
        optimizer.zero_grad()
        (weights[0].t() * gradients_of(weights, step, hvd.rank())[0].t()).sum().backward()
        optimizer.step()
        kept.append(weights[0].grad)
    for step, gradient in enumerate(kept):
        assert torch.allclose(gradient, mean_of(weights, step)[0], atol=1e-6), step


def case_memory_is_used_again():
    """If no gradient is kept, the next step reuses the memory.

    A small kept gradient does not keep a bucket alive.
    """
    weights, optimizer = pair("small")
    places, kept = [], []
    for step in range(2 * STEPS):
        optimizer.zero_grad()
        backward(weights, step)
        optimizer.step()
        places.append(weights[0].grad.data_ptr())
        if step >= STEPS:
            kept.append(weights[1].grad)
    assert hvd.size() == 1 or (len(set(places[1:STEPS])) == 1 and len(set(places[STEPS:])) <= 2), places
    assert len({one.data_ptr() for one in kept}) == len(kept)
