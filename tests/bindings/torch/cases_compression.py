"""Encoded gradients: residuals are sent later, whatever the script does meanwhile."""

import warnings

import torch
from torch import nn
from training import batch, equal_nets, loss_of, model, plain, same_bits_everywhere, sgd, shard

import ringcomm
import ringcomm.torch as hvd

FORMATS = [
    hvd.Compression.int8,
    hvd.Compression.int4(stochastic=True),
    hvd.Compression.onebit,
    hvd.Compression.ternary,
    hvd.Compression.topk(0.2),
    hvd.Compression.threshold(0.01),
    hvd.Compression.powersgd(2, min_compression_rate=1),
    hvd.Compression.powersgd(1, warm_start=False, min_compression_rate=1),
]
# on one host; every parameter with two dimensions is encoded
HERE = {"everywhere": True, "min_elements": 1, "warmup_steps": 0}


def of(wire, **options):
    return wire(**HERE | options)


def net_of(wire, make=sgd, **options):
    net = model(torch.float32)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        make(net.parameters()), named_parameters=net.named_parameters(), compression=wire, **options
    )
    return net, optimizer


def data(steps, first=0):
    return [shard(batch(step, torch.float32)) for step in range(first, first + steps)]


def owed_by(optimizer):
    return {name: residual.clone() for name, residual in optimizer.compression_state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def case_every_format_trains_with_equal_weights():
    for wire in FORMATS:
        for late in (4, 12):  # gradients are sent during backward from the third step on
            net, optimizer = net_of(of(wire), backward_passes_per_step=1)
            plain(net, optimizer, data(late))
            same_bits_everywhere(net)
            if hvd.size() > 1:
                residual = owed_by(optimizer)
                assert set(residual) == {"0.weight", "3.weight", "5.weight"}
                assert any(tensor.abs().max() > 0 for tensor in residual.values()), wire
                assert optimizer.compression_stats()[0]["residual"] >= 0


def case_what_is_left_out_comes_later():
    """Weights plus residuals equal the weights of an uncompressed run, with op=Sum."""
    for wire in (hvd.Compression.int8, hvd.Compression.onebit, hvd.Compression.topk(0.1), hvd.Compression.powersgd(2)):
        torch.manual_seed(1)
        weight = nn.Parameter(torch.zeros(40, 50))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0), [("w", weight)], compression=of(wire), op=hvd.Sum
        )
        total = torch.zeros(40, 50)
        for step in range(12):
            optimizer.zero_grad()
            mine = torch.randn(40, 50, generator=torch.Generator().manual_seed(100 * step + hvd.rank()))
            (weight * mine).sum().backward()
            if step % 5 == 3:
                optimizer.zero_grad()  # the gradient is dropped, and has no effect
                continue
            optimizer.step()
            total += hvd.allreduce(mine, op=hvd.Sum, name=f"total.{step}")
        residual = optimizer.compression_state_dict().get("w", torch.zeros(2000)).view(40, 50)
        torch.testing.assert_close(-weight.detach() + residual, total, atol=1e-3, rtol=1e-4)


def case_a_parameter_that_nobody_uses_keeps_what_it_owes():
    parts = nn.ModuleDict({"a": nn.Linear(30, 30, bias=False), "b": nn.Linear(30, 30, bias=False)})
    hvd.broadcast_parameters(parts.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        sgd(parts.parameters()), named_parameters=parts.named_parameters(), compression=of(hvd.Compression.onebit)
    )
    for step in range(8):
        optimizer.zero_grad(set_to_none=True)
        x = torch.randn(6, 30, generator=torch.Generator().manual_seed(hvd.rank() + 10 * step))
        before = owed_by(optimizer)
        out = parts["a"](x) if step % 2 else parts["a"](x) + parts["b"](x)
        out.pow(2).mean().backward()
        optimizer.step()
        if step % 2 and step > 2 and hvd.size() > 1:
            after = owed_by(optimizer)
            assert torch.equal(before["b.weight"], after["b.weight"]), step
            assert not torch.equal(before["a.weight"], after["a.weight"])
    same_bits_everywhere(parts)


def case_an_overflow_leaves_what_is_owed():
    net, optimizer = net_of(of(hvd.Compression.onebit))
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=4)
    before = {}
    for step, pair in enumerate(data(10)):
        optimizer.zero_grad()
        overflows = step in (3, 6)
        loss = scaler.scale(loss_of(net, pair))
        if overflows and hvd.rank() == hvd.size() - 1:
            loss = loss * float("inf")
        loss.backward()
        scaler.step(optimizer)
        scaler.update()  # the residual is scaled again when the next step begins
        after = owed_by(optimizer)
        assert not overflows or same(before, after)
        assert all(torch.isfinite(residual).all() for residual in after.values())
        before = after
    same_bits_everywhere(net)
    assert all(torch.isfinite(p).all() for p in net.parameters())


def case_it_is_saved_and_goes_on():
    """A restored run equals an uninterrupted one: weights plus the sum of residuals."""
    for wire in (hvd.Compression.int8, hvd.Compression.topk(0.2)):
        net, optimizer = net_of(of(wire), make=lambda p: torch.optim.SGD(p, lr=0.05))
        plain(net, optimizer, data(5))
        saved, weights = owed_by(optimizer), {name: t.clone() for name, t in net.state_dict().items()}
        other, again = net_of(of(wire), make=lambda p: torch.optim.SGD(p, lr=0.05))
        other.load_state_dict(weights)
        again.load_compression_state_dict(saved)
        assert same(owed_by(again), saved)
        plain(other, again, data(1, 5))
        plain(net, optimizer, data(1, 5))
        same_bits_everywhere(other)
        same_bits_everywhere(net)
        if hvd.size() > 1:
            mine, theirs = owed_by(optimizer), owed_by(again)
            for name in mine:  # weights minus scaled residuals: both runs lose nothing
                lr = 0.05
                one = net.state_dict()[name].flatten() - lr * mine[name]
                two = other.state_dict()[name].flatten() - lr * theirs[name]
                torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)
        try:
            again.load_compression_state_dict({"nobody": torch.zeros(3)})
            assert hvd.size() == 1
        except ValueError as error:
            assert "nobody" in str(error)


def case_int8_is_near_what_is_not_compressed():
    net, optimizer = net_of(of(hvd.Compression.int8))
    other, exact = net_of(hvd.Compression.none)
    plain(net, optimizer, data(8))
    plain(other, exact, data(8))
    equal_nets(net, other, rtol=0.05, atol=0.02)


def case_auto_sends_what_pays():
    """On one host nothing is encoded, so there are no residuals."""
    for wire in ("auto", hvd.Compression.auto, {"0.*": hvd.Compression.auto}):
        net, optimizer = net_of(wire)
        plain(net, optimizer, data(4))
        same_bits_everywhere(net)
        assert not any(residual.any() for residual in owed_by(optimizer).values())


def case_warm_up_and_rules():
    rule = {"0.*": None, "3.weight": of(hvd.Compression.topk(0.1), warmup_steps=3), "*": hvd.Compression.fp16}
    net, optimizer = net_of(rule)
    plain(net, optimizer, data(8))
    same_bits_everywhere(net)
    if hvd.size() > 1:
        assert set(owed_by(optimizer)) == {"3.weight"}
    net, optimizer = net_of(lambda name, p: of(hvd.Compression.int4) if p.dim() == 2 else None)
    plain(net, optimizer, data(5))
    same_bits_everywhere(net)
    if hvd.size() > 1:
        assert set(owed_by(optimizer)) == {"3.weight", "5.weight"}


def case_another_session_keeps_what_is_owed():
    net, optimizer = net_of(of(hvd.Compression.onebit))
    plain(net, optimizer, data(4))
    before = owed_by(optimizer)
    hvd.shutdown()
    hvd.init()
    assert same(owed_by(optimizer), before)
    plain(net, optimizer, data(3))
    same_bits_everywhere(net)
    assert hvd.size() == 1 or not same(owed_by(optimizer), before)


def case_parameters_that_are_added_later():
    net, optimizer = net_of(of(hvd.Compression.onebit))
    plain(net, optimizer, data(4))
    before = owed_by(optimizer)
    late = nn.Linear(5, 5)
    hvd.broadcast_parameters(late.state_dict(), root_rank=0)
    optimizer.add_param_group({"params": list(late.parameters())})
    assert same({name: residual for name, residual in owed_by(optimizer).items() if name in before}, before)
    for x, y in data(4):
        optimizer.zero_grad()
        ((late(net(x)) - y) ** 2).mean().backward()
        optimizer.step()
    same_bits_everywhere(net)
    same_bits_everywhere(late)


def case_momentum_before_sparsification():
    """If all is sent, it equals SGD with momentum; later, sent elements restart momentum."""
    plain_sgd = lambda p: torch.optim.SGD(p, lr=0.05)  # noqa: E731
    exact = lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.5)  # noqa: E731
    whole = of(hvd.Compression.topk(0.2, momentum=0.5), warmup_steps=100)
    net, optimizer = net_of({"*.weight": whole}, make=plain_sgd)
    other, reference = net_of(hvd.Compression.none, make=exact)
    for part in (net, other):  # biases are sent unencoded, without momentum
        for name, parameter in part.named_parameters():
            parameter.requires_grad_(name.endswith("weight"))
    plain(net, optimizer, data(6))
    plain(other, reference, data(6))
    if hvd.size() > 1:
        equal_nets(net, other, rtol=0.02, atol=0.005)
    net, optimizer = net_of(of(hvd.Compression.topk(0.1, momentum=0.9, clip=1.0)), make=plain_sgd)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step, pair in enumerate(data(8)):
        optimizer.zero_grad()
        loss = scaler.scale(loss_of(net, pair))
        (loss * float("inf") if step == 4 and hvd.rank() == 0 else loss).backward()
        scaler.step(optimizer)
        scaler.update()
    same_bits_everywhere(net)
    assert all(torch.isfinite(p).all() for p in net.parameters())


class Coarse:
    """A user's compressor: rounds to multiples of a quarter."""

    @staticmethod
    def compress(tensor):
        return (tensor * 4).round().to(torch.float64), tensor.dtype

    @staticmethod
    def decompress(tensor, dtype):
        return (tensor / 4).to(dtype)


def case_a_compressor_in_python_keeps_what_it_leaves_out():
    weight, total = nn.Parameter(torch.zeros(40)), torch.zeros(40)
    kept = hvd.ErrorFeedback(Coarse)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), [("w", weight)], compression=kept, op=hvd.Sum
    )
    for step in range(6):
        optimizer.zero_grad()
        mine = torch.randn(40, generator=torch.Generator().manual_seed(100 * step + hvd.rank()))
        (weight * mine).sum().backward()
        optimizer.step()
        total += hvd.allreduce(mine, op=hvd.Sum, name=f"python.{step}")
    if hvd.size() > 1:
        residual = hvd.allreduce(kept.residual["w"], op=hvd.Sum, name="python.residual")
        torch.testing.assert_close(-weight.detach() + residual, total, atol=1e-4, rtol=1e-5)
        assert residual.abs().max() > 0
        both = hvd.allreduce(mine, compression=kept, name="python.alone")
        assert both.dtype == mine.dtype and list(kept.residual) == ["w"]


def case_bad_requests():
    net = model(torch.float32)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for wire in (of(hvd.Compression.onebit), hvd.Compression.int8):
            hvd.DistributedOptimizer(torch.optim.AdamW(net.parameters()), net.named_parameters(), compression=wire)
    told = [one for one in said if "Adam divides" in str(one.message)]
    assert len(told) == (hvd.rank() == 0 and hvd.size() > 1)
    for options, words in (
        ({"op": hvd.Min, "compression": hvd.Compression.int8}, "sums and averages"),
        ({"compression": {"*": object}}, "is unknown. Known: "),
        ({"compression": {"*": hvd.ErrorFeedback(hvd.Compression.fp16)}}, "a rule may name"),
    ):
        try:
            hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters(), **options)
            raise AssertionError(words)
        except ValueError as error:
            assert words in str(error)
    if hvd.size() > 1:
        wire = of(hvd.Compression.topk(0.1 if hvd.rank() else 0.2))
        net, optimizer = net_of(wire)
        try:
            plain(net, optimizer, data(1))
            raise AssertionError("no mismatch")
        except ringcomm.MismatchError as error:
            assert "topk(ratio=0.2)" in str(error) or "topk(ratio=0.1)" in str(error), error


def case_names():
    """Names may replace the formats; an optimizer refuses unknown names, also on one rank."""
    net = model(torch.float32)

    def made(compression, **options):
        return hvd.DistributedOptimizer(
            sgd(net.parameters()), net.named_parameters(), compression=compression, **options
        )

    for name in ("none", "fp16", "bfloat16", "int8", "topk", "auto", None, {"*.weight": "int8", "*": "none"}):
        made(name)
    made(lambda name, parameter: "int4" if parameter.dim() > 1 else None)
    made("bf16", delay=1)
    first = next(name for name, _ in net.named_parameters())
    for wrong, nearest in (("int7", "int"), ("bf61", "bf16"), ("powerSGD", "powersgd"), (7, ""), (object(), "")):
        for compression, options in (
            (wrong, {}),
            (wrong, {"delay": 1}),
            ({first: wrong}, {}),
            (lambda name, parameter, wrong=wrong: wrong, {}),
        ):
            try:
                made(compression, **options)
                raise AssertionError(wrong)
            except ValueError as error:
                assert f"compression={wrong!r} is unknown. Known: {nearest}" in str(error), error
        try:
            hvd.allreduce(torch.ones(2), name="wrong", compression=wrong)
            raise AssertionError(wrong)
        except ValueError as error:
            assert "Known: " in str(error)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made({"wieght*": "int8", first: "int8", f"{first}*": "int4"})
    assert [str(one.message) for one in said if "no parameter name matches 'wieght*'. " in str(one.message)]
    x = torch.ones(300, 300)
    assert torch.equal(hvd.allreduce(x, name="by name", compression="int8"), hvd.allreduce(x, name="as it is"))


def case_single_tensors():
    x = torch.randn(300, 300, generator=torch.Generator().manual_seed(hvd.rank()))
    exact = hvd.allreduce(x, name="exact")
    for wire in (hvd.Compression.int8, hvd.Compression.topk(0.5)):
        near = hvd.allreduce(x, name=f"near.{wire.name}", compression=wire)
        assert near.dtype == x.dtype and (near - exact).abs().max() < 4
        assert torch.equal(near, hvd.broadcast(near, 0, name=f"root.{wire.name}"))
