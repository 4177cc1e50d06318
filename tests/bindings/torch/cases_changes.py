"""Gradients that change between backward and step, or arrive late: right, or one error."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import alone, batch, compare, equal_nets, loss_of, model, plain, same_bits_everywhere, sgd, shard

import ringcomm.torch as hvd

LATE = 4  # a step in which gradients are sent during backward


def optimizer_of(net, make=sgd, **options):
    return hvd.DistributedOptimizer(make(net.parameters()), named_parameters=net.named_parameters(), **options)


# ---- more gradient than expected -------------------------------------------------------------------------------------
class Twice(nn.Module):
    """A model whose layer later also runs in a checkpoint: its gradient has two parts."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.layer, self.last = nn.Linear(4, 4).double(), nn.Linear(4, 2).double()

    def forward(self, x, times, reentrant):
        for _ in range(times):
            x = torch.tanh(checkpoint(self.layer, x, use_reentrant=True) if reentrant else self.layer(x))
        return self.last(torch.tanh(self.layer(x)))


def train_twice(net, optimizer, inputs, reentrant, first_late=LATE):
    for step, x in enumerate(inputs):
        optimizer.zero_grad()
        times = 0 if step < first_late else 1 + step % 2
        (net(x.clone().requires_grad_(), times, reentrant) ** 2).mean().backward()
        optimizer.step()


def inputs(steps=8):
    return [torch.randn(12, 4, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in range(steps)]


def case_checkpointing_begins_late():
    for options in ({}, {"compression": Halving}, {"op": hvd.Sum}):
        net, other = Twice(), Twice()
        if "op" in options:
            scale_hook(net)
        train_twice(net, optimizer_of(net, **options), [shard([x])[0] for x in inputs()], True)
        train_twice(other, sgd(other.parameters()), inputs(), False)
        equal_nets(net, other, rtol=1e-5 if "compression" in options else 1e-9)
        same_bits_everywhere(net)


def scale_hook(net):
    """Divides gradients: the sum of shard means is the batch's mean times the number of ranks."""
    for p in net.parameters():
        p.register_hook(lambda gradient: gradient / hvd.size())


class Halving(hvd.Compression.none):
    @staticmethod
    def compress(tensor):
        return tensor / 2, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor * 2


def case_checkpointing_begins_late_on_one_rank():
    net, other = Twice(), Twice()
    optimizer = optimizer_of(net)
    data = inputs()
    for step, x in enumerate(data):
        odd = step >= LATE and hvd.rank() == step % hvd.size()
        other.load_state_dict(net.state_dict())  # gradients of `net` may be in transfer as soon as backward ends
        other.zero_grad()
        optimizer.zero_grad()
        for one, reentrant in ((other, False), (net, True)):
            out = one(shard([x])[0].clone().requires_grad_(), 2 if odd else 0, reentrant)
            (out**2).mean().backward()
        optimizer.step()
        for p, part in zip(net.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p.grad, hvd.allreduce(part.grad))
    same_bits_everywhere(net)


def case_only_sums_come_in_parts():
    if hvd.size() == 1:
        return
    net = Twice()
    optimizer = optimizer_of(net, op=hvd.Max)
    data = [shard([x])[0] for x in inputs()]
    train_twice(net, optimizer, data[:LATE], True)
    try:
        train_twice(net, optimizer, data[LATE : LATE + 1], True, first_late=0)
    except hvd.HorovodInternalError as error:
        assert "op=Sum" in str(error)
    else:
        raise AssertionError("a maximum of parts was taken for the maximum")
    train_twice(net, optimizer, data[LATE + 1 :], True, first_late=0)
    same_bits_everywhere(net)


def case_graph_of_the_second_gradient():
    """create_graph is refused even if only a later gradient has a graph. Training continues."""
    if hvd.size() == 1:
        return
    linear, square = (nn.Parameter(torch.full((4,), 2.0)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(sgd([linear, square]), [("linear", linear), ("square", square)])

    def loss():
        return (square**2).sum() + linear.sum()  # backward begins with `linear`

    for step in range(LATE + 3):
        optimizer.zero_grad()
        if step == LATE:
            try:
                loss().backward(create_graph=True)
            except AssertionError as error:
                assert "square requires a gradient itself" in str(error), error
            else:
                raise AssertionError("a graph of a gradient was not refused")
            optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        assert torch.equal(linear.grad, torch.ones(4))
    same_bits_everywhere(nn.ParameterList([linear, square]))


def case_second_backward_is_refused():
    """Raises Horovod's AssertionError; the gradient in transfer is unchanged. The job continues."""
    if hvd.size() == 1:
        return
    net, reference = model(), model()
    optimizer, other = optimizer_of(net), sgd(reference.parameters())
    plain(net, optimizer, [shard(batch(step)) for step in range(LATE)])
    plain(reference, other, [batch(step) for step in range(LATE)])
    optimizer.zero_grad()
    loss_of(net, shard(batch(9))).backward()
    try:
        loss_of(net, shard(batch(10))).backward()
    except AssertionError as error:
        assert "backward_passes_per_step" in str(error)
    else:
        raise AssertionError("a second backward passed")
    optimizer.step()
    plain(reference, other, [batch(9)])
    equal_nets(net, reference)


def case_module_clears_late():
    """After some steps, the module's zero_grad() drops a backward pass that has been sent."""
    for set_to_none in (True, False):
        net, reference = model(), model()
        for one, optimizer, cut in ((net, optimizer_of(net), shard), (reference, sgd(reference.parameters()), list)):
            for step in range(10):
                one.zero_grad(set_to_none=set_to_none)
                if step >= LATE and set_to_none:
                    loss_of(one, cut(batch(50 + step))).backward()
                    one.zero_grad(set_to_none=set_to_none)
                loss_of(one, cut(batch(step))).backward()
                optimizer.step()
        equal_nets(net, reference)
        same_bits_everywhere(net)


def case_half_of_the_module_clears_late():
    """The dropped pass reached some layers only, and the next pass reaches the other layers first."""
    net, reference = model(), model()
    for one, optimizer, cut in ((net, optimizer_of(net), shard), (reference, sgd(reference.parameters()), list)):
        for step in range(8):
            optimizer.zero_grad()
            if step == LATE:
                one[5](one[3](torch.ones(2, 48, dtype=torch.float64))).sum().backward()  # skips the first layer
                one.zero_grad()
            loss_of(one, cut(batch(step))).backward()
            optimizer.step()
    equal_nets(net, reference)
    same_bits_everywhere(net)


# ---- changed gradients -----------------------------------------------------------------------------------------------
def case_clipped_before_the_reduction():
    """Without synchronize() a rank clips its own gradients before they are averaged."""
    net = model()
    optimizer = optimizer_of(net)
    replica = model()
    reference = sgd(replica.parameters())
    for step in range(6):
        optimizer.zero_grad()
        loss_of(net, shard(batch(step))).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()

        parts = []
        for rank in range(hvd.size()):
            replica.zero_grad()
            loss_of(replica, [torch.tensor_split(t, hvd.size())[rank] for t in batch(step)]).backward()
            nn.utils.clip_grad_norm_(replica.parameters(), 0.1)
            parts.append([p.grad.clone() for p in replica.parameters()])
        for p, *grads in zip(replica.parameters(), *parts, strict=True):
            p.grad = sum(grads) / hvd.size()
        reference.step()
    equal_nets(net, replica)


def case_clipping_begins_late():
    """Clipping gradients that were sent raises one error on every rank; the job continues."""
    if hvd.size() == 1:
        return
    net = model()
    optimizer = optimizer_of(net)
    plain(net, optimizer, [shard(batch(step)) for step in range(LATE)])
    before = [p.detach().clone() for p in net.parameters()]
    optimizer.zero_grad()
    loss_of(net, shard(batch(LATE))).backward()
    if hvd.rank() == 0:
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    try:
        optimizer.step()
    except hvd.HorovodInternalError as error:
        assert "synchronize()" in str(error)
    else:
        raise AssertionError("gradients changed on their way")
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
    for step in range(4):  # from now on they are sent in step()
        optimizer.zero_grad()
        loss_of(net, shard(batch(step))).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
    same_bits_everywhere(net)


# ---- loss scaling ----------------------------------------------------------------------------------------------------
def scaled_training(recipe, overflow_in=None, everywhere=False):
    def train(net, optimizer, batches):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=3)
        scales = []
        for step, data in enumerate(batches):
            optimizer.zero_grad()
            loss = loss_of(net, data)
            if step == overflow_in and (everywhere or hvd.rank() == hvd.size() - 1):
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            recipe(net, optimizer, scaler)
            scaler.update()
            scales.append(scaler.get_scale())
        assert len(set(hvd.allgather_object(tuple(scales)))) == 1, "ranks scale differently"

    return train


def step_only(net, optimizer, scaler):
    scaler.step(optimizer)


def unscale_first(net, optimizer, scaler):
    scaler.unscale_(optimizer)
    scaler.step(optimizer)


def synchronize_first(net, optimizer, scaler):
    if hasattr(optimizer, "synchronize"):
        optimizer.synchronize()
    scaler.unscale_(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a second reduction of reduced gradients does not change them
        scaler.step(optimizer)


def by_the_book(net, optimizer, scaler):
    if not hasattr(optimizer, "synchronize"):
        return unscale_first(net, optimizer, scaler)
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)


def case_overflow_on_one_rank():
    """All ranks skip the step and lower their scales, however the script scales the loss."""
    for recipe in (step_only, unscale_first, synchronize_first, by_the_book):
        for overflow_in in (None, 0, LATE + 1):
            for make in (sgd, lambda parameters: torch.optim.Adam(parameters, lr=0.01, fused=True)):
                compare(
                    make,
                    scaled_training(recipe, overflow_in),
                    steps=8,
                    reference=scaled_training(recipe, overflow_in, everywhere=True),
                )


def case_overflow_with_adasum():
    """If one rank overflows, no rank takes the step."""
    for recipe in (step_only, unscale_first):
        nets = []
        for overflow_in in (None, 2):
            net = model()
            optimizer = optimizer_of(net, op=hvd.Adasum)
            batches = [shard(batch(step)) for step in range(2)]
            batches += [] if overflow_in is None else [shard(batch(7))]
            scaled_training(recipe, overflow_in)(net, optimizer, batches)
            nets.append(net)
            same_bits_everywhere(net)
        equal_nets(*nets, rtol=0, atol=0)


def case_unscaling_begins_late():
    if hvd.size() == 1:
        return
    net = model()
    optimizer = optimizer_of(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(LATE + 4):
        optimizer.zero_grad()
        scaler.scale(loss_of(net, shard(batch(step)))).backward()
        if step >= LATE:
            scaler.unscale_(optimizer)
        try:
            scaler.step(optimizer)
            assert step != LATE, "gradients were unscaled on their way"
        except hvd.HorovodInternalError as error:
            assert step == LATE and "unscale" in str(error)
        scaler.update()
    same_bits_everywhere(net)


def case_equals_unscaled_training():
    net = model()
    optimizer = optimizer_of(net)
    scaled_training(step_only)(net, optimizer, [shard(batch(step)) for step in range(6)])
    equal_nets(net, alone(sgd, 6, plain))
