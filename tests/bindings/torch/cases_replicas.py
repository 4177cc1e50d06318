"""The replica check: what it detects, names and ignores. No rank waits alone in it."""

import dataclasses
import logging
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from training import batch, loss_of, model, plain, sgd, shard

import ringcomm
import ringcomm.torch as hvd
from ringcomm._src.named import runtime
from ringcomm._src.torch.replicas import _digest_on_device, digests_of


def data(first, last):
    """Returns this rank's part of the batches of these steps."""
    return [shard(batch(step)) for step in range(first, last)]


@contextmanager
def checking(option):
    """Sets the option within the block. Yields a list of this rank's warnings."""
    session, said = runtime.session(), []
    before, handler = session.config, logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    session.config = dataclasses.replace(before, replica_check=option)
    logging.getLogger("ringcomm").addHandler(handler)
    ringcomm.stats(reset=True)
    try:
        yield said
    finally:
        session.config = before
        logging.getLogger("ringcomm").removeHandler(handler)


def checks():
    """Returns (equal, different) since `checking`."""
    return tuple(ringcomm.stats().of("replica check", result).calls for result in ("equal", "different"))


def optimizer_of(net, **options):
    return hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters(), **options)


def only_the_first_rank(said):
    """Returns the only warning; ranks agree on which rank has it."""
    assert len(said) == (hvd.rank() == 0), said
    return hvd.broadcast_object(said[0] if said else "", 0)


def case_never_broadcast():
    if hvd.size() == 1:
        return
    net = model(seed=hvd.rank())
    with checking("2") as said:
        plain(net, optimizer_of(net), data(0, 6))
        assert checks() == (0, 3)  # in steps 2, 4 and 6, of which only the first is reported
    text = only_the_first_rank(said)
    others = ", ".join(map(str, range(1, hvd.size())))
    assert f"differ after step 1: '0.weight' on rank{'s' * (hvd.size() > 2)} {others} differs from rank 0's" in text
    assert "and 3 other parameters" in text and "not been equal at any check" in text, text
    assert "broadcast_parameters" in text


def case_as_an_error():
    if hvd.size() == 1:
        return
    net = model()
    optimizer = optimizer_of(net)
    last = hvd.size() - 1
    with checking("error:1") as said:
        plain(net, optimizer, data(0, 3))
        if hvd.rank() == last:
            net[3].bias.data[1] += 0.5
        with pytest.raises(ringcomm.MismatchError, match=r"'3\.bias' on rank") as caught:
            plain(net, optimizer, data(3, 4))
        text = str(caught.value)
        assert "by up to 0.5. They were equal after step 2, so this began in step 3 or later" in text, text
        assert caught.value.ranks == ((last,) if hvd.size() > 2 else (1,))
        hvd.broadcast_parameters(net.state_dict(), 0)
        plain(net, optimizer, data(4, 8))  # the job continues
        assert checks()[1] == 1 and not said


def case_off():
    net = model(seed=hvd.rank())
    with checking("off") as said:
        optimizer = optimizer_of(net)
        plain(net, optimizer, data(0, 3))
        optimizer.state_dict()
        plain(net, optimizer, data(0, 3))
        assert checks() == (0, 0) and not said


def case_a_checkpoint_of_one_rank():
    """state_dict() on only one rank makes all ranks compare in the next step, and in no other."""
    if hvd.size() == 1:
        return
    net = model()
    optimizer = optimizer_of(net)
    with checking("warn") as said:
        plain(net, optimizer, data(0, 3))
        assert checks() == (1, 0)
        if hvd.rank() == 0:
            optimizer.state_dict()
        else:
            net[0].weight.data[:] = 7.0
        plain(net, optimizer, data(3, 8))
        assert checks() == (1, 1)
    text = only_the_first_rank(said)
    assert "after step 3: '0.weight'" in text and "equal after step 1, so this began in step 2 or later" in text, text


def case_passes_and_left_out_steps():
    """The check counts steps, not passes; a step that a scaler skips counts on all ranks."""
    if hvd.size() == 1:
        return
    net = model(torch.float32)
    optimizer = optimizer_of(net, backward_passes_per_step=2)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with checking("1") as said:
        for step in range(5):
            for given in data(step, step + 2):
                loss = loss_of(net, [part.float() for part in given])
                if step == 2 and hvd.rank() == 0:
                    loss = loss * float("inf")
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert checks() == (4, 0) and not said


def case_adasum():
    if hvd.size() == 1:
        return
    net = model()
    optimizer = optimizer_of(net, op=hvd.Adasum)
    with checking("warn") as said:
        plain(net, optimizer, data(0, 3))
        assert checks() == (1, 0)
        if hvd.rank() == 1:
            net[0].bias.data.zero_()
            optimizer.state_dict()
        plain(net, optimizer, data(3, 5))
        assert checks() == (1, 1)
    assert "'0.bias' on rank 1 differs" in only_the_first_rank(said)


def case_ranks_that_have_joined():
    """Ranks that have joined are not compared; the remaining ranks may compare at any step."""
    net = model()
    optimizer = optimizer_of(net)
    with checking("2") as said:
        for epoch in range(3):
            for step in range(2 + (hvd.rank() + epoch) % hvd.size()):
                plain(net, optimizer, data(step, step + 1))
                if step == hvd.rank():
                    optimizer.state_dict()
            hvd.broadcast_parameters(net.state_dict(), hvd.join())
            hvd.broadcast_optimizer_state(optimizer, 0)
        assert not said and checks()[1] == 0


def case_process_sets():
    """Ranks of a set compare only with each other."""
    if hvd.size() < 3:
        return
    pair, single = hvd.add_process_set([0, 2]), hvd.add_process_set([1])
    net = model(seed=hvd.rank() % 2)
    with checking("1") as said:
        plain(net, optimizer_of(net, process_set=pair if pair.included() else single), data(0, 4))
        assert not said and checks() == ((3, 0) if pair.included() else (0, 0))


def case_methods_whose_replicas_differ():
    net = model(seed=hvd.rank())
    with checking("1") as said:
        late = model()
        optimizer = optimizer_of(late, delay=1)
        plain(late, optimizer, data(0, 4))
        optimizer.finish()
        local = hvd.LocalSGD(sgd(net.parameters()), every=3)
        plain(net, local, data(0, 4))
        local.finish()
        assert not said and checks() == (0, 0)


class Kinds(nn.Module):
    """A model with parameters of several kinds, some of them unused."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        for name in ("float16", "bfloat16", "float32", "float64"):
            setattr(self, f"of_{name}", nn.Parameter(torch.randn(5, 7).to(getattr(torch, name))))
        self.across = nn.Parameter(torch.randn(3, 4, 5, 6).to(memory_format=torch.channels_last))
        self.empty = nn.Parameter(torch.empty(0, 3))
        self.bits = nn.Parameter(torch.ones(4))
        self.single = nn.Parameter(torch.tensor(2.0))


def case_dtypes_and_bits():
    """Compares every dtype; zeros of either sign are equal, as are NaNs in equal positions."""
    if hvd.size() == 1:
        return
    net = Kinds()
    with torch.no_grad():
        net.bits[0], net.bits[1] = (0.0 if hvd.rank() else -0.0), float("nan")
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())

    def step():
        optimizer.zero_grad()
        net.single.square().backward()
        optimizer.step()

    with checking("error:1"):
        for _ in range(3):
            step()
        assert checks() == (2, 0)
        for name, parameter in net.named_parameters():
            if name in ("empty", "bits"):
                continue
            kept = parameter.detach().clone()
            if hvd.rank() == 1:
                parameter.data[(-1,) * parameter.dim()] = kept[(-1,) * parameter.dim()] + 1
            with pytest.raises(
                ringcomm.MismatchError, match=f"'{name}' on rank 1 differs from rank 0's by up to (1|0.9)"
            ):
                step()
            parameter.data.copy_(kept)
            parameter.grad = None
        if hvd.rank() == 1:
            net.of_float64.data[0, 0] = float("nan")
        with pytest.raises(ringcomm.MismatchError, match="'of_float64' on rank 1 differs from rank 0's by up to nan"):
            step()


def case_digests():
    """Digests that a device computes detect the same differences as the host's."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.int8, torch.bool):
        given = torch.randn(1000).to(dtype) if dtype != torch.bool else torch.arange(1000) % 3 == 0
        swapped, changed = given.clone(), given.clone()
        swapped[[0, 1]], changed[999] = given[[1, 0]], not given[999] if dtype == torch.bool else given[999] + 1
        for digest in (_digest_on_device, lambda one: int(digests_of([one])[0])):
            assert digest(given) == digest(given.clone()) != digest(changed)
            assert digest(given) != digest(swapped) or torch.equal(given, swapped)
    both = digests_of([torch.zeros(4, 3).T, torch.zeros(3, 4)])
    assert both[0] == both[1] and both.dtype == np.uint64
