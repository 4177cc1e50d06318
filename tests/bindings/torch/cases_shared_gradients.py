"""Large gradients that autograd allocates in shared memory, and scripts that change them."""

import copy
import gc
import os
import weakref

import torch
from torch import nn
from training import equal_nets, same_bits_everywhere, sgd

import ringcomm.torch as hvd
from ringcomm._src.torch import shared_gradients

LATE = 3  # a step in which gradients are sent during backward


class Big(nn.Module):
    """A model with two equal layers, a parameter used in two shapes, and a small bias."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second = nn.Linear(160, 160).double(), nn.Linear(160, 160).double()
        self.table, self.wide = nn.Parameter(torch.randn(80, 320).double()), nn.Parameter(torch.randn(51200).double())
        self.unused = nn.Parameter(torch.zeros(100, 100).double())

    def forward(self, x):
        x = torch.tanh(self.second(torch.tanh(self.first(x))))
        # autograd gives both parameters one gradient
        seen = self.table.view(160, 160) + self.wide[:25600].view(160, 160)
        return x @ seen / 160


def data(step):
    return torch.randn(12, 160, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


def losses(net, step, ranks):
    """Returns losses of this rank's part, or of all rows."""
    parts = torch.tensor_split(data(step), hvd.size())
    return sum((net(parts[rank]) ** 2).mean() for rank in ranks) / len(ranks)


def compare_with_one_process(step_of, make=sgd, steps=7, rtol=1e-8, **options):
    """``step_of(net, optimizer, loss, number)`` makes a step; ``loss()`` computes."""
    mine, reference = Big(), Big()
    optimizer = hvd.DistributedOptimizer(make(mine.parameters()), named_parameters=mine.named_parameters(), **options)
    plain = make(reference.parameters())
    for number in range(steps):
        step_of(mine, optimizer, lambda number=number: losses(mine, number, [hvd.rank()]), number)
        step_of(reference, plain, lambda number=number: losses(reference, number, range(hvd.size())), number)
    equal_nets(mine, reference, rtol=rtol)
    same_bits_everywhere(mine)
    return mine, optimizer


def train(net, optimizer, loss, number, set_to_none=True):
    optimizer.zero_grad(set_to_none=set_to_none)
    loss().backward()
    optimizer.step()


def shared(tensor):
    node = hvd.global_process_set.node
    return node is not None and node.offset_of(tensor.data_ptr(), tensor.nbytes) is not None


def serving():
    return bool(shared_gradients._pools)


def case_they_stay_where_they_were_made():
    stayed = []

    def step(net, optimizer, loss, number):
        optimizer.zero_grad()
        loss().backward()
        gradients = [net.first.weight.grad, net.second.weight.grad]
        optimizer.step()
        if hasattr(optimizer, "skip_synchronize") and number >= LATE:
            stayed.append([net.first.weight.grad is gradients[0], net.second.weight.grad is gradients[1]])
            stayed[-1] += map(shared, gradients)

    compare_with_one_process(step)
    if serving():
        assert stayed[-1] == [True] * 4, stayed
    assert serving() == (hvd.size() > 1)


def case_every_way_to_step():
    compare_with_one_process(lambda *arguments: train(*arguments, set_to_none=False))
    compare_with_one_process(train, lambda p: torch.optim.AdamW(p, lr=1e-3), rtol=1e-6)
    compare_with_one_process(train, groups=2)
    compare_with_one_process(train, compression=hvd.Compression.fp16, rtol=1e-2)

    def clipped(net, optimizer, loss, number):
        optimizer.zero_grad()
        loss().backward()
        if not hasattr(optimizer, "skip_synchronize"):
            nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            return optimizer.step()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        with optimizer.skip_synchronize():
            optimizer.step()

    compare_with_one_process(clipped)


def case_several_passes():
    def step(net, optimizer, loss, number):
        optimizer.zero_grad()
        for _ in range(2):
            loss().backward()
        optimizer.step()

    compare_with_one_process(step, backward_passes_per_step=2)


def case_dropped_gradients_and_a_second_backward():
    def step(net, optimizer, loss, number):
        if number >= LATE:
            loss().backward()  # an extra backward pass on every rank
        train(net, optimizer, loss, number)

    compare_with_one_process(step)


def case_other_tensors_of_these_sizes():
    """Other tensors occupy these blocks, permanently or for a while; a script keeps gradients."""
    kept = []

    def step(net, optimizer, loss, number):
        kept.append([torch.zeros_like(p) for p in net.parameters()] if number < 2 else [])
        optimizer.zero_grad()
        between = [torch.ones_like(p) for p in net.parameters()]
        loss().backward()
        assert all((one == 1).all() for one in between)
        optimizer.step()
        kept[-1].append(net.first.weight.grad)

    compare_with_one_process(step)
    assert not any(one.any() for row in kept[:2] for one in row[:-1])


def case_what_torch_does_with_a_storage():
    mine, optimizer = compare_with_one_process(train)
    gradient = mine.first.weight.grad
    twin = copy.deepcopy(gradient)
    assert torch.equal(twin, gradient) and twin.data_ptr() != gradient.data_ptr()
    before = gradient.clone()
    gradient.share_memory_()
    assert torch.equal(gradient, before)
    other = mine.second.weight.grad
    other.untyped_storage().resize_(other.nbytes * 2)
    optimizer.zero_grad()
    gc.collect()
    del gradient, other
    for number in range(3):
        train(mine, optimizer, lambda number=number: losses(mine, number, [hvd.rank()]), number)
    same_bits_everywhere(mine)


def case_a_forked_child_has_its_own():
    mine, _ = compare_with_one_process(train)
    before = mine.first.weight.grad.clone()
    child = os.fork()
    if child == 0:
        good = torch.equal(mine.first.weight.grad, before)
        mine.first.weight.grad.fill_(7)
        big = [torch.ones_like(before) for _ in range(20)]
        del big
        os._exit(0 if good and (mine.first.weight.grad == 7).all() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert torch.equal(mine.first.weight.grad, before)


def case_memory_goes_back():
    gc.collect()
    pools = list(shared_gradients._pools.values())
    used = [pool.in_use for pool in pools]
    mine, optimizer = compare_with_one_process(train)
    gone = weakref.ref(optimizer)
    del mine, optimizer
    gc.collect()
    assert gone() is None
    assert [pool.in_use for pool in pools] == used


def case_they_outlive_the_runtime():
    mine, optimizer = compare_with_one_process(train)
    gradient, before = mine.first.weight.grad, mine.first.weight.grad.clone()
    hvd.shutdown()
    assert torch.equal(gradient, before)
    torch.ones_like(gradient)
    hvd.init()
    assert torch.equal(gradient, before)
    del mine, optimizer, gradient
    gc.collect()
    compare_with_one_process(train)
