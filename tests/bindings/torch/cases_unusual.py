"""Unusual loops: changing parameters, several optimizers, checkpointing, sparsity."""

import gc

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import alone, batch, compare, equal_nets, loss_of, model, plain, same_bits_everywhere, sgd, shard

import ringcomm.torch as hvd
from ringcomm.errors import UnsupportedError


def heads(count=4):
    torch.manual_seed(3)
    return nn.ModuleList(nn.Linear(3, 2).double() for _ in range(count))


def mean_gradient(rank_uses, head, rank_input):
    """Returns the ranks' average weight gradient of ``head(x).sum()``; zero without use."""
    parts = [
        rank_input(r).expand(2, 3) if rank_uses(r, head) else torch.zeros(2, 3, dtype=torch.float64)
        for r in range(hvd.size())
    ]
    return sum(parts) / hvd.size()


def case_a_refused_parameter_is_frozen_again():
    """The parameters that became trainable with it are watched once, and train on."""
    if hvd.size() == 1:
        return
    trained, later = (nn.Parameter(torch.ones(3), requires_grad=n == 0) for n in range(2))
    refused = nn.Parameter(torch.ones(2).to(torch.float8_e4m3fn), requires_grad=False)
    named = [("trained", trained), ("later", later), ("refused", refused)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([trained, later, refused], 0.1, foreach=False), named)
    for step in range(6):
        optimizer.zero_grad()
        if step == 1:
            later.requires_grad_()
            refused.requires_grad_()
        if step == 2:
            refused.requires_grad_(False)
        (hvd.rank() * sum((p * step).sum() for p in (trained, later) if p.requires_grad)).backward()
        try:
            optimizer.step()
        except UnsupportedError as error:
            assert step == 1 and "float8" in str(error)
            continue
        for p in (trained, later)[: 1 + (step > 0)]:
            assert torch.allclose(p.grad, torch.full((3,), step * (hvd.size() - 1) / 2))
    assert [slot.name for slot in optimizer._reducer.slots()] == ["trained", "later"]


def case_parameters_differ_between_ranks_and_steps():
    """Each rank uses different heads in each step; one head is never used."""
    net = heads()
    never = 3
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1), named_parameters=net.named_parameters()
    )
    untouched = net[never].weight.detach().clone()
    for step in range(8):

        def uses(rank, head, step=step):
            return head != never and (rank + step + head) % 3 != 0

        def given(rank, step=step):
            return torch.arange(3, dtype=torch.float64) + rank + step

        optimizer.zero_grad()
        mine = [h for h in range(len(net)) if uses(hvd.rank(), h)]
        if mine:
            sum(net[h](given(hvd.rank())).sum() for h in mine).backward()
        optimizer.synchronize()
        for h, head in enumerate(net):
            if any(uses(r, h) for r in range(hvd.size())):
                torch.testing.assert_close(head.weight.grad, mean_gradient(uses, h, given))
            else:
                assert head.weight.grad is None
        with optimizer.skip_synchronize():
            optimizer.step()
    # no gradient on any rank, so no weight decay either, as in one process
    assert torch.equal(net[never].weight, untouched)
    same_bits_everywhere(net)


def case_step_without_backward():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()))
    before = [p.detach().clone() for p in net.parameters()]
    optimizer.step()
    assert all(p.grad is None and torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
    for step in range(5):  # one rank has no data in some steps
        optimizer.zero_grad()
        if (hvd.rank() + step) % 2 == 0:
            loss_of(net, shard(batch(step))).backward()
        optimizer.step()
    same_bits_everywhere(net)


def case_frozen_then_trained():
    def train(net, optimizer, batches):
        frozen = list(net[0].parameters())
        for step, data in enumerate(batches):
            for p in frozen:
                p.requires_grad_(step >= 3)
            optimizer.zero_grad()
            loss_of(net, data).backward()
            optimizer.step()

    compare(sgd, train, steps=8)


def case_frozen_when_wrapped():
    net = model(seed=0)
    for p in net[0].parameters():
        p.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), named_parameters=net.named_parameters())
    plain(net, optimizer, [shard(batch(step)) for step in range(4)])
    for p in net[0].parameters():
        p.requires_grad_(True)
    plain(net, optimizer, [shard(batch(step)) for step in range(4, 8)])

    other = model()
    for p in other[0].parameters():
        p.requires_grad_(False)
    reference = sgd(other.parameters())
    plain(other, reference, [batch(step) for step in range(4)])
    for p in other[0].parameters():
        p.requires_grad_(True)
    plain(other, reference, [batch(step) for step in range(4, 8)])
    equal_nets(net, other)


def case_added_group():
    def train(net, optimizer, batches):
        plain(net, optimizer, batches[:4])
        optimizer.add_param_group({"params": list(net[3].parameters()) + list(net[5].parameters()), "lr": 0.01})
        plain(net, optimizer, batches[4:])

    net, other = model(), model()
    optimizer = hvd.DistributedOptimizer(sgd(net[0].parameters()))
    train(net, optimizer, [shard(batch(step)) for step in range(8)])
    train(other, sgd(other[0].parameters()), [batch(step) for step in range(8)])
    equal_nets(net, other)
    same_bits_everywhere(net)


def gan(wrap, clear):
    torch.manual_seed(0)
    generator, critic = nn.Linear(4, 3).double(), nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    g = wrap(torch.optim.Adam(generator.parameters(), lr=0.01))
    c = wrap(torch.optim.Adam(critic.parameters(), lr=0.01))

    def run(batches):
        for noise, real in batches:
            clear(critic, c)
            (critic(generator(noise).detach()).mean() - critic(real).mean()).backward()
            c.step()
            clear(generator, g)
            (-critic(generator(noise)).mean()).backward()  # its gradient also reaches the critic, which does not step
            g.step()
        return generator, critic

    return run


def case_two_networks():
    batches = []
    for step in range(8):
        rng = torch.Generator().manual_seed(step)
        batches.append([torch.randn(12, n, generator=rng, dtype=torch.float64) for n in (4, 3)])
    clears = {
        "optimizer": lambda net, optimizer: optimizer.zero_grad(),
        "module": lambda net, optimizer: net.zero_grad(),
        "module, in place": lambda net, optimizer: net.zero_grad(set_to_none=False),
    }
    for clear in clears.values():
        right = gan(lambda optimizer: optimizer, clear)(batches)
        nets = gan(hvd.DistributedOptimizer, clear)([shard(data) for data in batches])
        for net, other in zip(nets, right, strict=True):
            equal_nets(net, other)
            same_bits_everywhere(net)


def case_second_network_joins_late():
    """The first network trains alone, sends during backward, and later clears gradients."""
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()))
    other = model()
    reference = sgd(other.parameters())
    for step in range(10):
        for one, trainer, data in ((net, optimizer, shard(batch(step))), (other, reference, batch(step))):
            if step >= 5:
                loss_of(one, data).backward()  # these gradients are cleared
            trainer.zero_grad()
            loss_of(one, data).backward()
            trainer.step()
    equal_nets(net, other)
    same_bits_everywhere(net)


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(1)
        self.reentrant = reentrant
        self.shared, self.last = nn.Linear(4, 4).double(), nn.Linear(4, 2).double()

    def forward(self, x):
        for _ in range(3):
            x = (
                checkpoint(self.shared, x, use_reentrant=self.reentrant)
                if self.reentrant is not None
                else self.shared(x)
            )
            x = torch.tanh(x)
        return self.last(torch.tanh(self.shared(x)))


def case_checkpointing():
    for reentrant in (True, False):
        net, other = Checkpointed(reentrant), Checkpointed(None)
        optimizer, reference = hvd.DistributedOptimizer(sgd(net.parameters())), sgd(other.parameters())
        for step in range(6):
            x = torch.randn(12, 4, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
            for one, trainer, data in ((net, optimizer, shard([x])[0]), (other, reference, x)):
                trainer.zero_grad()
                (one(data.clone().requires_grad_()) ** 2).mean().backward()
                trainer.step()
        equal_nets(net, other)


class Words(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(2)
        self.words, self.out = nn.Embedding(20, 3, sparse=sparse).double(), nn.Linear(3, 2).double()

    def forward(self, x):
        return self.out(self.words(x).mean(1))


def case_sparse_gradients():
    for kind, as_dense in (("SGD", False), ("SGD", True)):
        net, other = Words(True), Words(True)
        make = getattr(torch.optim, kind)
        optimizer = hvd.DistributedOptimizer(make(net.parameters(), lr=0.5), sparse_as_dense=as_dense)
        reference = make(other.parameters(), lr=0.5)
        for step in range(6):
            x = torch.randint(0, 20, (12, 5), generator=torch.Generator().manual_seed(step))
            for one, trainer, data in ((net, optimizer, shard([x])[0]), (other, reference, x)):
                trainer.zero_grad()
                (one(data) ** 2).mean().backward()
                trainer.step()
                assert one.words.weight.grad.is_sparse
        equal_nets(net, other)
        same_bits_everywhere(net)


def case_sparse_on_some_ranks_only():
    torch.manual_seed(0)
    words = nn.Embedding(6, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(words.parameters(), lr=0.1))
    for step in range(5):
        optimizer.zero_grad()
        if hvd.rank() == step % hvd.size():
            words(torch.tensor([step % 6])).sum().backward()
        optimizer.step()
        right = torch.zeros(6, 2)
        right[step % 6] = 1 / hvd.size()
        torch.testing.assert_close(words.weight.grad.to_dense(), right)
    same_bits_everywhere(words)


def case_channels_last():
    net = nn.Conv2d(4, 6, 3).double().to(memory_format=torch.channels_last)
    hvd.broadcast_parameters(net.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
    for _ in range(4):
        optimizer.zero_grad()
        x = torch.full((2, 4, 5, 5), hvd.rank() + 1.0, dtype=torch.float64).to(memory_format=torch.channels_last)
        net(x).sum().backward()
        optimizer.step()
        assert net.weight.grad.stride() == net.weight.stride()
        right = 18 * sum(range(1, hvd.size() + 1)) / hvd.size()
        torch.testing.assert_close(net.weight.grad, torch.full_like(net.weight, right))


def case_gradients_lie_in_buckets():
    """No gradient is unpacked, and with zero_grad(set_to_none=False) none is packed either."""
    if hvd.size() == 1:
        return
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()))
    places = set()
    for step in range(6):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(net, shard(batch(step))).backward()
        optimizer.step()
        places.add(tuple(p.grad.data_ptr() for p in net.parameters()))
    assert len(places) == 1


def case_script_points_gradients_elsewhere():
    def train(net, optimizer, batches):
        for step, data in enumerate(batches):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            loss_of(net, data).backward()
            if hasattr(optimizer, "synchronize"):
                optimizer.synchronize()
            for p in net.parameters():
                p.grad = p.grad * 0.5 if step % 3 == 0 else p.grad
                p.grad.data = p.grad.data.clone()
                p.grad.mul_(0.5)
            if hasattr(optimizer, "synchronize"):
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()

    compare(sgd, train, steps=8)


def case_many_optimizers_one_after_another():
    """Dropped optimizers leave no hooks and no plans behind."""
    net = model()
    for trial in range(10):
        optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), named_parameters=net.named_parameters())
        torch.optim.lr_scheduler.StepLR(optimizer, 1)
        plain(net, optimizer, [shard(batch(trial))] * 3)
        del optimizer
        if hvd.rank() == trial % hvd.size():
            gc.collect()
    same_bits_everywhere(net)


def case_more_optimizers_than_message_tags_have_room_for():
    """Tests live optimizers, and dropped ones in reference cycles that were not collected."""

    def made(index):
        net = nn.Linear(2, 1, bias=False)
        net.optimizer = hvd.DistributedOptimizer(
            sgd(net.parameters()), named_parameters=net.named_parameters(f"{index}")
        )
        net.optimizer.net = net  # a cycle
        return net

    def step(net):
        net.optimizer.zero_grad()
        (net(torch.ones(2)) * (hvd.rank() + 1)).sum().backward()
        net.optimizer.step()
        assert torch.allclose(net.weight.grad, torch.full((1, 2), (hvd.size() + 1) / 2)), net.weight.grad

    gc.disable()
    try:
        for index in range(68):
            step(made(index))
        alive = [made(index) for index in range(66)]
        for _ in range(3):
            for net in alive:
                step(net)
    finally:
        gc.enable()
    del alive, net
    gc.collect()


def case_different_parameters_are_an_error_everywhere():
    if hvd.size() == 1:
        return
    net = nn.Linear(3, 4 if hvd.rank() == hvd.size() - 1 else 2)
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), named_parameters=net.named_parameters())
    net(torch.ones(3)).sum().backward()
    try:
        optimizer.step()
    except hvd.HorovodInternalError as error:
        assert "weight" in str(error) and f"rank {hvd.size() - 1}" in str(error)
    else:
        raise AssertionError("ranks with different parameters stepped")
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def case_dropped_here_stepped_there_is_an_error_everywhere():
    if hvd.size() == 1:
        return
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()))
    plain(net, optimizer, [shard(batch(step)) for step in range(4)])
    loss_of(net, shard(batch(0))).backward()
    try:
        optimizer.zero_grad() if hvd.rank() == 0 else optimizer.step()
    except hvd.HorovodInternalError as error:
        assert "dropped" in str(error)
    else:
        raise AssertionError("one rank dropped what another stepped with")
    hvd.broadcast_parameters(net.state_dict(), 0)
    plain(net, optimizer, [shard(batch(step)) for step in range(4)])
    same_bits_everywhere(net)


def case_after_shutdown_and_init():
    net = model(seed=0)
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()))
    plain(net, optimizer, [shard(batch(step)) for step in range(4)])
    hvd.shutdown()
    hvd.init()
    plain(net, optimizer, [shard(batch(step)) for step in range(4, 8)])
    equal_nets(net, alone(sgd, 8, plain))


def case_travels_while_backward_runs():
    """From the third step on, gradients are in their buckets when backward ends, if it overlaps."""
    if hvd.size() == 1:
        return
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()))
    plain(net, optimizer, [shard(batch(step)) for step in range(3)])
    places = [p.grad.data_ptr() for p in net.parameters()]
    optimizer.zero_grad()
    loss_of(net, shard(batch(3))).backward()
    in_buckets = [p.grad.data_ptr() for p in net.parameters()] == places
    assert in_buckets == optimizer._reducer._plan.overlaps
    optimizer.step()
    equal_nets(net, alone(sgd, 4, plain))


def case_compiled():
    if hvd.size() != 2:  # compiling takes seconds
        return
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), named_parameters=net.named_parameters())
    plain(torch.compile(net, backend="aot_eager"), optimizer, [shard(batch(step)) for step in range(6)])
    equal_nets(net, alone(sgd, 6, plain))
    same_bits_everywhere(net)
