"""Cases for DistributedOptimizer on a device: weights equal the CPU's, in all loops."""

import torch
from on_device import DEVICE, ON_DEVICE, busy, cuda, driver, only_a_stand_in, there, waits
from torch import nn
from torch.utils.checkpoint import checkpoint

import ringcomm.torch as hvd
from ringcomm._src.base.errors import UnsupportedError

STEPS = 4  # the first two only observe


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(step, device):
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    return torch.randn(4, 6, generator=generator).to(device), torch.randn(4, 3, generator=generator).to(device)


def loss_of(net, step, device):
    x, y = batch(step, device)
    return ((net(x) - y) ** 2).mean()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def wrapped(net, make=sgd, **options):
    return hvd.DistributedOptimizer(make(net.parameters()), net.named_parameters(), **options)


def plain(net, optimizer, device, steps=STEPS):
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(net, step, device).backward()
        optimizer.step()


def weights(net):
    return torch.cat([p.detach().cpu().flatten() for p in net.parameters()])


def trained(device, train=plain, net=None, **options):
    net = (model() if net is None else net).to(device)
    optimizer = wrapped(net, **options)
    train(net, optimizer, device)
    if hasattr(optimizer, "finish"):
        optimizer.finish()
    return weights(net)


def equal(mine, theirs):
    """Compares bits on the stand-in. A GPU adds in another order and needs a tolerance."""
    if ON_DEVICE:
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        return
    assert torch.equal(mine, theirs), (mine - theirs).abs().max()


def compare(train=plain, **options):
    equal(trained(DEVICE, train, **options), trained("cpu", train, **options))


# ---- as on the CPU ---------------------------------------------------------------------------------------------------
def case_plain():
    compare()


def case_gradients_are_kept_and_added_to():
    def train(net, optimizer, device):
        for step in range(STEPS):
            optimizer.zero_grad(set_to_none=False)
            loss_of(net, step, device).backward()
            loss_of(net, step + 50, device).backward()
            optimizer.step()

    compare(train, backward_passes_per_step=2)


def case_clipped():
    def train(net, optimizer, device):
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(net, step, device).backward()
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            with optimizer.skip_synchronize():
                optimizer.step()

    torch.testing.assert_close(trained(DEVICE, train), trained("cpu", train))


def case_scaled_loss():
    def train(net, optimizer, device):
        scaler = torch.amp.GradScaler(device, init_scale=8.0)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(net, step, device)
            scaler.scale(loss * float("inf") if step == 1 and hvd.rank() == 0 else loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 4.0

    compare(train)


def case_options():
    compare(op=hvd.Sum, groups=2)
    compare(gradient_predivide_factor=2.0, compression=hvd.Compression.fp16)
    compare(delay=1)
    compare(op=hvd.Adasum)


def case_formats_that_lose():
    """Uses lossy formats with `everywhere`, because the ranks of one host send nothing otherwise."""
    how, whole = {"everywhere": True, "min_elements": 0}, trained(DEVICE)
    for wire in (hvd.Compression.int8(**how), hvd.Compression.onebit(warmup_steps=1, **how)):
        mine = trained(DEVICE, compression=wire)
        equal(mine, trained("cpu", compression=wire))
        assert torch.equal(hvd.broadcast(mine, 0), mine)
        assert hvd.size() == 1 or not torch.equal(mine, whole)


def case_what_needs_the_host_is_refused():
    if hvd.size() == 1:
        return
    try:
        wrapped(nn.Linear(64, 64).to(DEVICE), compression=hvd.Compression.powersgd)
    except ValueError as error:
        assert "int8" in str(error)
    else:
        raise AssertionError("not refused")


class Unused(nn.Module):
    """A model whose second half only some steps, and some ranks, use."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 3)
        self.both = True

    def forward(self, x):
        return self.first(x) + self.second(x) if self.both else self.first(x)


def case_unused_parameters():
    def train(net, optimizer, device):
        for step in range(STEPS + 1):
            net.both = step % 2 == 0 or (step == 3 and hvd.rank() == 0)
            optimizer.zero_grad()
            loss_of(net, step, device).backward()
            optimizer.step()

    equal(trained(DEVICE, train, Unused()), trained("cpu", train, Unused()))


def case_channels_last():
    def train(net, optimizer, device):
        for step in range(STEPS):
            optimizer.zero_grad()
            x = batch(step, device)[0].reshape(2, 2, 3, 2).to(memory_format=torch.channels_last)
            net(x).square().mean().backward()
            optimizer.step()

    def net():
        torch.manual_seed(0)
        return nn.Conv2d(2, 4, 2).to(memory_format=torch.channels_last)

    torch.testing.assert_close(trained(DEVICE, train, net()), trained("cpu", train, net()))


def case_ranks_that_have_joined():
    def train(net, optimizer, device):
        for step in range(STEPS - (hvd.rank() == 0)):
            optimizer.zero_grad()
            loss_of(net, step, device).backward()
            optimizer.step()
        hvd.join()
        for parameter in net.parameters():
            hvd.broadcast_(parameter.detach(), hvd.size() - 1)

    compare(train)


# ---- cases that only a device has ------------------------------------------------------------------------------------
def case_models_of_both_memories():
    class Both(nn.Module):
        def __init__(self, device):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3).to(device)
            self.device = device

        def forward(self, x):
            return self.second(self.first(x).to(self.device))

    def trained_there(device):
        net = Both(device)
        optimizer = wrapped(net)
        for step in range(STEPS):
            optimizer.zero_grad()
            x, y = batch(step, "cpu")
            ((net(x) - y.to(device)) ** 2).mean().backward()
            optimizer.step()
        return weights(net)

    equal(trained_there(DEVICE), trained_there("cpu"))


def case_gradients_of_several_streams():
    """Computes the gradients of one bucket on two streams, each of them late."""

    def train(net, optimizer, device):
        one = torch.ones((), device=device)
        streams = [cuda.Stream(), cuda.Stream()] if device == DEVICE else [None, None]
        for step in range(STEPS + 1):
            optimizer.zero_grad()
            x, y = batch(step, device)
            losses = []
            for part, stream in zip((net.first, net.second), streams, strict=True):
                if stream is not None:
                    stream.wait_stream(cuda.current_stream())
                with cuda.stream(stream):
                    out = part(x)
                    out.register_hook(lambda _, stream=stream: busy(stream, 3) if stream is not None else None)
                    losses.append(((out - y) ** 2).mean())
                    del out
            torch.autograd.backward(losses, [one, one])
            optimizer.step()
            for stream in streams if device == DEVICE else []:  # required before gradients are freed
                stream.wait_stream(cuda.current_stream())

    equal(trained(DEVICE, train, Unused()), trained("cpu", train, Unused()))


def case_on_a_side_stream():
    with cuda.stream(cuda.Stream()):
        mine = trained(DEVICE)
    equal(mine, trained("cpu"))


def case_gradients_in_parts():
    """Uses reentrant checkpointing: backward within backward, on a thread of autograd."""

    def train(net, optimizer, device):
        for step in range(STEPS):
            optimizer.zero_grad()
            x, y = batch(step, device)
            hidden = checkpoint(net[:2], x.requires_grad_(), use_reentrant=True)
            again = checkpoint(net[:2], x, use_reentrant=True)
            ((net[2](hidden + again) - y) ** 2).mean().backward()
            optimizer.step()

    compare(train)


def case_the_host_does_not_wait():
    net = model().to(DEVICE)
    optimizer, before = wrapped(net), 0
    for step in range(STEPS + 2):
        optimizer.zero_grad()
        loss = loss_of(net, step, DEVICE)
        before = waits() if step == STEPS - 1 else before  # memory of the first steps is pinned by then
        loss.backward()
        optimizer.step()
        assert step < STEPS - 1 or waits() == before, waits() - before


@only_a_stand_in
def case_capture_is_refused():
    if hvd.size() == 1:
        return
    net, refused = model().to(DEVICE), []
    stream = cuda.current_stream().cuda_stream
    hooks = [  # they run before ringcomm's hooks, so torch's own work during a capture is excluded
        parameter.register_post_accumulate_grad_hook(lambda _: driver.standin_capture(stream, 1))
        for parameter in net.parameters()
    ]
    optimizer = wrapped(net)
    loss = net(there(*[1.0] * 6)).sum()

    def captured(act):
        try:
            act()
        except UnsupportedError as error:
            assert "CUDA graph" in str(error)
            refused.append(act)
        finally:
            driver.standin_capture(stream, 0)

    captured(loss.backward)
    for hook in hooks:
        hook.remove()
    driver.standin_capture(stream, 1)
    captured(optimizer.synchronize)
    assert len(refused) == 2
    plain(net, optimizer, DEVICE, 1)
